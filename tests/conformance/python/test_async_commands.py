"""Commands and sessions of the asyncio SDK."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from opensandbox.exceptions import InvalidArgumentException
from opensandbox.models.execd import ExecutionHandlers, RunCommandOpts
from support import out, refused, unique, until_async
from surface import covers


def texts(messages) -> list[str]:
    return [message.text for message in messages]


@covers("Sandbox.commands", "Commands.run")
async def test_streaming_with_handlers(abox):
    seen: list[tuple[str, object]] = []

    def note(kind):
        async def handler(event):
            seen.append((kind, event))

        return handler

    handlers = ExecutionHandlers(
        on_init=note("init"),
        on_stdout=note("out"),
        on_stderr=note("err"),
        on_execution_complete=note("done"),
        on_error=note("error"),
    )
    ran = await abox.commands.run("echo one; echo two >&2", handlers=handlers)
    kinds = [kind for kind, _ in seen]
    assert kinds[0] == "init" and kinds[-1] == "done" and sorted(kinds[1:-1]) == ["err", "out"]
    assert ran.exit_code == 0 and texts(ran.logs.stdout) == ["one"] and texts(ran.logs.stderr) == ["two"]
    seen.clear()
    failed = await abox.commands.run("exit 9", handlers=handlers)
    assert [kind for kind, _ in seen] == ["init", "error"] and failed.exit_code == 9


async def test_options(abox):
    uid = int(out(await abox.commands.run("id -u nobody")))
    opts = RunCommandOpts(working_directory="/usr", envs={"A": "x y"}, uid=uid)
    assert out(await abox.commands.run('pwd; echo "$A"; id -u', opts=opts)) == f"/usr\nx y\n{uid}"
    assert out(await abox.commands.run(["printf", "%s", "$A"])) == "$A"
    began = time.monotonic()
    slow = await abox.commands.run("sleep 65", opts=RunCommandOpts(timeout=timedelta(seconds=1)))
    assert slow.error is not None and time.monotonic() - began < 15
    with refused(400):
        await abox.commands.run("pwd", opts=RunCommandOpts(working_directory="/no/such/place"))


async def test_commands_run_side_by_side(abox):
    gate = f"/tmp/{unique('gate')}"
    await abox.commands.run(f"mkfifo {gate}")
    reader, writer = await asyncio.gather(
        abox.commands.run(f"cat {gate}", opts=RunCommandOpts(timeout=timedelta(seconds=20))),
        abox.commands.run(f"echo met > {gate}", opts=RunCommandOpts(timeout=timedelta(seconds=20))),
    )
    assert out(reader) == "met" and writer.exit_code == 0


@covers("Commands.get_command_status", "Commands.get_background_command_logs", "Commands.interrupt")
async def test_background_command(abox):
    started = await abox.commands.run("echo up; sleep 66", opts=RunCommandOpts(background=True))

    async def logged():
        logs = await abox.commands.get_background_command_logs(started.id)
        return logs if "up" in logs.content else None

    first = await until_async(logged, what="the first line")
    assert (await abox.commands.get_command_status(started.id)).running is True
    rest = await abox.commands.get_background_command_logs(started.id, cursor=first.cursor)
    assert rest.content == ""
    await abox.commands.interrupt(started.id)

    async def ended():
        status = await abox.commands.get_command_status(started.id)
        return None if status.running else status

    assert (await until_async(ended, what="the end")).exit_code != 0
    with refused(404):
        await abox.commands.get_command_status("0" * 32)


@covers(
    "Commands.set_env",
    "Commands.create_session",
    "Commands.run_in_session",
    "Commands.delete_session",
)
async def test_session_and_environment(abox):
    await abox.commands.set_env("COLOR", "it's blue")
    assert out(await abox.commands.run("echo $COLOR")) == "it's blue"
    session = await abox.commands.create_session(working_directory="/tmp")
    await abox.commands.run_in_session(session, "x=1; cd /usr")
    assert out(await abox.commands.run_in_session(session, "echo $x $COLOR; pwd")) == "1 it's blue\n/usr"
    assert (await abox.commands.run_in_session(session, "(exit 7)")).exit_code == 7
    slow = await abox.commands.run_in_session(session, "sleep 67", timeout=timedelta(seconds=1))
    assert slow.error is not None
    await abox.commands.delete_session(session)
    with refused((400, 404)):
        await abox.commands.run_in_session(session, "pwd")
    with pytest.raises(InvalidArgumentException):
        await abox.commands.run(" ")
