"""e2b 2.7: the oldest SDK that can be pointed at one origin, and the last with `beta_create`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest
from e2b import NotFoundException, PtySize
from e2b_code_interpreter import AsyncSandbox, CommandExitException, Sandbox, SandboxQuery


def test_installed_versions_are_the_pinned_ones():
    pinned = dict(
        re.findall(r"^([\w.-]+)==(\S+)$", (Path(__file__).parent / "requirements.txt").read_text(), re.M)
    )
    for name in ("e2b", "e2b-code-interpreter"):
        assert version(name) == pinned[name], f"install the pinned {name} {pinned[name]}"


def test_the_example_of_auto_pause(adopt, http, until):
    sbx = adopt(Sandbox.beta_create(template="demo", timeout=600, auto_pause=True))  # auto pause in seconds
    info = sbx.get_info()
    assert timedelta(seconds=595) < info.end_at - info.started_at < timedelta(seconds=605)
    assert http.get(f"/sandboxes/{sbx.sandbox_id}").json()["lifecycle"]["onTimeout"] == "pause"
    sbx.files.write("/tmp/kept", "kept")
    sbx.set_timeout(1)
    until(lambda: sbx.get_info().state == "paused", what="paused by the clock")
    assert sbx.is_running() is False
    again = Sandbox.connect(sbx.sandbox_id)
    assert again.files.read("/tmp/kept") == "kept"


def test_life_of_a_sandbox(adopt, label):
    sbx = adopt(Sandbox.create("base", timeout=120, metadata={"case": label}, envs={"WORD": "old"}))
    info = sbx.get_info()
    assert info.metadata == {"case": label} and info.state == "running"
    assert timedelta(seconds=115) < info.end_at - info.started_at < timedelta(seconds=125)
    assert sbx.is_running() and sbx.commands.run("echo $WORD; whoami").stdout == "old\nuser\n"
    listed = Sandbox.list(query=SandboxQuery(metadata={"case": label})).next_items()
    assert [item.sandbox_id for item in listed] == [sbx.sandbox_id]
    sbx.set_timeout(600)
    left = Sandbox.get_info(sbx.sandbox_id).end_at - datetime.now(timezone.utc)
    assert abs(left.total_seconds() - 600) < 5
    assert sbx.kill() is True and sbx.kill() is False and sbx.is_running() is False
    with pytest.raises(NotFoundException):
        Sandbox.connect(sbx.sandbox_id)


def test_the_default_lifetime_is_the_sdks(adopt):
    info = adopt(Sandbox.create("demo")).get_info()
    assert timedelta(seconds=295) < info.end_at - info.started_at < timedelta(seconds=305)


def test_pause_and_connect(adopt):
    sbx = adopt(Sandbox.create("base"))
    handle = sbx.commands.run("sleep 1000", background=True, timeout=0)
    sbx.beta_pause()
    assert sbx.get_info().state == "paused" and sbx.is_running() is False
    again = sbx.connect(timeout=400)
    assert handle.pid in [process.pid for process in again.commands.list()]
    assert again.commands.kill(handle.pid) is True


def test_commands(adopt):
    sbx = adopt(Sandbox.create("base"))
    seen = []
    done = sbx.commands.run("echo out; echo err >&2", on_stdout=seen.append)
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 0) and "".join(seen) == "out\n"
    with pytest.raises(CommandExitException) as caught:
        sbx.commands.run("exit 3", user="root", cwd="/tmp")
    assert caught.value.exit_code == 3
    handle = sbx.commands.run("cat", background=True, stdin=True)
    sbx.commands.send_stdin(handle.pid, "typed\n")
    met = sbx.commands.connect(handle.pid)
    assert handle.kill() is True
    with pytest.raises(CommandExitException):
        met.wait()
    terminal = sbx.pty.create(PtySize(rows=24, cols=80))
    sbx.pty.send_stdin(terminal.pid, b"tput cols; exit\n")
    said = bytearray()
    terminal.wait(on_pty=said.extend)
    assert b"80" in said


def test_files(adopt):
    sbx = adopt(Sandbox.create("base"))
    sbx.files.write("/home/user/d/f", "text")
    sbx.files.write_files([{"path": "/home/user/d/g", "data": b"\xff"}, {"path": "/home/user/d/h", "data": "x"}])
    assert sbx.files.read("/home/user/d/f") == "text"
    assert bytes(sbx.files.read("/home/user/d/g", format="bytes")) == b"\xff"
    assert [entry.name for entry in sbx.files.list("/home/user/d")] == ["f", "g", "h"]
    assert sbx.files.rename("/home/user/d/f", "/home/user/d/z").path == "/home/user/d/z"
    assert sbx.files.make_dir("/home/user/d") is False and sbx.files.exists("/home/user/d/f") is False
    sbx.files.remove("/home/user/d")
    with pytest.raises(NotFoundException):
        sbx.files.read("/home/user/d/z")
    watched = sbx.files.watch_dir("/home/user")
    sbx.files.write("/home/user/new", "x")
    assert watched is not None
    watched.stop()


def test_signed_addresses(adopt):
    sbx = adopt(Sandbox.create("base"))
    sbx.files.write("/tmp/f", "signed")
    assert httpx.get(sbx.download_url("/tmp/f")).text == "signed"
    assert httpx.get(sbx.download_url("/tmp/f", use_signature_expiration=-5)).status_code == 401
    assert httpx.post(sbx.upload_url("/tmp/g"), files={"file": b"brought"}).status_code == 200
    assert sbx.files.read("/tmp/g") == "brought"


def test_an_open_sandbox(adopt, http):
    """`secure=False` exists only here: the daemon asks for no token."""
    sbx = adopt(Sandbox.create("base", secure=False))
    assert sbx.commands.run("echo open").stdout == "open\n"
    sbx.files.write("/tmp/f", "open")
    url = sbx.download_url("/tmp/f")
    assert "signature" not in url
    headers = {"E2b-Sandbox-Id": sbx.sandbox_id, "E2b-Sandbox-Port": "49983"}
    assert http.get("/files?path=/tmp/f", headers=headers).text == "open"


async def test_the_asyncio_half(adopt):
    sbx = adopt(await AsyncSandbox.create("base"))
    assert (await sbx.commands.run("echo async")).stdout == "async\n"
    await sbx.files.write("/tmp/f", "x")
    assert await sbx.files.read("/tmp/f") == "x"
    await sbx.beta_pause()
    again = await AsyncSandbox.connect(sbx.sandbox_id)
    assert await again.files.read("/tmp/f") == "x"
    claimed = adopt(await AsyncSandbox.beta_create(template="demo", timeout=600, auto_pause=True))
    assert await claimed.is_running() is True
    assert await claimed.kill() is True
