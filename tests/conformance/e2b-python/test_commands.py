"""Commands: output, exit codes, users, folders, input, background, deadlines."""

from __future__ import annotations

import time

import pytest
from e2b_code_interpreter import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    SandboxException,
    TimeoutException,
)
from support import now, unique, until, until_async
from surface import covers


@covers("Commands.run")
async def test_output_and_exit_codes(box):
    done = await now(box.commands.run("echo out; echo err >&2"))
    assert (done.stdout, done.stderr, done.exit_code, done.error) == ("out\n", "err\n", 0, None)
    with pytest.raises(CommandExitException) as caught:
        await now(box.commands.run("echo partly; echo why >&2; exit 3"))
    failed = caught.value
    assert (failed.exit_code, failed.stdout, failed.stderr) == (3, "partly\n", "why\n")
    assert failed.error == "exit status 3"
    with pytest.raises(CommandExitException) as caught:
        await now(box.commands.run("no-such-program-here"))
    assert caught.value.exit_code == 127 and "not found" in caught.value.stderr
    with pytest.raises(CommandExitException) as caught:
        await now(box.commands.run("kill -KILL $$"))
    assert caught.value.exit_code == -1 and caught.value.error == "signal: killed"


async def test_it_is_a_login_shell_without_input(box):
    said = (await now(box.commands.run("shopt -q login_shell && echo login; cat; echo $0"))).stdout
    assert said.split("\n")[:2] == ["login", "/bin/bash"]


async def test_output_comes_as_it_is_written(box):
    seen, errors = [], []
    done = await now(
        box.commands.run(
            "echo one; sleep 0.3; echo two; echo oops >&2",
            on_stdout=seen.append,
            on_stderr=errors.append,
        )
    )
    assert "".join(seen) == done.stdout == "one\ntwo\n" and len(seen) >= 2
    assert "".join(errors) == done.stderr == "oops\n"


@pytest.mark.parametrize("size", [8192, 3_000_000])
async def test_nothing_of_long_output_is_lost(box, size):
    done = await now(box.commands.run(f"head -c {size} /dev/zero | tr '\\0' x; echo end"))
    assert len(done.stdout) == size + 4 and done.stdout.endswith("xend\n")


async def test_split_and_broken_characters(box):
    """Characters over the edge of a chunk stay whole; a lone byte becomes U+FFFD."""
    whole = await now(box.commands.run("printf 'x%.0s' $(seq 1 8191); printf '\\342\\202\\254'"))
    assert whole.stdout == "x" * 8191 + "€"
    broken = await now(box.commands.run("printf 'x%.0s' $(seq 1 8191); printf '\\342'"))
    assert broken.stdout == "x" * 8191 + "\ufffd"


async def test_where_who_and_with_what(box):
    await now(box.files.make_dir("/tmp/here and there"))
    run = box.commands.run
    assert (await now(run("pwd", cwd="/tmp/here and there"))).stdout == "/tmp/here and there\n"
    assert (await now(run("whoami; echo $HOME $USER $LOGNAME", user="root"))).stdout == "root\n/root root root\n"
    assert (await now(run("echo $HOME $USER $LOGNAME"))).stdout == "/home/user user user\n"
    envs = {"A": "1 2", "B": "'quoted' \"twice\" $HOME"}
    assert (await now(run('echo "$A|$B"', envs=envs))).stdout == "1 2|'quoted' \"twice\" $HOME\n"
    with pytest.raises(InvalidArgumentException, match="no-such-folder"):
        await now(run("pwd", cwd="/no-such-folder"))
    with pytest.raises(AuthenticationException):
        await now(run("pwd", user="nobody-of-that-name"))


async def test_sandbox_envs_are_overridden_by_the_commands(flavour, garden):
    box = await flavour.create(garden, envs={"ONE": "sandbox", "TWO": "sandbox"})
    assert (await now(box.commands.run("echo $ONE $TWO", envs={"TWO": "command"}))).stdout == "sandbox command\n"
    assert (await now(box.commands.run("echo $ONE $TWO", user="root"))).stdout == "sandbox sandbox\n"


@covers(
    "Commands.list",
    "Commands.kill",
    "CommandHandle.pid",
    "CommandHandle.kill",
    "CommandHandle.wait",
)
async def test_background_commands_are_listed_and_killed(box):
    mark = unique("sleep")
    handle = await now(
        box.commands.run(f"sleep 1000 # {mark}", background=True, envs={"K": "v"}, cwd="/tmp", timeout=0)
    )
    found = [process for process in await now(box.commands.list()) if process.pid == handle.pid]
    assert len(found) == 1 and found[0].cmd == "/bin/bash"
    assert found[0].args == ["-l", "-c", f"sleep 1000 # {mark}"]
    assert found[0].envs == {"K": "v"} and found[0].cwd == "/tmp"
    assert (await now(box.commands.run(f"ps -o pid= -p {handle.pid}"))).stdout.strip() == str(handle.pid)
    assert await now(handle.kill()) is True
    with pytest.raises(CommandExitException) as caught:
        await now(handle.wait())
    assert caught.value.error == "signal: killed"
    assert handle.pid not in [process.pid for process in await now(box.commands.list())]
    assert await now(handle.kill()) is False
    other = await now(box.commands.run("sleep 1000", background=True, timeout=0))
    assert await now(box.commands.kill(other.pid)) is True
    assert await now(box.commands.kill(999_999)) is False


@covers("Commands.connect", "CommandHandle.disconnect")
async def test_leaving_a_command_and_coming_back(box):
    fifo = f"/tmp/{unique('fifo')}"
    await now(box.commands.run(f"mkfifo {fifo}"))
    handle = await now(box.commands.run(f"cat {fifo}; exit 4", background=True, timeout=0))
    await now(handle.disconnect())
    assert handle.pid in [process.pid for process in await now(box.commands.list())]
    again = await now(box.commands.connect(handle.pid))
    assert again.pid == handle.pid
    await now(box.commands.run(f"echo fresh > {fifo}"))
    with pytest.raises(CommandExitException) as caught:
        await now(again.wait())
    assert (caught.value.exit_code, caught.value.stdout) == (4, "fresh\n")
    with pytest.raises(NotFoundException):
        await now(box.commands.connect(999_999))


async def test_the_exit_of_a_command_is_kept_for_a_while(box):
    handle = await now(box.commands.run("exit 5", background=True))
    await now(handle.disconnect())

    async def ended():
        return handle.pid not in [process.pid for process in await now(box.commands.list())]

    await until_async(ended, what="the end")
    late = await now(box.commands.connect(handle.pid))
    with pytest.raises(CommandExitException) as caught:
        await now(late.wait())
    assert caught.value.exit_code == 5


@covers(
    "Commands.send_stdin",
    "Commands.close_stdin",
    "CommandHandle.send_stdin",
    "CommandHandle.close_stdin",
)
async def test_input(box):
    handle = await now(box.commands.run("cat; echo closed", background=True, stdin=True))
    await now(box.commands.send_stdin(handle.pid, "one\n"))
    await now(handle.send_stdin(b"two \xe2\x82\xac\n"))
    await now(handle.close_stdin())
    assert (await now(handle.wait())).stdout == "one\ntwo €\nclosed\n"
    other = await now(box.commands.run("wc -c", background=True, stdin=True))
    await now(box.commands.send_stdin(other.pid, "x" * 200_000))
    await now(box.commands.close_stdin(other.pid))
    assert (await now(other.wait())).stdout.strip() == "200000"
    with pytest.raises(NotFoundException):
        await now(box.commands.send_stdin(999_999, "x"))
    deaf = await now(box.commands.run("sleep 1000", background=True, timeout=0))
    with pytest.raises(SandboxException):
        await now(deaf.send_stdin("nobody listens"))
    await now(deaf.kill())


@covers("Commands.stream_input", only="sync")
def test_a_stream_of_input(plain):
    handle = plain.commands.run("cat", background=True, stdin=True)
    plain.commands.stream_input(handle.pid, (f"{n}\n" for n in range(200)))
    plain.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "".join(f"{n}\n" for n in range(200))
    with pytest.raises(NotFoundException):
        plain.commands.stream_input(999_999, ["x"])


@covers("Commands.stream_input", "AsyncCommandInputHandle.send", "AsyncCommandInputHandle.close", only="async")
async def test_a_long_lived_stream_of_input(async_box):
    handle = await async_box.commands.run("cat", background=True, stdin=True)
    stream = async_box.commands.stream_input(handle.pid)
    for n in range(200):
        await stream.send(f"{n}\n")
    await stream.close()
    await async_box.commands.close_stdin(handle.pid)
    assert (await handle.wait()).stdout == "".join(f"{n}\n" for n in range(200))
    with pytest.raises(SandboxException):
        await stream.send("after the end")


@covers(
    "CommandHandle.stdout",
    "CommandHandle.stderr",
    "CommandHandle.exit_code",
    "CommandHandle.error",
    only="async",
)
async def test_an_asyncio_handle_gathers_as_it_goes(async_box):
    handle = await async_box.commands.run("echo a; echo b >&2; sleep 0.3; exit 2", background=True)
    await until_async(lambda: handle.stdout == "a\n" and handle.stderr == "b\n", what="the first lines")
    assert handle.exit_code is None
    with pytest.raises(CommandExitException):
        await handle.wait()
    assert handle.exit_code == 2 and handle.error == "exit status 2"


async def test_the_deadline_kills(box):
    began = time.monotonic()
    with pytest.raises(TimeoutException):
        await now(box.commands.run("echo $$ > /tmp/slow.pid; exec sleep 1000", timeout=1))
    assert 0.9 < time.monotonic() - began < 8
    pid = (await now(box.files.read("/tmp/slow.pid"))).strip()

    async def ended():
        return "Z" in (await now(box.commands.run(f"ps -o stat= -p {pid} || echo Z"))).stdout

    await until_async(ended, what="the slow command is gone")


async def test_a_deadline_in_the_background_kills_too(box):
    handle = await now(box.commands.run("sleep 1000", background=True, timeout=1))
    with pytest.raises(TimeoutException):
        await now(handle.wait())

    async def ended():
        return handle.pid not in [process.pid for process in await now(box.commands.list())]

    await until_async(ended, what="the command is gone")


async def test_no_deadline(box):
    assert (await now(box.commands.run("sleep 1.2; echo late", timeout=0))).stdout == "late\n"


async def test_output_need_not_be_kept(box):
    seen = []
    done = await now(box.commands.run("echo told", on_stdout=seen.append, retain_output=False))
    assert done.stdout is None and seen == ["told\n"]


async def test_many_commands_at_once(box):
    handles = [
        await now(box.commands.run(f"sleep 0.3; echo {n}", background=True)) for n in range(10)
    ]
    assert [(await now(handle.wait())).stdout for handle in handles] == [f"{n}\n" for n in range(10)]


async def test_a_process_left_behind_does_not_hold_the_command(box):
    """The shell ends; what it left in the background keeps no stream open for ever."""
    began = time.monotonic()
    done = await now(box.commands.run("sleep 1000 >/dev/null 2>&1 & echo $!"))
    assert time.monotonic() - began < 5
    pid = done.stdout.strip()
    assert (await now(box.commands.run(f"kill -0 {pid} && echo alive; kill {pid}"))).stdout == "alive\n"


def test_sync_iteration_over_output(plain):
    handle = plain.commands.run("echo a; echo b >&2", background=True)
    parts = list(handle)
    assert ("a\n", None, None) in parts and (None, "b\n", None) in parts


def test_two_watch_one_command(plain):
    handle = plain.commands.run("cat; echo done", background=True, stdin=True)
    second = plain.commands.connect(handle.pid)
    handle.send_stdin("hello\n")
    handle.close_stdin()
    assert second.wait().stdout == handle.wait().stdout == "hello\ndone\n"
    until(lambda: handle.pid not in [p.pid for p in plain.commands.list()], what="the end")
