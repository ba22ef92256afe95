"""Running code: results, output, errors, contexts, languages, interruption."""

from __future__ import annotations

import asyncio
import base64
import re
import time

import httpx
import pytest
import pytest_asyncio
from e2b_code_interpreter import InvalidArgumentException, NotFoundException, SandboxException, TimeoutException
from support import INTERPRETER_PORT, access_token, now, unique, until
from surface import covers

TEMPLATE = "code-interpreter-v1"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(flavour, module_garden):
    """One interpreter per flavour for the whole module: kernels take a moment to start."""
    return await flavour.create(module_garden, TEMPLATE)


@covers("Sandbox.run_code")
async def test_the_last_expression_is_the_result(box):
    done = await now(box.run_code("x = 6\nx * 7"))
    assert done.text == "42" and done.error is None and done.logs.stdout == []
    assert [result.is_main_result for result in done.results] == [True]
    assert done.execution_count >= 1
    again = await now(box.run_code("x + 1"))
    assert again.text == "7" and again.execution_count == done.execution_count + 1, "variables are kept"
    assert (await now(box.run_code("'a string'"))).text == "a string"
    nothing = await now(box.run_code("y = 1"))
    assert nothing.results == [] and nothing.text is None
    assert (await now(box.run_code(""))).results == []


async def test_output_is_told_line_by_line(box):
    out, err, results = [], [], []
    done = await now(
        box.run_code(
            "import sys, time\nprint('one', flush=True)\ntime.sleep(0.3)\nprint('two')\n"
            "print('oops', file=sys.stderr)\n7",
            on_stdout=out.append,
            on_stderr=err.append,
            on_result=results.append,
        )
    )
    assert "".join(done.logs.stdout) == "one\ntwo\n" and "".join(done.logs.stderr) == "oops\n"
    assert "".join(message.line for message in out) == "one\ntwo\n" and len(out) >= 2
    assert [message.error for message in out + err] == [False] * len(out) + [True] * len(err)
    assert all(message.timestamp for message in out)
    assert [result.text for result in results] == ["7"]


async def test_errors_have_names_and_tracebacks(box):
    errors = []
    done = await now(box.run_code("print('before')\n1 / 0", on_error=errors.append))
    assert done.error.name == "ZeroDivisionError" and done.error.value == "division by zero"
    assert "1 / 0" in COLOURS.sub("", done.error.traceback) and errors[0].name == done.error.name
    assert done.logs.stdout == ["before\n"]
    assert (await now(box.run_code("def (:"))).error.name == "SyntaxError"
    assert (await now(box.run_code("import no_such_module_here"))).error.name == "ModuleNotFoundError"
    assert (await now(box.run_code("1 + 1"))).text == "2", "the context lives on"


async def test_rich_results(box):
    done = await now(
        box.run_code(
            "from IPython.display import display, HTML, Markdown, JSON, Latex, SVG, Javascript\n"
            "display(HTML('<b>b</b>'))\ndisplay(Markdown('*m*'))\ndisplay(Latex('$x$'))\n"
            "display(JSON({'k': [1]}))\ndisplay(Javascript('1'))\n"
            "display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>'))\n'main'"
        )
    )
    assert done.error is None and len(done.results) == 7
    html, markdown, latex, made, script, svg, main = done.results
    assert html.html == "<b>b</b>" and markdown.markdown == "*m*" and latex.latex == "$x$"
    assert made.json == {"k": [1]} and script.javascript == "1" and svg.svg.startswith("<svg")
    assert main.is_main_result and main.text == "main" and not html.is_main_result
    extra = await now(
        box.run_code("from IPython.display import display\ndisplay({'x-my/type': 'v'}, raw=True)")
    )
    assert extra.results[0].extra == {"x-my/type": "v"}


async def test_images(box):
    done = await now(
        box.run_code(
            "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()\n"
            "from PIL import Image\nImage.new('RGB', (2, 3), 'red')"
        )
    )
    assert done.error is None, done.error
    for result in done.results[-2:]:
        assert base64.b64decode(result.png).startswith(b"\x89PNG")


async def test_data_frames(box):
    done = await now(
        box.run_code(
            "import pandas as pd\n"
            "pd.DataFrame({'n': [1, 2], 's': ['a', 'b'], 't': pd.to_datetime(['2026-01-02', '2026-01-03'])})"
        )
    )
    assert done.error is None, done.error
    result = done.results[0]
    assert result.data["n"] == [1, 2] and result.data["s"] == ["a", "b"]
    assert [moment[:10] for moment in result.data["t"]] == ["2026-01-02", "2026-01-03"]
    assert "<table" in result.html and "a" in result.text


@covers(
    "Sandbox.create_code_context",
    "Sandbox.list_code_contexts",
    "Sandbox.remove_code_context",
    "Sandbox.restart_code_context",
)
async def test_contexts_are_apart(box):
    one = await now(box.create_code_context(cwd="/tmp"))
    two = await now(box.create_code_context(language="python"))
    assert one.id != two.id and (one.language, one.cwd) == ("python", "/tmp") and two.cwd == "/home/user"
    listed = {context.id: context for context in await now(box.list_code_contexts())}
    assert {one.id, two.id} <= set(listed) and listed[one.id].cwd == "/tmp"
    await now(box.run_code("v = 'one'", context=one))
    await now(box.run_code("v = 'two'", context=two))
    assert (await now(box.run_code("v", context=one))).text == "one"
    assert (await now(box.run_code("v", context=two))).text == "two"
    assert (await now(box.run_code("v_of_default = 1; v"))).error.name == "NameError"
    assert (await now(box.run_code("import os; os.getcwd()", context=one))).text == "/tmp"
    await now(box.restart_code_context(one))
    assert (await now(box.run_code("v", context=one))).error.name == "NameError"
    await now(box.remove_code_context(two.id))
    assert two.id not in [context.id for context in await now(box.list_code_contexts())]
    with pytest.raises(NotFoundException):
        await now(box.run_code("1", context=two))
    for call in (lambda: box.remove_code_context(two.id), lambda: box.restart_code_context(two.id)):
        with pytest.raises(NotFoundException):
            await now(call())
    with pytest.raises(InvalidArgumentException):
        await now(box.run_code("1", context=one, language="python"))
    await now(box.remove_code_context(one))


@pytest.mark.parametrize(
    ("language", "code", "wanted"),
    [
        ("python", "print('hello')", "hello\n"),
        ("javascript", "console.log('hello')", "hello\n"),
        ("js", "console.log([1, 2].map(n => n * 2).join('-'))", "2-4\n"),
        ("bash", "echo hello", "hello\n"),
    ],
)
async def test_languages(box, language, code, wanted):
    done = await now(box.run_code(code, language=language))
    assert done.error is None, done.error
    assert "".join(done.logs.stdout) == wanted


async def test_languages_keep_their_state_and_errors(box):
    await now(box.run_code("const kept = 41", language="javascript"))
    assert (await now(box.run_code("kept + 1", language="javascript"))).text == "42"
    assert (await now(box.run_code("await Promise.resolve(5)", language="javascript"))).text == "5"
    failed = await now(box.run_code("throw new TypeError('bad')", language="javascript"))
    assert "TypeError" in failed.error.name and "bad" in failed.error.value
    await now(box.run_code("WORD=kept", language="bash"))
    assert "".join((await now(box.run_code("echo $WORD", language="bash"))).logs.stdout) == "kept\n"
    with pytest.raises(SandboxException):
        await now(box.run_code("1", language="no-such-language"))


async def test_environment_of_one_execution(flavour, box, garden):
    read = "import os; os.getenv('ONCE')"
    assert (await now(box.run_code(read, envs={"ONCE": "now"}))).text == "now"
    assert (await now(box.run_code(read))).text in (None, "None"), "gone after the execution"
    script = "console.log(process.env.ONCE)"
    done = await now(box.run_code(script, language="javascript", envs={"ONCE": "js"}))
    assert "".join(done.logs.stdout) == "js\n"
    other = await flavour.create(garden, TEMPLATE, envs={"ALWAYS": "sandbox"})
    assert (await now(other.run_code("import os; os.getenv('ALWAYS')"))).text == "sandbox"
    override = await now(other.run_code("import os; os.getenv('ALWAYS')", envs={"ALWAYS": "once"}))
    assert override.text == "once"
    assert (await now(other.run_code("import os; os.getenv('ALWAYS')"))).text == "sandbox"


async def test_code_and_commands_share_the_sandbox(box):
    name = unique("shared")
    await now(box.files.write(f"/home/user/{name}", "by files"))
    assert (await now(box.run_code(f"open('{name}').read()"))).text == "by files"
    await now(box.run_code(f"open('{name}', 'w').write('by code')"))
    assert (await now(box.commands.run(f"cat {name}; stat -c %U {name}"))).stdout == "by codeuser\n"
    shell = await now(box.run_code("import subprocess; subprocess.run(['whoami'], capture_output=True).stdout.decode()"))
    assert shell.text.strip().removesuffix("\\n") == "user"


async def test_a_slow_execution_times_out_and_is_interrupted(box):
    began = time.monotonic()
    with pytest.raises(TimeoutException):
        await now(box.run_code("import time\nfor _ in range(600): time.sleep(0.1)", timeout=1))
    assert time.monotonic() - began < 10
    again = await now(box.run_code("'free again'", timeout=20))
    assert again.text == "free again", "the kernel was interrupted, not left busy for a minute"


def test_hanging_up_interrupts(module_garden, settings):
    box = module_garden.create(TEMPLATE)
    with settings.port(box, INTERPRETER_PORT) as http:
        body = {"code": "import time\nopen('/tmp/began', 'w')\ntime.sleep(600)"}
        with http.stream("POST", "/execute", json=body) as answer:
            assert answer.status_code == 200
            until(lambda: box.files.exists("/tmp/began"), what="the code runs")
    began = time.monotonic()
    assert box.run_code("'free'", timeout=20).text == "free"
    assert time.monotonic() - began < 15


async def test_executions_of_a_context_wait_for_each_other(module_garden):
    from e2b_code_interpreter import AsyncSandbox

    box = module_garden.adopt(await AsyncSandbox.create(TEMPLATE))
    await box.run_code("order = []")
    code = "import time\norder.append(('in', {0}))\ntime.sleep(0.2)\norder.append(('out', {0}))"
    await asyncio.gather(*(box.run_code(code.format(n)) for n in range(3)))
    order = (await box.run_code("[kind for kind, _ in order]")).text
    assert order == str(["in", "out"] * 3)


async def test_a_killed_sandbox_is_said_so(flavour, garden):
    box = await flavour.create(garden, TEMPLATE)
    await now(box.run_code("1"))
    await now(box.kill())
    with pytest.raises((TimeoutException, SandboxException)):
        await now(box.run_code("1"))


async def test_a_kernel_that_dies_comes_back(flavour, garden):
    box = await flavour.create(garden, TEMPLATE)
    died = await now(box.run_code("import os\nos._exit(1)", timeout=30))
    assert died.error is not None and died.error.name
    await now(box.restart_code_context((await now(box.list_code_contexts()))[0]))
    assert (await now(box.run_code("1 + 1", timeout=30))).text == "2"


async def test_a_pause_keeps_the_variables(flavour, garden):
    box = await flavour.create(garden, TEMPLATE)
    await now(box.run_code("kept = 'kept'"))
    await now(box.pause())
    await now(box.connect())
    assert (await now(box.run_code("kept"))).text == "kept"


async def test_plain_templates_have_no_interpreter(flavour, garden):
    box = await flavour.create(garden)
    with pytest.raises((TimeoutException, SandboxException)):
        await now(box.run_code("1", timeout=10))


def test_the_wire_of_the_interpreter(module_garden, settings):
    """Statuses and lines as the published server gives them."""
    box = module_garden.create(TEMPLATE)
    with settings.port(box, INTERPRETER_PORT) as http:
        assert http.get("/health").status_code == 200
        answer = http.post("/execute", json={"code": "print(1)\n2"})
        lines = answer.text.splitlines()
        events = [httpx.Response(200, content=line).json() for line in lines]
        kinds = [event["type"] for event in events if event["type"] != "keepalive"]
        assert kinds == ["number_of_executions", "stdout", "result", "end_of_execution"]
        assert all(line.strip() for line in lines), "no blank lines"
        both = http.post("/execute", json={"code": "1", "context_id": "x", "language": "python"})
        assert both.status_code == 400
        missing = http.post("/execute", json={"code": "1", "context_id": "nosuch"})
        assert missing.status_code == 404 and "Context nosuch not found" in missing.text
        assert http.delete("/contexts/nosuch").status_code == 404
        for body in (b"", b"{", b"[]", b'{"code": 7}', b'{"code": null}'):
            bad = http.post("/execute", content=body, headers={"content-type": "application/json"})
            assert 400 <= bad.status_code < 500, f"{body!r}: {bad.status_code} {bad.text}"
    with settings.port(box, INTERPRETER_PORT, token=False) as stranger:
        assert stranger.get("/contexts").status_code in (200, 401, 403)
    assert access_token(box)
