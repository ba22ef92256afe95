"""Terminals."""

from __future__ import annotations

import pytest
from e2b_code_interpreter import CommandExitException, NotFoundException, PtySize
from support import until_async
from surface import covers


@covers("Sandbox.pty", "Pty.create", "Pty.send_stdin", "Pty.kill", only="sync")
def test_a_terminal(plain):
    handle = plain.pty.create(PtySize(rows=24, cols=80), envs={"ABC": "123"}, cwd="/tmp", user="root")
    plain.pty.send_stdin(handle.pid, b"tput cols; echo $ABC $TERM $PWD $(whoami); exit 3\n")
    said = bytearray()
    with pytest.raises(CommandExitException) as caught:
        handle.wait(on_pty=said.extend)
    assert caught.value.exit_code == 3
    assert b"80\r\n" in said and b"123 xterm-256color /tmp root" in said
    other = plain.pty.create(PtySize(rows=24, cols=80))
    assert other.pid in [process.pid for process in plain.commands.list()]
    assert plain.pty.kill(other.pid) is True
    assert plain.pty.kill(999_999) is False


@covers("Pty.resize", "Pty.stream_input", "Pty.connect", only="sync")
def test_a_terminal_changes_size_and_is_met_again(plain):
    handle = plain.pty.create(PtySize(rows=24, cols=80))
    plain.pty.resize(handle.pid, PtySize(rows=40, cols=132))
    handle.disconnect()
    again = plain.pty.connect(handle.pid)
    plain.pty.stream_input(handle.pid, [b"stty size; ", b"exit\n"])
    said = bytearray()
    assert again.wait(on_pty=said.extend).exit_code == 0
    assert b"40 132\r\n" in said
    with pytest.raises(NotFoundException):
        plain.pty.resize(999_999, PtySize(rows=1, cols=1))
    with pytest.raises(NotFoundException):
        plain.pty.connect(999_999)


@covers(
    "Sandbox.pty",
    "Pty.create",
    "Pty.send_stdin",
    "Pty.resize",
    "Pty.connect",
    "Pty.stream_input",
    "Pty.kill",
    only="async",
)
async def test_an_asyncio_terminal(async_box):
    said, later = bytearray(), bytearray()
    pty = async_box.pty
    handle = await pty.create(PtySize(rows=24, cols=80), on_data=said.extend)
    await pty.send_stdin(handle.pid, b"stty size\n")
    await until_async(lambda: b"24 80\r\n" in said, what="the size")
    await pty.resize(handle.pid, PtySize(rows=40, cols=132))
    again = await pty.connect(handle.pid, on_data=later.extend)
    stream = pty.stream_input(handle.pid)
    await stream.send(b"stty size; echo met again\n")
    await stream.close()
    await until_async(lambda: b"40 132\r\n" in later and b"met again" in later, what="the new size")
    assert await pty.kill(handle.pid) is True
    with pytest.raises(CommandExitException):
        await again.wait()
    assert await pty.kill(999_999) is False


def test_a_terminal_is_interactive(plain):
    """Control-C reaches the foreground, not the shell."""
    handle = plain.pty.create(PtySize(rows=24, cols=80))
    said = bytearray()
    plain.pty.send_stdin(handle.pid, b"sleep 1000\n")
    plain.pty.send_stdin(handle.pid, b"\x03")
    plain.pty.send_stdin(handle.pid, b"echo status $?; exit\n")
    try:
        handle.wait(on_pty=said.extend)
    except CommandExitException:
        pass
    assert b"status " in said
