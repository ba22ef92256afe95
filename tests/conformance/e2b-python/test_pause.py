"""Pausing and resuming, by hand, by the clock and by traffic; snapshots and forks."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest
from e2b_code_interpreter import (
    InvalidArgumentException,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    TimeoutException,
)
from support import (
    ENVD_PORT,
    UNKNOWN_ID,
    access_token,
    assert_error,
    moment,
    now,
    refused,
    serve,
    state_of,
    unique,
    until,
    until_async,
)
from surface import covers

TICK = "while :; do echo tick >> /tmp/ticks; sleep 0.05; done"


async def ticks(box) -> int:
    return len((await now(box.files.read("/tmp/ticks"))).split())


@covers("Sandbox.pause", "Sandbox.connect")
async def test_pause_keeps_files_processes_and_the_token(flavour, garden, settings):
    box = await flavour.create(garden, timeout=300)
    token = access_token(box)
    handle = await now(box.commands.run(TICK, background=True, timeout=0))
    await until_async(lambda: box.files.exists("/tmp/ticks"), what="the first tick")
    assert await now(box.pause()) is True
    assert state_of(settings, box.sandbox_id) == "paused"
    assert await now(box.is_running()) is False
    assert await now(box.pause()) is False
    with pytest.raises(SandboxNotRunningException):
        await now(box.files.read("/tmp/ticks"))
    again = await now(flavour.Sandbox.connect(box.sandbox_id, timeout=400))
    assert again.sandbox_id == box.sandbox_id and access_token(again) == token
    info = await now(again.get_info())
    assert info.state == "running" and abs((info.end_at - moment()).total_seconds() - 400) < 5
    seen = await ticks(again)
    await until_async(lambda: more_than(box, seen), what="the process goes on")
    assert handle.pid in [process.pid for process in await now(again.commands.list())]


async def more_than(box, seen: int) -> bool:
    return await ticks(box) > seen


@covers("Sandbox.beta_pause")
async def test_the_old_name_of_pause(flavour, garden, settings):
    box = await flavour.create(garden)
    assert await now(box.beta_pause()) is True
    assert state_of(settings, box.sandbox_id) == "paused"
    assert await now(box.connect()) is box
    assert await now(box.is_running()) is True


async def test_a_paused_sandbox_can_be_killed(flavour, garden, settings):
    box = await flavour.create(garden)
    await now(flavour.Sandbox.pause(box.sandbox_id))
    assert await now(box.kill()) is True
    assert state_of(settings, box.sandbox_id) == "gone"
    with pytest.raises(SandboxNotFoundException):
        await now(box.connect())


async def test_a_paused_sandbox_does_not_run_out(flavour, garden, settings):
    """The time of a pause does not count, whatever was left of the life."""
    box = await flavour.create(garden, timeout=60)
    await now(box.set_timeout(2))
    await now(box.pause())
    ended = (await now(box.get_info())).end_at
    until(lambda: moment() > ended + timedelta(seconds=3), what="the old end has passed")
    assert state_of(settings, box.sandbox_id) == "paused"
    await now(box.connect(timeout=60))
    assert (await now(box.commands.run("echo still here"))).stdout == "still here\n"


@pytest.mark.parametrize("how", ["pause", "connect"])
async def test_without_memory_files_stay_and_processes_go(flavour, garden, how):
    """Either the pause leaves the memory out, or the resume boots from the files."""
    box = await flavour.create(garden)
    await now(box.files.write("/home/user/kept", "kept"))
    handle = await now(box.commands.run("sleep 1000", background=True, timeout=0))
    boot = (await now(box.commands.run("cat /proc/sys/kernel/random/boot_id"))).stdout
    if how == "pause":
        assert await now(box.pause(mode="filesystem")) is True
        await now(box.connect())
    else:
        assert await now(box.pause()) is True
        await now(box.connect(on_resume="reboot"))
    assert await now(box.files.read("/home/user/kept")) == "kept"
    assert handle.pid not in [process.pid for process in await now(box.commands.list())]
    assert "sleep 1000" not in (await now(box.commands.run("ps -eo args"))).stdout
    assert (await now(box.commands.run("cat /proc/sys/kernel/random/boot_id"))).stdout != boot


async def test_the_clock_pauses_instead_of_killing(flavour, garden, settings):
    box = await flavour.create(garden, timeout=60, lifecycle={"on_timeout": "pause"})
    assert (await now(box.get_info())).lifecycle == {"on_timeout": "pause", "auto_resume": False}
    await now(box.files.write("/tmp/kept", "kept"))
    await now(box.set_timeout(1))
    until(lambda: state_of(settings, box.sandbox_id) == "paused", within=10, what="paused")
    with pytest.raises(SandboxNotRunningException):
        await now(box.commands.run("true"))
    assert state_of(settings, box.sandbox_id) == "paused", "traffic does not wake this one"
    await now(box.connect())
    assert await now(box.files.read("/tmp/kept")) == "kept"


async def test_the_clock_pauses_without_memory(flavour, garden, settings):
    lifecycle = {"on_timeout": {"action": "pause", "mode": "filesystem"}}
    box = await flavour.create(garden, timeout=60, lifecycle=lifecycle)
    handle = await now(box.commands.run("sleep 1000", background=True, timeout=0))
    await now(box.set_timeout(1))
    until(lambda: state_of(settings, box.sandbox_id) == "paused", within=10, what="paused")
    await now(box.connect())
    assert handle.pid not in [process.pid for process in await now(box.commands.list())]


async def test_traffic_wakes_a_sandbox(flavour, garden, settings):
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    box = await flavour.create(garden, timeout=60, lifecycle=lifecycle)
    assert (await now(box.get_info())).lifecycle == {"on_timeout": "pause", "auto_resume": True}
    await serve(box, 8123)
    await now(box.set_timeout(1))
    until(lambda: state_of(settings, box.sandbox_id) == "paused", within=10, what="paused")
    assert (await now(box.commands.run("echo awake"))).stdout == "awake\n"
    info = await now(box.get_info())
    assert info.state == "running" and (info.end_at - moment()).total_seconds() > 250
    await now(box.set_timeout(1))
    until(lambda: state_of(settings, box.sandbox_id) == "paused", within=10, what="paused again")
    with settings.port(box, ENVD_PORT, **{"X-Access-Token": "wrong"}) as stranger:
        assert stranger.get("/files?path=/tmp").status_code >= 400
    assert state_of(settings, box.sandbox_id) == "paused", "a stranger does not wake it"
    with settings.port(box, 8123) as web:
        assert web.get("/").text == "served"
    assert state_of(settings, box.sandbox_id) == "running"


async def test_lifecycles_that_contradict_themselves(flavour, http, garden):
    for lifecycle in (
        {"on_timeout": "kill", "auto_resume": True},
        {"on_timeout": {"action": "pause", "mode": "filesystem"}, "auto_resume": True},
    ):
        with pytest.raises(InvalidArgumentException):
            await now(flavour.Sandbox.create("base", lifecycle=lifecycle))
    for wrong in (
        {"autoPauseMemory": False},
        {"autoPause": True, "autoPauseMemory": False, "autoResume": {"enabled": True}},
    ):
        answer = http.post("/v2/sandboxes", json={"templateID": "base", **wrong})
        if answer.status_code == 201:
            garden.adopt(answer.json()["sandboxID"])
        assert_error(answer, 400)


async def test_a_kill_reaches_a_running_command(flavour, garden):
    box = await flavour.create(garden)
    handle = await now(box.commands.run("sleep 1000", background=True, timeout=0))
    await now(box.kill())
    with pytest.raises(TimeoutException, match="sandbox was killed or reached its end of life"):
        await now(handle.wait())


@covers(
    "Sandbox.create_snapshot",
    "Sandbox.list_snapshots",
    "Sandbox.delete_snapshot",
    "SnapshotPaginator.next_items",
    "SnapshotPaginator.has_next",
    "SnapshotPaginator.next_token",
)
async def test_a_snapshot_outlives_its_sandbox(flavour, garden):
    box = await flavour.create(garden)
    await now(box.files.write("/home/user/state", "one"))
    name = unique("snap")
    named = await now(box.create_snapshot(name))
    garden.remove_later(f"/templates/{named.snapshot_id.replace('/', '%2F').replace(':', '%3A')}")
    assert any(name in full for full in named.names) and await now(box.is_running())
    await now(box.files.write("/home/user/state", "two"))
    plain = await now(flavour.Sandbox.create_snapshot(box.sandbox_id))
    garden.remove_later(f"/templates/{plain.snapshot_id.replace('/', '%2F').replace(':', '%3A')}")
    assert plain.snapshot_id != named.snapshot_id

    async def listed(paginator) -> list[str]:
        found = []
        while paginator.has_next:
            found += [snapshot.snapshot_id for snapshot in await now(paginator.next_items())]
        assert paginator.next_token is None
        return found

    both = {named.snapshot_id, plain.snapshot_id}
    assert set(await listed(box.list_snapshots(limit=1))) == both
    assert both <= set(await listed(flavour.Sandbox.list_snapshots()))
    assert await listed(flavour.Sandbox.list_snapshots(name=name)) == [named.snapshot_id]
    await now(box.kill())
    for snapshot, state in ((named, "one"), (plain, "two")):
        copy = await flavour.create(garden, snapshot.snapshot_id)
        assert copy.sandbox_id != box.sandbox_id and access_token(copy) != access_token(box)
        assert await now(copy.files.read("/home/user/state")) == state
        await now(copy.kill())
    for snapshot in (named, plain):
        assert await now(flavour.Sandbox.delete_snapshot(snapshot.snapshot_id)) is True
        assert await now(flavour.Sandbox.delete_snapshot(snapshot.snapshot_id)) is False
    with refused(404):
        await now(flavour.Sandbox.create(plain.snapshot_id))


async def test_a_snapshot_of_files_alone(flavour, garden):
    box = await flavour.create(garden)
    await now(box.files.write("/home/user/state", "one"))
    taken = await now(box.create_snapshot(mode="filesystem"))
    garden.remove_later(f"/templates/{taken.snapshot_id.replace('/', '%2F').replace(':', '%3A')}")
    copy = await flavour.create(garden, taken.snapshot_id)
    assert await now(copy.files.read("/home/user/state")) == "one"


@covers("Sandbox.fork")
async def test_forks_part_ways(flavour, garden, settings):
    box = await flavour.create(garden, metadata={"kind": "source"})
    await now(box.files.write("/home/user/state", "shared"))
    forks = await now(box.fork(timeout=120, count=2))
    assert len(forks) == 2
    for fork in forks:
        assert not isinstance(fork, Exception), fork
        garden.adopt(fork)
    everyone = [box, *forks]
    assert len({each.sandbox_id for each in everyone}) == 3
    assert len({access_token(each) for each in everyone}) == 3, "a token of its own for each"
    for n, each in enumerate(everyone):
        assert await now(each.files.read("/home/user/state")) == "shared"
        await now(each.files.write("/home/user/state", str(n)))
    for n, each in enumerate(everyone):
        assert await now(each.files.read("/home/user/state")) == str(n)
    ends = (await now(forks[0].get_info())).end_at
    assert abs((ends - moment()).total_seconds() - 120) < 10
    with settings.port(forks[0], ENVD_PORT, **{"X-Access-Token": access_token(box)}) as source:
        assert source.get("/files", params={"path": "/home/user/state"}).status_code == 401
    for fork in forks:
        await now(fork.kill())
    assert await now(box.is_running()) is True
    await now(box.pause())
    with refused(409):
        await now(box.fork())
    with pytest.raises(SandboxNotFoundException):
        await now(flavour.Sandbox.fork(UNKNOWN_ID))
    with pytest.raises(InvalidArgumentException):
        await now(box.fork(count=0))


async def test_the_daemon_of_a_paused_sandbox_is_not_found(plain_paused, settings):
    with settings.port(plain_paused, ENVD_PORT) as http:
        for path in ("/health", "/files?path=/tmp"):
            answer = http.get(path)
            assert_error(answer, 502, "was not found")
            assert answer.json()["sandboxId"] == plain_paused.sandbox_id


@pytest.fixture
def plain_paused(garden):
    box = garden.create()
    box.pause()
    return box


def test_the_old_routes_resume_too(plain_paused, http):
    sandbox_id = plain_paused.sandbox_id
    answer = http.post(f"/sandboxes/{sandbox_id}/resume", json={"timeout": 90})
    assert answer.status_code == 201 and answer.json()["sandboxID"] == sandbox_id, answer.text
    assert_error(http.post(f"/sandboxes/{sandbox_id}/resume", json={"timeout": 90}), 409)
    assert http.post(f"/sandboxes/{sandbox_id}/connect", json={"timeout": 90}).status_code == 200
    assert http.post(f"/sandboxes/{sandbox_id}/refreshes", json={"duration": 500}).status_code == 204
    ends = plain_paused.get_info().end_at
    assert abs((ends - moment()).total_seconds() - 500) < 5
    assert http.post(f"/sandboxes/{sandbox_id}/pause").status_code == 204
    assert_error(http.post(f"/sandboxes/{sandbox_id}/pause"), 409)
    assert http.post(f"/sandboxes/{sandbox_id}/connect", json={"timeout": 90}).status_code == 201


def test_a_strict_pause_is_a_pause(garden, settings):
    box = garden.create()
    assert box.pause(strict=True) is True
    assert state_of(settings, box.sandbox_id) == "paused"
    with pytest.raises((SandboxException, httpx.HTTPError)):
        box.files.read("/tmp/x")
