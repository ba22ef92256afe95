"""Two tenants: neither sees, lists, changes, runs in, or reaches the other's things."""

from __future__ import annotations

import httpx
import pytest
import pytest_asyncio
from e2b_code_interpreter import SandboxNotFoundException, SandboxQuery, TemplateException
from support import ENVD_PORT, UNKNOWN_ID, access_token, assert_error, now, refused, state_of, unique

LABEL = unique("tenant")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mine(module_garden):
    box = module_garden.create(metadata={"owner": LABEL})
    box.files.write("/home/user/secret", "only for A")
    return box


async def test_each_lists_only_its_own(flavour, garden, settings, mine):
    theirs = await flavour.create(garden, metadata={"owner": LABEL}, api_key=settings.other_key)
    query = SandboxQuery(metadata={"owner": LABEL})
    for key, wanted in ((settings.key, mine), (settings.other_key, theirs)):
        listed = await now(flavour.Sandbox.list(query=query, api_key=key).next_items())
        assert [info.sandbox_id for info in listed] == [wanted.sandbox_id]


async def test_another_tenants_sandbox_does_not_exist(flavour, mine, settings):
    key, Sandbox = {"api_key": settings.other_key}, flavour.Sandbox
    for call in (
        lambda: Sandbox.get_info(mine.sandbox_id, **key),
        lambda: Sandbox.connect(mine.sandbox_id, **key),
        lambda: Sandbox.set_timeout(mine.sandbox_id, 1, **key),
        lambda: Sandbox.pause(mine.sandbox_id, **key),
        lambda: Sandbox.fork(mine.sandbox_id, **key),
        lambda: Sandbox.create_snapshot(mine.sandbox_id, **key),
        lambda: Sandbox.get_metrics(mine.sandbox_id, **key),
        lambda: Sandbox.update_network(mine.sandbox_id, {"deny_out": ["0.0.0.0/0"]}, **key),
    ):
        with pytest.raises(SandboxNotFoundException):
            await now(call())
    assert await now(Sandbox.kill(mine.sandbox_id, **key)) is False
    assert state_of(settings, mine.sandbox_id) == "running"


def test_foreign_and_unknown_ids_answer_alike(mine, settings):
    with settings.raw(settings.other_key) as b:
        foreign, unknown = b.get(f"/sandboxes/{mine.sandbox_id}"), b.get(f"/sandboxes/{UNKNOWN_ID}")
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.json()["message"].replace(mine.sandbox_id, "") == unknown.json()["message"].replace(UNKNOWN_ID, "")


def test_the_daemon_asks_for_the_sandboxes_own_token(mine, garden, settings):
    theirs = garden.create(api_key=settings.other_key)
    for token in (access_token(theirs), settings.key, settings.other_key, "", "x" * 64):
        with settings.port(mine, ENVD_PORT, **{"X-Access-Token": token}) as stranger:
            answer = stranger.get("/files", params={"path": "/home/user/secret"})
            assert answer.status_code == 401 and "only for A" not in answer.text
            listed = stranger.post("/process.Process/List", json={}, headers={"content-type": "application/json"})
            assert listed.status_code == 401, listed.text
    assert theirs.commands.run("ls /home/user").stdout == ""


def test_a_signature_opens_one_sandbox(mine, garden, settings):
    """On one origin a signed address names no sandbox; the signature alone decides."""
    theirs = garden.create(api_key=settings.other_key)
    theirs.files.write("/home/user/secret", "only for B")
    assert httpx.get(theirs.download_url("/home/user/secret")).text == "only for B"
    assert httpx.get(mine.download_url("/home/user/secret")).text == "only for A"
    crossed = httpx.get(
        theirs.download_url("/home/user/secret"),
        headers={"E2b-Sandbox-Id": mine.sandbox_id, "E2b-Sandbox-Port": str(ENVD_PORT)},
    )
    assert crossed.status_code == 401


async def test_snapshots_belong_to_their_tenant(flavour, garden, mine, settings):
    taken = mine.create_snapshot(unique("snap"))
    path = f"/templates/{taken.snapshot_id.replace('/', '%2F').replace(':', '%3A')}"
    garden.remove_later(path)
    key = settings.other_key
    assert await now(flavour.Sandbox.delete_snapshot(taken.snapshot_id, api_key=key)) is False
    listed = await now(flavour.Sandbox.list_snapshots(api_key=key).next_items())
    assert taken.snapshot_id not in [snapshot.snapshot_id for snapshot in listed]
    with refused(403, 404):
        await now(flavour.Sandbox.create(taken.snapshot_id, api_key=key))


async def test_templates_belong_to_their_tenant(flavour, garden, settings):
    Template, name, key = flavour.Template, unique("tpl"), settings.other_key
    info = await now(Template.build(Template().from_template("base").run_cmd("true"), name))
    garden.remove_later(f"/templates/{info.template_id}")
    for reference in (name, info.template_id):
        with refused(403, 404):
            await now(flavour.Sandbox.create(reference, api_key=key))
    with refused(403, 404, error=TemplateException):
        await now(Template.assign_tags(f"{name}:default", "theirs", api_key=key))
    with settings.raw(key) as b:
        assert_error(b.delete(f"/templates/{info.template_id}"), (403, 404))
        assert info.template_id not in [template["templateID"] for template in b.get("/templates").json()]
        status = b.get(f"/templates/{info.template_id}/builds/{info.build_id}/status")
        assert_error(status, (403, 404))


def test_a_key_in_the_other_doors_header_is_the_same_tenant(settings):
    """One key, two protocols: `X-API-Key` here, `OPEN-SANDBOX-API-KEY` there."""
    with settings.raw("") as http:
        for key in (settings.key, settings.other_key):
            assert http.get("/v2/sandboxes", headers={"X-API-Key": key}).status_code == 200
            assert http.get("/v1/sandboxes", headers={"OPEN-SANDBOX-API-KEY": key}).status_code == 200
