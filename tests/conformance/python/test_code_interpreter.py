"""The code interpreter package, blocking and asyncio: contexts, runs of code, interrupts."""

from __future__ import annotations

import asyncio
import inspect
import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest
import pytest_asyncio
from code_interpreter import CodeInterpreter, CodeInterpreterSync
from opensandbox import Sandbox
from opensandbox.exceptions import InvalidArgumentException, SandboxApiException, SandboxReadyTimeoutException
from opensandbox.models.execd import ExecutionHandlers
from opensandbox.models.execd_sync import ExecutionHandlersSync
from support import Garden, Settings, out, refused, unique, until_async
from surface import covers

IMAGE = "code-interpreter"
QUICK = (timedelta(seconds=1), timedelta(milliseconds=100))
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
EVENTS = ("on_init", "on_stdout", "on_stderr", "on_result", "on_error", "on_execution_complete")


def both(*claims: str) -> tuple[str, ...]:
    """The claims of the asyncio classes, and those of their blocking twins."""
    return (*claims, *(claim.replace(".", "Sync.", 1) for claim in claims))


async def do(method, *args, **options):
    """Call a method of either flavour; a blocking one has a thread, so that others go on."""
    if inspect.iscoroutinefunction(method):
        return await method(*args, **options)
    return await asyncio.to_thread(method, *args, **options)


@dataclass(frozen=True)
class Flavour:
    """One of the package's two halves."""

    settings: Settings
    blocking: bool

    @property
    def Interpreter(self):
        return CodeInterpreterSync if self.blocking else CodeInterpreter

    async def sandbox(self, garden: Garden, image: str):
        if self.blocking:
            return await do(garden.create, image)
        made = await Sandbox.create(image, connection_config=self.settings.async_config())
        garden.adopt(made.id)
        return made

    def handlers(self, seen: list, **options):
        """Handlers that note the name and the event of everything told."""

        def handler(name: str):
            async def later(event) -> None:
                seen.append((name, event))

            return (lambda event: seen.append((name, event))) if self.blocking else later

        kind = ExecutionHandlersSync if self.blocking else ExecutionHandlers
        return kind(**{name: handler(name) for name in EVENTS}, **options)


@pytest.fixture(scope="module", params=["blocking", "asyncio"])
def flavour(request, settings: Settings) -> Flavour:
    return Flavour(settings, blocking=request.param == "blocking")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def interpreter(flavour: Flavour, module_garden: Garden):
    """One interpreter per flavour for the whole module: kernels take a moment to start."""
    sandbox = await flavour.sandbox(module_garden, IMAGE)
    made = await do(flavour.Interpreter.create, sandbox)
    yield made
    await do(made.close if flavour.blocking else made.aclose)
    await do(sandbox.close)


@pytest.fixture
def codes(interpreter):
    return interpreter.codes


@pytest_asyncio.fixture(loop_scope="module")
async def new_context(codes):
    """Makes contexts that are deleted when the test is over."""
    made = []

    async def make(language: str = "python"):
        made.append(await do(codes.create_context, language))
        return made[-1]

    yield make
    for context in made:
        await do(codes.delete_context, context.id)


@contextmanager
def no_kernel(language: str):
    """Expect an answer that names the kernel that is missing."""
    with pytest.raises(SandboxApiException) as caught:
        yield
    assert caught.value.status_code == 400, caught.value
    assert f"no kernel for {language}" in str(caught.value), caught.value


def printed(execution) -> list[str]:
    """Lines of standard output of code that must have succeeded."""
    assert execution.error is None and execution.complete is not None, str(execution)
    return [message.text for message in execution.logs.stdout]


def failed(execution) -> str:
    """Name of the error of code that must have failed."""
    assert execution.error is not None and execution.complete is None, str(execution)
    return execution.error.name


@covers(
    *both(
        "CodeInterpreter.create",
        "CodeInterpreter.is_healthy",
        "CodeInterpreter.check_ready",
        "CodeInterpreter.ping",
        "CodeInterpreter.codes",
        "CodeInterpreter.id",
        "CodeInterpreter.sandbox",
        "CodeInterpreter.files",
        "CodeInterpreter.commands",
        "CodeInterpreter.metrics",
        "Codes.ping",
    ),
    "CodeInterpreter.aclose",
    "CodeInterpreterSync.close",
)
async def test_an_interpreter_is_healthy_and_shares_its_sandbox(flavour, garden):
    sandbox = await flavour.sandbox(garden, IMAGE)
    made = await do(flavour.Interpreter.create, sandbox)
    assert made.sandbox is sandbox and made.id == sandbox.id
    assert await do(made.ping) is True and await do(made.codes.ping) is True
    assert await do(made.is_healthy) is True
    assert await do(made.check_ready, *QUICK) is None
    assert (await do(made.metrics.get_metrics, made.id)).cpu_count > 0
    await do(made.files.write_file, "/tmp/by-files", "by files")
    done = await do(made.codes.run, "print(open('/tmp/by-files').read())\nopen('/tmp/by-code', 'w').write('by code')")
    assert printed(done) == ["by files"]
    assert out(await do(made.commands.run, "cat /tmp/by-code")) == "by code"
    await do(made.close if flavour.blocking else made.aclose)
    assert await do(made.ping) is False, "its connections are closed"
    assert out(await do(sandbox.commands.run, "echo alive")) == "alive", "the sandbox is not"
    await do(sandbox.close)


@covers(*both("Codes.create_context", "Codes.get_context", "Codes.list_contexts", "Codes.delete_context"))
async def test_contexts_come_and_go(codes):
    one = await do(codes.create_context, "python")
    two = await do(codes.create_context, "python")
    other = await do(codes.create_context, "bash")
    assert len({one.id, two.id, other.id}) == 3 and all((one.id, two.id, other.id))
    assert (one.language, two.language, other.language) == ("python", "python", "bash")
    assert await do(codes.get_context, one.id) == one
    listed = await do(codes.list_contexts, "python")
    assert one in listed and two in listed and {each.language for each in listed} == {"python"}
    assert other in await do(codes.list_contexts, "bash")
    await do(codes.delete_context, one.id)
    left = await do(codes.list_contexts, "python")
    assert one not in left and two in left
    for call in (codes.get_context, codes.delete_context):
        with refused(404, "CONTEXT_NOT_FOUND"):
            await do(call, one.id)
    with pytest.raises(SandboxApiException) as caught:
        await do(codes.run, "1", context=one)
    assert caught.value.status_code == 404 and one.id in str(caught.value)
    await do(codes.delete_context, two.id)
    await do(codes.delete_context, other.id)


@covers(*both("Codes.delete_contexts"))
async def test_all_contexts_of_a_language_go_at_once(codes):
    await do(codes.run, "1", language="python")
    for _ in range(2):
        await do(codes.create_context, "python")
    other = await do(codes.create_context, "bash")
    assert len(await do(codes.list_contexts, "python")) >= 3, "the default one is listed too"
    await do(codes.delete_contexts, "python")
    assert await do(codes.list_contexts, "python") == []
    assert await do(codes.get_context, other.id) == other
    await do(codes.delete_contexts, "python")
    assert (await do(codes.run, "1 + 1", language="python")).text == "2", "a new default one is made"
    await do(codes.delete_context, other.id)


@covers(*both("Codes.run"))
async def test_output_results_and_errors(codes, new_context):
    context = await new_context()
    code = "import sys\nprint('one\\ntwo')\nprint('oops', file=sys.stderr)\n6 * 7"
    done = await do(codes.run, code, context=context)
    assert printed(done) == ["one", "two"]
    assert [message.text for message in done.logs.stderr] == ["oops"]
    assert [result.text for result in done.result] == ["42"] and done.text == "one\ntwo\n42"
    assert done.id and done.execution_count == 1 and done.complete.execution_time_in_millis >= 0
    assert (await do(codes.run, "y = 1", context=context)).result == []
    broken = await do(codes.run, "print('before')\n1 / 0", context=context)
    assert failed(broken) == "ZeroDivisionError" and broken.error.value == "division by zero"
    assert "1 / 0" in COLOURS.sub("", "\n".join(broken.error.traceback))
    assert [message.text for message in broken.logs.stdout] == ["before"]
    assert failed(await do(codes.run, "def (:", context=context)) == "SyntaxError"
    again = await do(codes.run, "y + 1", context=context)
    assert again.text == "2" and again.execution_count == 5, "the context lives on"


@pytest.mark.parametrize(
    ("language", "setting", "showing", "unknown", "error"),
    [
        ("python", "kept = 41", "print(kept + 1)", "no_such_name", "NameError"),
        ("javascript", "const kept = 41", "console.log(kept + 1)", "noSuchName", "ReferenceError"),
        ("typescript", "const kept: number = 41", "console.log(kept + 1)", "throw new RangeError('x')", "RangeError"),
        ("bash", "kept=41", "echo $((kept + 1))", "no_such_command_here", "CommandFailed"),
    ],
    ids=["python", "javascript", "typescript", "bash"],
)
async def test_languages_keep_their_state(codes, new_context, language, setting, showing, unknown, error):
    context = await new_context(language)
    assert printed(await do(codes.run, setting, context=context)) == []
    assert printed(await do(codes.run, showing, context=context, language=language)) == ["42"]
    assert failed(await do(codes.run, unknown, context=context)) == error
    assert printed(await do(codes.run, showing, context=context)) == ["42"], "an error loses nothing"


async def test_the_default_context_of_a_language(codes):
    salt = unique().replace("-", "_")
    for language, setting, showing in (
        (None, f"{salt} = 'python'", f"print({salt})"),
        ("javascript", f"var {salt} = 'javascript'", f"console.log({salt})"),
        ("bash", f"{salt}=bash", f"echo ${salt}"),
    ):
        options = {"language": language} if language else {}
        first = await do(codes.run, setting, **options)
        second = await do(codes.run, showing, **options)
        assert printed(first) == [] and printed(second) == [language or "python"]
    assert printed(await do(codes.run, f"print({salt})", language="python")) == ["python"], "python is the default"


async def test_contexts_are_apart(codes, new_context):
    for language, setting, reading, error in (
        ("python", "v = '{}'", "print(v)", "NameError"),
        ("javascript", "const v = '{}'", "console.log(v)", "ReferenceError"),
        ("bash", "v={}", "echo ${v:?is not set}", "CommandFailed"),
    ):
        one, two, three = [await new_context(language) for _ in range(3)]
        await do(codes.run, setting.format("one"), context=one)
        await do(codes.run, setting.format("two"), context=two)
        assert printed(await do(codes.run, reading, context=one)) == ["one"]
        assert printed(await do(codes.run, reading, context=two)) == ["two"]
        assert failed(await do(codes.run, reading, context=three)) == error


async def test_contexts_work_side_by_side(codes, new_context):
    """Each waits for a file that the other writes."""
    salt, contexts = unique("meet"), [await new_context(), await new_context()]
    code = (
        "import os, time\nopen('/tmp/{0}-{1}', 'w')\n"
        "while not os.path.exists('/tmp/{0}-{2}'): time.sleep(0.01)\nprint('met')"
    )
    met = await asyncio.gather(
        do(codes.run, code.format(salt, "a", "b"), context=contexts[0]),
        do(codes.run, code.format(salt, "b", "a"), context=contexts[1]),
    )
    assert [printed(each) for each in met] == [["met"], ["met"]]


async def test_events_are_told_as_they_come(flavour, interpreter, codes, new_context):
    context, gate, seen = await new_context(), f"/tmp/{unique('gate')}", []
    code = (
        "import os, sys, time\nprint('waiting', flush=True)\nprint('oops', file=sys.stderr, flush=True)\n"
        f"while not os.path.exists('{gate}'): time.sleep(0.01)\nprint('released')\n'value'"
    )
    running = asyncio.create_task(do(codes.run, code, context=context, handlers=flavour.handlers(seen)))

    def told(name: str) -> list:
        return [event for kind, event in seen if kind == name]

    async def half_told() -> bool:
        return bool(told("on_init") and told("on_stdout") and told("on_stderr"))

    await until_async(half_told, what="the first output is told while the code runs")
    assert not running.done() and [message.text for message in told("on_stdout")] == ["waiting"]
    await do(interpreter.files.write_file, gate, "")
    done = await running
    assert printed(done) == ["waiting", "released"]
    assert [message.text for message in told("on_stdout")] == ["waiting", "released"]
    assert [(message.text, message.is_error) for message in told("on_stderr")] == [("oops", True)]
    assert [result.text for result in told("on_result")] == ["'value'"]
    assert [event.id for event in told("on_init")] == [done.id] and told("on_error") == []
    assert seen[0][0] == "on_init" and seen[-1] == ("on_execution_complete", done.complete)


async def test_errors_are_told_and_output_need_not_be_kept(flavour, codes, new_context):
    context, seen = await new_context(), []
    handlers = flavour.handlers(seen, skip_accumulation=True)
    broken = await do(codes.run, "print('told')\nraise KeyError('k')", context=context, handlers=handlers)
    assert failed(broken) == "KeyError" and broken.logs.stdout == []
    assert [name for name, _ in seen] == ["on_init", "on_stdout", "on_error"]
    assert seen[1][1].text == "told" and seen[2][1] == broken.error


@covers(*both("Codes.interrupt"))
@pytest.mark.parametrize(
    ("language", "setting", "slow", "showing"),
    [
        ("python", "kept = 'kept'", "import time\nprint('at work', flush=True)\ntime.sleep(600)", "print(kept)"),
        ("javascript", "const kept = 'kept'", "console.log('at work'); while (true) {}", "console.log(kept)"),
        ("bash", "kept=kept", "echo at work; sleep 600", "echo $kept"),
    ],
    ids=["python", "javascript", "bash"],
)
async def test_an_interrupt_ends_a_long_run(flavour, codes, new_context, language, setting, slow, showing):
    context, seen = await new_context(language), []
    await do(codes.run, setting, context=context)
    running = asyncio.create_task(do(codes.run, slow, context=context, handlers=flavour.handlers(seen)))

    async def at_work() -> bool:
        return "on_stdout" in [name for name, _ in seen]

    await until_async(at_work, what="the code is at work")
    assert not running.done()
    await do(codes.interrupt, seen[0][1].id)
    ended = await asyncio.wait_for(running, 20)
    assert failed(ended) == ("CommandFailed" if language == "bash" else "KeyboardInterrupt")
    assert printed(await do(codes.run, showing, context=context)) == ["kept"], "the context lives on"
    with refused(500, "RUNTIME_ERROR"):
        await do(codes.interrupt, "nosuchexecution")


async def test_what_cannot_be_run_is_refused(codes, new_context):
    for language in ("java", "go", "no-such-language"):
        with no_kernel(language):
            await do(codes.create_context, language)
        with no_kernel(language):
            await do(codes.run, "1", language=language)
    with pytest.raises(InvalidArgumentException):
        await do(codes.run, " \n")
    with pytest.raises(InvalidArgumentException):
        await do(codes.run, "1", context=await new_context(), language="bash")


async def test_plain_images_name_the_missing_kernel(flavour, garden):
    sandbox = await flavour.sandbox(garden, "base")
    with pytest.raises(SandboxReadyTimeoutException):
        await do(flavour.Interpreter.create, sandbox, ready_timeout=QUICK[0], health_check_polling_interval=QUICK[1])
    made = await do(flavour.Interpreter.create, sandbox, skip_health_check=True)
    assert await do(made.ping) is True and await do(made.is_healthy) is False
    with pytest.raises(SandboxReadyTimeoutException):
        await do(made.check_ready, *QUICK)
    for language in ("python", "javascript"):
        with no_kernel(language):
            await do(made.codes.create_context, language)
        with no_kernel(language):
            await do(made.codes.run, "1", language=language)
        assert await do(made.codes.list_contexts, language) == []
    assert printed(await do(made.codes.run, "echo shell", language="bash")) == ["shell"], "bash needs no kernel"
    await do(made.close if flavour.blocking else made.aclose)
    await do(sandbox.close)
