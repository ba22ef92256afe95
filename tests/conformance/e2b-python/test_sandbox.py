"""Making, looking at, finding, prolonging and killing sandboxes."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest
from e2b import E2B, SandboxQuery, SandboxState
from e2b_code_interpreter import (
    AuthenticationException,
    InvalidArgumentException,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
)
from packaging.version import Version
from support import UNKNOWN_ID, access_token, moment, now, refused, state_of, unique, until, until_async
from surface import covers


@covers(
    "Sandbox.create",
    "Sandbox.get_info",
    "Sandbox.is_running",
    "Sandbox.kill",
    "Sandbox.sandbox_id",
    "Sandbox.connection_config",
    "Sandbox.envd_api_url",
    "Sandbox.envd_direct_url",
    "Sandbox.sandbox_domain",
    "Sandbox.traffic_access_token",
    "Sandbox.commands",
    "Sandbox.files",
)
async def test_life_of_a_sandbox(flavour, garden, settings):
    before = moment()
    box = await flavour.create(
        garden, timeout=120, metadata={"who": "me", "a b": "c&d=e"}, envs={"GREETING": "hi there"}
    )
    assert box.sandbox_id.isalnum() and box.sandbox_id == box.sandbox_id.lower()
    assert box.connection_config.api_url.rstrip("/") == settings.url
    assert box.envd_api_url.rstrip("/") == box.envd_direct_url.rstrip("/") == settings.url
    assert box.sandbox_domain and "/" not in box.sandbox_domain
    assert box.traffic_access_token is None
    assert access_token(box), "every sandbox of this API is secured"
    info = await now(box.get_info())
    assert (info.sandbox_id, info.state) == (box.sandbox_id, "running")
    assert info.metadata == {"who": "me", "a b": "c&d=e"}
    assert info.template_id and info.name == "base"
    assert info.cpu_count >= 1 and info.memory_mb >= 128
    assert Version(info.envd_version) >= Version("0.6.4")
    assert info.volume_mounts == [] and info.lifecycle == {"on_timeout": "kill", "auto_resume": False}
    assert before - timedelta(seconds=1) <= info.started_at <= moment() + timedelta(seconds=1)
    assert timedelta(seconds=115) < info.end_at - info.started_at < timedelta(seconds=125)
    assert await now(box.is_running()) is True
    assert (await now(box.commands.run("echo $GREETING; whoami; pwd"))).stdout.split("\n")[:3] == [
        "hi there",
        "user",
        "/home/user",
    ]
    assert (await now(box.files.write("mark", "x"))).path == "/home/user/mark"
    assert await now(box.kill()) is True
    assert await now(box.is_running()) is False
    assert await now(box.kill()) is False
    assert state_of(settings, box.sandbox_id) == "gone"
    with pytest.raises(SandboxNotRunningException):
        await now(box.commands.run("true"))


async def test_the_class_forms_take_an_id(flavour, garden):
    box = await flavour.create(garden)
    Sandbox, sandbox_id = flavour.Sandbox, box.sandbox_id
    assert (await now(Sandbox.get_info(sandbox_id))).sandbox_id == sandbox_id
    await now(Sandbox.set_timeout(sandbox_id, 600))
    ends = (await now(Sandbox.get_info(sandbox_id))).end_at
    assert abs((ends - moment()).total_seconds() - 600) < 5
    assert await now(Sandbox.kill(sandbox_id)) is True
    assert await now(Sandbox.kill(sandbox_id)) is False
    for call in (
        lambda: Sandbox.get_info(sandbox_id),
        lambda: Sandbox.set_timeout(sandbox_id, 10),
        lambda: Sandbox.connect(sandbox_id),
        lambda: Sandbox.get_metrics(sandbox_id),
        lambda: Sandbox.pause(sandbox_id),
        lambda: Sandbox.fork(sandbox_id),
        lambda: Sandbox.create_snapshot(sandbox_id),
    ):
        with pytest.raises(SandboxNotFoundException):
            await now(call())


async def test_leaving_the_block_kills(flavour, garden, settings):
    if flavour.name == "sync":
        with flavour.Sandbox.create("base") as box:
            garden.adopt(box)
            assert box.is_running()
    else:
        async with await flavour.Sandbox.create("base") as box:
            garden.adopt(box)
            assert await box.is_running()
    assert state_of(settings, box.sandbox_id) == "gone"


async def test_defaults(flavour, garden):
    """Nothing given: the template of the package and five minutes."""
    box = await now(flavour.Sandbox.create())
    garden.adopt(box)
    info = await now(box.get_info())
    assert info.name in ("code-interpreter-v1", "code-interpreter")
    assert timedelta(seconds=295) < info.end_at - info.started_at < timedelta(seconds=305)
    assert info.metadata == {}


@covers("Sandbox.set_timeout")
async def test_set_timeout_prolongs_and_shortens(flavour, garden, settings):
    box = await flavour.create(garden)
    for seconds in (900, 30):
        await now(box.set_timeout(seconds))
        ends = (await now(box.get_info())).end_at
        assert abs((ends - moment()).total_seconds() - seconds) < 5
    await now(box.set_timeout(0))
    until(lambda: state_of(settings, box.sandbox_id) == "gone", what="the end")
    assert await now(box.is_running()) is False
    with pytest.raises(SandboxNotFoundException):
        await now(box.set_timeout(60))


async def test_a_short_life_ends_by_itself(flavour, garden, settings):
    box = await flavour.create(garden, timeout=2)
    assert await now(box.is_running()) is True
    until(lambda: state_of(settings, box.sandbox_id) == "gone", within=10, what="the end")


@covers("Sandbox.connect")
async def test_connect_shares_one_sandbox_and_never_shortens_its_life(flavour, garden):
    box = await flavour.create(garden, timeout=600)
    ends = (await now(box.get_info())).end_at
    again = await now(flavour.Sandbox.connect(box.sandbox_id, timeout=30))
    assert again.sandbox_id == box.sandbox_id and access_token(again) == access_token(box)
    assert (await now(box.get_info())).end_at == ends
    await now(again.files.write("/tmp/shared", "one sandbox"))
    assert await now(box.files.read("/tmp/shared")) == "one sandbox"
    assert await now(box.connect(timeout=1200)) is box
    longer = (await now(box.get_info())).end_at
    assert abs((longer - moment()).total_seconds() - 1200) < 5
    with pytest.raises(SandboxNotFoundException):
        await now(flavour.Sandbox.connect(UNKNOWN_ID))


@covers(
    "Sandbox.list",
    "SandboxPaginator.next_items",
    "SandboxPaginator.has_next",
    "SandboxPaginator.next_token",
)
async def test_list_filters_orders_and_pages(flavour, garden):
    label = unique("list")
    boxes = [await flavour.create(garden, metadata={"case": label, "n o": str(n)}) for n in range(3)]
    ids = [box.sandbox_id for box in boxes]
    await now(boxes[0].pause())
    mine = SandboxQuery(metadata={"case": label})

    async def listed(**options) -> list[str]:
        found, paginator = [], flavour.Sandbox.list(**options)
        while paginator.has_next:
            found += [info.sandbox_id for info in await now(paginator.next_items())]
        assert paginator.next_token is None
        return found

    assert sorted(await listed(query=mine)) == sorted(ids)
    assert await listed(query=mine, limit=1, order="asc") == (await listed(query=mine, limit=2))[::-1]
    assert await listed(query=SandboxQuery(metadata={"case": label, "n o": "1"})) == [ids[1]]
    assert await listed(query=SandboxQuery(metadata={"case": label, "n o": "x"})) == []
    assert await listed(query=SandboxQuery(metadata={"case": label}, state=[SandboxState.PAUSED])) == [ids[0]]
    running = SandboxQuery(metadata={"case": label}, state=[SandboxState.RUNNING])
    assert await listed(query=running) == [ids[2], ids[1]]
    both = SandboxQuery(metadata={"case": label}, state=[SandboxState.RUNNING, SandboxState.PAUSED], template="base")
    assert sorted(await listed(query=both)) == sorted(ids)
    assert await listed(query=SandboxQuery(metadata={"case": label}, template="no-such-template")) == []
    middle = (await now(boxes[1].get_info())).started_at
    late = SandboxQuery(metadata={"case": label}, state=[SandboxState.RUNNING], started_after=middle)
    assert await listed(query=late) == [ids[2], ids[1]]
    first = flavour.Sandbox.list(query=running, limit=1)
    assert [info.sandbox_id for info in await now(first.next_items())] == [ids[2]]
    assert first.has_next and first.next_token
    rest = flavour.Sandbox.list(query=running, limit=1, next_token=first.next_token)
    page = await now(rest.next_items())
    assert [info.sandbox_id for info in page] == [ids[1]] and page[0].metadata["n o"] == "1"
    with pytest.raises(SandboxException) as caught:
        await now(flavour.Sandbox.list(next_token="garbage").next_items())
    assert caught.value.status_code == 400


async def test_a_killed_sandbox_leaves_the_list_at_once(flavour, garden):
    label = unique("list")
    box = await flavour.create(garden, metadata={"case": label})
    query = SandboxQuery(metadata={"case": label})
    assert len(await now(flavour.Sandbox.list(query=query).next_items())) == 1
    await now(box.kill())
    assert await now(flavour.Sandbox.list(query=query).next_items()) == []


@covers("Sandbox.get_metrics")
async def test_metrics_come_within_seconds(flavour, box):
    started = moment()
    metrics = await until_async(lambda: box.get_metrics(), within=30, what="the first sample")
    for sample in metrics:
        assert sample.cpu_count >= 1 and sample.cpu_used_pct >= 0
        assert 0 < sample.mem_used <= sample.mem_total and sample.mem_cache >= 0
        assert 0 <= sample.disk_used <= sample.disk_total and sample.disk_total > 0
    times = [sample.timestamp for sample in metrics]
    assert times == sorted(times)
    long_ago = started - timedelta(days=2)
    assert await now(box.get_metrics(start=long_ago, end=long_ago + timedelta(hours=1))) == []
    again = await now(flavour.Sandbox.get_metrics(box.sandbox_id, start=started - timedelta(minutes=5)))
    assert len(again) >= len(metrics)


@covers("Sandbox.get_host")
async def test_the_host_names_port_and_sandbox(box):
    host = box.get_host(3000)
    assert host == f"3000-{box.sandbox_id}.{box.sandbox_domain}"


async def test_unknown_templates_are_named(flavour):
    name = unique("missing")
    with refused(404) as caught:
        await now(flavour.Sandbox.create(name))
    assert name in str(caught.value)
    with refused(404):
        await now(flavour.Sandbox.create("base:no-such-tag"))
    with refused(400):
        await now(flavour.Sandbox.create("No Good/Name:x:y"))


@pytest.mark.parametrize("timeout", [-1, 0, 10**9])
async def test_impossible_lifetimes_are_refused(flavour, timeout):
    with refused(400):
        await now(flavour.Sandbox.create("base", timeout=timeout))


async def test_a_wrong_key_is_refused(flavour):
    for key in ("e2b_" + "0" * 40, "nonsense"):
        with pytest.raises(AuthenticationException):
            await now(flavour.Sandbox.create("base", api_key=key))
        with pytest.raises(AuthenticationException):
            await now(flavour.Sandbox.list(api_key=key).next_items())


async def test_one_key_makes_one_sandbox(flavour, garden):
    """The same idempotency key and body give the same sandbox, another body is refused."""
    key, label = unique("key"), unique("idem")
    options = {"metadata": {"case": label}, "idempotency_key": key}
    first = await flavour.create(garden, **options)
    again = await flavour.create(garden, **options)
    assert again.sandbox_id == first.sandbox_id and access_token(again) == access_token(first)
    assert len(await now(flavour.Sandbox.list(query=SandboxQuery(metadata={"case": label})).next_items())) == 1
    with refused(422):
        await now(flavour.Sandbox.create("base", metadata={"case": "other"}, idempotency_key=key))
    with pytest.raises(InvalidArgumentException):
        await now(flavour.Sandbox.create("base", idempotency_key="Not Allowed"))
    other = await flavour.create(garden, metadata={"case": label}, idempotency_key=unique("key"))
    assert other.sandbox_id != first.sandbox_id


async def test_one_key_at_the_same_time(garden, settings):
    """A race of the same request: one sandbox, and whoever comes second may be told to wait."""
    sandboxes, label = [], unique("race")
    body = {"templateID": "base", "metadata": {"case": label}}
    headers = {"Idempotency-Key": unique("key")}

    def one():
        with settings.raw() as http:
            return http.post("/v2/sandboxes", json=body, headers=headers)

    for answer in await asyncio.gather(*(asyncio.to_thread(one) for _ in range(6))):
        assert answer.status_code in (201, 409), answer.text
        if answer.status_code == 201:
            sandboxes.append(answer.json()["sandboxID"])
            garden.adopt(sandboxes[-1])
    assert sandboxes and len(set(sandboxes)) == 1


async def test_many_at_once(garden):
    from e2b_code_interpreter import AsyncSandbox

    async def one(n: int) -> str:
        box = garden.adopt(await AsyncSandbox.create("base"))
        said = (await box.commands.run(f"echo {n}")).stdout
        await box.kill()
        return said

    assert await asyncio.gather(*(one(n) for n in range(8))) == [f"{n}\n" for n in range(8)]


async def test_a_bound_client_needs_no_environment(garden, settings, monkeypatch):
    for name in ("E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL"):
        monkeypatch.delenv(name)
    client = E2B(api_key=settings.key, api_url=settings.url, sandbox_url=settings.url)
    box = garden.adopt(client.Sandbox.create("base"))
    assert box.commands.run("echo bound").stdout == "bound\n"
    assert client.Template.exists("base")
    again = await client.AsyncSandbox.connect(box.sandbox_id)
    assert (await again.commands.run("echo again")).stdout == "again\n"


async def test_a_trailing_slash_and_a_logger_do_no_harm(flavour, garden, settings):
    log = logging.getLogger(unique("log"))
    box = await flavour.create(garden, sandbox_url=f"{settings.url}/", logger=log)
    assert (await now(box.commands.run("echo slash"))).stdout == "slash\n"
    assert await now(box.files.read((await now(box.files.write("/tmp/s", "ok"))).path)) == "ok"


async def test_envs_and_identity_of_the_sandbox(box):
    said = (await now(box.commands.run("echo $E2B_SANDBOX $E2B_SANDBOX_ID; id -un; id -gn; sudo id -u"))).stdout
    assert said.split("\n")[:4] == [f"true {box.sandbox_id}", "user", "user", "0"]


@covers("Sandbox.get_mcp_url", "Sandbox.get_mcp_token")
async def test_mcp_needs_a_template_that_is_not_here(flavour, box):
    with refused(404) as caught:
        await now(flavour.Sandbox.create(mcp={"exa": {"apiKey": "x"}}))
    assert "mcp-gateway" in str(caught.value)
    assert box.get_mcp_url() == f"https://{box.get_host(50005)}/mcp"
    await now(box.files.write("/etc/mcp-gateway/.token", "tok", user="root"))
    assert await now(box.get_mcp_token()) == "tok"
