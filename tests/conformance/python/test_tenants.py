"""Two tenants: neither sees, lists, changes, runs in, or reaches the other's sandboxes."""

from __future__ import annotations

import http.client
from datetime import timedelta

import httpx
import pytest
from opensandbox import SandboxSync
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.sandboxes import SandboxFilter, SnapshotFilter
from support import (
    EXECD_PORT,
    UNKNOWN_ID,
    assert_error,
    create_body,
    manager_of,
    out,
    refused,
    state_of,
    unique,
    until,
)

PORT = 8321


@pytest.fixture(scope="module")
def label() -> str:
    return unique("tenant")


@pytest.fixture(scope="module")
def mine(module_garden, label):
    """A sandbox of tenant A with a web server in it."""
    box = module_garden.create(metadata={"owner": label})
    box.files.write_file("/srv/www/secret.txt", "only for A")
    box.commands.run(
        f"python3 -m http.server {PORT} --bind 127.0.0.1 --directory /srv/www",
        opts=RunCommandOpts(background=True),
    )
    probe = f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{PORT}'"
    until(lambda: box.commands.run(probe).exit_code == 0, what="the web server")
    return box


@pytest.fixture
def stranger(settings):
    """The manager of tenant B."""
    with manager_of(settings, settings.other_key) as made:
        yield made


def test_each_lists_only_its_own(settings, garden, manager, stranger, mine, label):
    theirs = garden.create(key=settings.other_key, metadata={"owner": label})
    both = SandboxFilter(metadata={"owner": label})
    for who, expected in ((manager, mine.id), (stranger, theirs.id)):
        listed = who.list_sandbox_infos(both)
        assert [info.id for info in listed.sandbox_infos] == [expected]
        assert listed.pagination.total_items == 1
    everything = stranger.list_sandbox_infos(SandboxFilter(page_size=200)).sandbox_infos
    assert mine.id not in {info.id for info in everything}


def test_another_tenants_sandbox_does_not_exist(stranger, mine, settings):
    for call in (
        lambda: stranger.get_sandbox_info(mine.id),
        lambda: stranger.patch_sandbox_metadata(mine.id, {"owner": "b"}),
        lambda: stranger.renew_sandbox(mine.id, timedelta(seconds=61)),
        lambda: stranger.pause_sandbox(mine.id),
        lambda: stranger.resume_sandbox(mine.id),
        lambda: stranger.create_snapshot(mine.id),
        lambda: stranger.get_diagnostic_logs(mine.id, "container"),
        lambda: stranger.get_diagnostic_events(mine.id, "runtime"),
        lambda: stranger.kill_sandbox(mine.id),
        lambda: SandboxSync.connect(mine.id, connection_config=settings.config(settings.other_key)),
        lambda: SandboxSync.resume(mine.id, connection_config=settings.config(settings.other_key)),
    ):
        with refused(404, "SANDBOX_NOT_FOUND"):
            call()
    assert state_of(settings, mine.id) == "Running"
    assert out(mine.commands.run("echo untouched")) == "untouched"


def test_foreign_and_unknown_ids_answer_alike(mine, settings):
    """Otherwise ids could be probed."""
    with settings.raw(settings.other_key) as b:
        foreign = b.get(f"/v1/sandboxes/{mine.id}")
        unknown = b.get(f"/v1/sandboxes/{UNKNOWN_ID}")
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.json()["code"] == unknown.json()["code"]
    assert foreign.json()["message"].replace(mine.id, "") == unknown.json()["message"].replace(UNKNOWN_ID, "")


@pytest.mark.parametrize("port", [PORT, EXECD_PORT, 18080])
def test_the_proxy_is_closed_to_others(mine, settings, port):
    path = {PORT: "secret.txt", EXECD_PORT: "ping", 18080: "policy"}[port]
    url = f"/v1/sandboxes/{mine.id}/proxy/{port}/{path}"
    with settings.raw() as a:
        assert a.get(url).status_code == 200
    with settings.raw(settings.other_key) as b:
        assert_error(b.get(url), 404, "SANDBOX_NOT_FOUND")
        assert_error(b.get(f"/v1/sandboxes/{mine.id}/endpoints/{port}"), 404, "SANDBOX_NOT_FOUND")


def test_running_a_command_through_the_proxy_is_closed_to_others(mine, settings):
    with settings.raw(settings.other_key) as b:
        answer = b.post(
            f"/v1/sandboxes/{mine.id}/proxy/{EXECD_PORT}/command",
            json={"command": "touch /tmp/intruder"},
        )
    assert_error(answer, 404, "SANDBOX_NOT_FOUND")
    assert mine.commands.run("test -e /tmp/intruder").exit_code == 1


def test_an_endpoint_of_one_sandbox_does_not_open_another(mine, garden, settings):
    """Headers of B's own endpoint are worth nothing at A's address."""
    theirs = garden.create(key=settings.other_key)
    own = theirs.get_endpoint(EXECD_PORT)
    target = mine.get_endpoint(EXECD_PORT)
    if own.headers or target.headers:
        url = f"http://{target.endpoint}/files/download?path=/srv/www/secret.txt"
        answer = httpx.get(url, headers=own.headers)
        assert "only for A" not in answer.text
    assert target.endpoint != own.endpoint or target.headers != own.headers


def test_dots_in_a_path_do_not_leave_the_own_sandbox(mine, garden, settings):
    theirs = garden.create(key=settings.other_key)
    host, port = settings.domain.rsplit(":", 1)
    for climb in (
        f"/v1/sandboxes/{theirs.id}/proxy/{PORT}/../../../{mine.id}/proxy/{PORT}/secret.txt",
        f"/v1/sandboxes/{theirs.id}/proxy/{PORT}/..%2f..%2f..%2f{mine.id}/proxy/{PORT}/secret.txt",
        f"/v1/sandboxes/{theirs.id}%2f..%2f{mine.id}/proxy/{PORT}/secret.txt",
    ):
        connection = http.client.HTTPConnection(host, int(port), timeout=15)
        connection.request("GET", climb, headers={"OPEN-SANDBOX-API-KEY": settings.other_key})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        connection.close()
        assert answer.status >= 400 and "only for A" not in text, climb


def test_snapshots_belong_to_their_tenant(mine, manager, stranger, garden, settings):
    taken = mine.create_snapshot(unique("snap"))
    until(lambda: manager.get_snapshot(taken.id).status.state == "Ready", what="Ready")
    try:
        listed = stranger.list_snapshots(SnapshotFilter(sandbox_id=mine.id))
        assert listed.snapshot_infos == [] and listed.pagination.total_items == 0
        for call in (
            lambda: stranger.get_snapshot(taken.id),
            lambda: stranger.delete_snapshot(taken.id),
            lambda: garden.create(snapshot_id=taken.id, key=settings.other_key),
        ):
            with refused(404, "SNAPSHOT::NOT_FOUND"):
                call()
        with settings.raw(settings.other_key) as b:
            body = create_body(settings, image=None, snapshotId=taken.id)
            assert_error(b.post("/v1/sandboxes", json=body), 404, "SNAPSHOT::NOT_FOUND")
    finally:
        manager.delete_snapshot(taken.id)
