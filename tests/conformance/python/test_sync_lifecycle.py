"""Creation, inspection, listing and removal with the blocking SDK."""

from __future__ import annotations

import platform
import re
from datetime import timedelta

import pytest
from opensandbox import SandboxSync
from opensandbox.exceptions import (
    InvalidArgumentException,
    SandboxApiException,
    SandboxReadyTimeoutException,
)
from opensandbox.models.sandboxes import PlatformSpec, SandboxFilter, SandboxOrigin
from support import UNKNOWN_ID, create_body, now, out, refused, state_of, unique, until
from surface import covers

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "amd64")


@covers("SandboxSync.create", "SandboxSync.get_info", "SandboxSync.origin")
def test_create_shows_what_was_asked(garden):
    label = unique()
    entrypoint = ["sh", "-c", "echo booted > /tmp/booted; exec sleep infinity"]
    before = now()
    box = garden.create(
        timeout=timedelta(seconds=600),
        env={"GREETING": "hello world", "EMPTY": ""},
        metadata={"team": label, "example.com/tier": "a_b.c"},
        resource={"cpu": "500m", "memory": "256Mi"},
        resource_requests={"cpu": "100m"},
        entrypoint=entrypoint,
        platform=PlatformSpec(os="linux", arch=ARCH),
        extensions={"opensandbox.extensions.note": "kept", "other": "dropped"},
    )
    info = box.get_info()
    assert re.fullmatch(r"[a-z0-9]+", info.id) and info.id == box.id
    assert info.status.state == "Running"
    assert info.image.image == garden.settings.image and info.image.auth is None
    assert info.entrypoint[-3:] == entrypoint
    assert info.metadata == {"team": label, "example.com/tier": "a_b.c"}
    assert info.extensions == {"opensandbox.extensions.note": "kept"}
    assert (info.platform.os, info.platform.arch) == ("linux", ARCH)
    assert before - timedelta(seconds=5) <= info.created_at <= now() + timedelta(seconds=5)
    lifetime = info.expires_at - info.created_at
    assert abs(lifetime - timedelta(seconds=600)) < timedelta(seconds=5)
    assert box.origin == SandboxOrigin.UNKNOWN
    assert out(box.commands.run('echo "$GREETING|${EMPTY-unset}|"')) == "hello world||"
    until(lambda: box.commands.run("cat /tmp/booted").text == "booted", what="the entrypoint ran")


def test_defaults_leave_optional_members_out(garden):
    box = garden.create()
    info = box.get_info()
    assert info.entrypoint[-3:] == ["tail", "-f", "/dev/null"]
    assert info.platform is None and info.extensions is None and info.snapshot_id is None
    assert not info.metadata
    assert info.allocation is None


def test_sandboxes_do_not_share_files(garden):
    first, second = garden.create(), garden.create()
    assert first.id != second.id
    first.files.write_file("/tmp/only-here", "x")
    assert second.commands.run("test -e /tmp/only-here").exit_code == 1


def test_running_means_that_a_command_works_at_once(garden, settings, http):
    answer = http.post("/v1/sandboxes", json=create_body(settings))
    assert answer.status_code == 202, answer.text
    created = answer.json()
    garden.adopt(created["id"])
    assert created["status"]["state"] in ("Pending", "Running")
    assert created["createdAt"].endswith("Z") and created["expiresAt"].endswith("Z")
    assert created["entrypoint"][-3:] == ["tail", "-f", "/dev/null"]
    assert "image" not in created
    until(lambda: state_of(settings, created["id"]) == "Running", what="Running")
    endpoint = http.get(f"/v1/sandboxes/{created['id']}/endpoints/44772").json()
    ran = http.post(
        f"http://{endpoint['endpoint']}/command",
        json={"command": "echo ready"},
        headers=endpoint.get("headers", {}),
    )
    assert ran.status_code == 200 and '"ready"' in ran.text
    assert ran.headers["content-type"].startswith("text/event-stream")


def test_memory_limit_stops_a_greedy_command_but_not_the_sandbox(garden):
    box = garden.create(resource={"cpu": "1", "memory": "256Mi"})
    greedy = box.commands.run("python3 -c \"x = b'x' * (700 << 20)\"")
    assert greedy.exit_code not in (0, None)
    assert out(box.commands.run("echo alive")) == "alive"


@pytest.mark.parametrize(("code", "state"), [(0, "Terminated"), (3, "Failed")])
def test_entrypoint_end_decides_the_state(garden, settings, http, code, state):
    body = create_body(settings, entrypoint=["sh", "-c", f"exit {code}"])
    answer = http.post("/v1/sandboxes", json=body)
    assert answer.status_code == 202, answer.text
    sandbox_id = garden.adopt(answer.json()["id"])
    until(lambda: state_of(settings, sandbox_id) == state, what=f"state {state}")


def test_manual_cleanup_has_no_expiry(garden):
    box = garden.create(timeout=None)
    assert box.get_info().expires_at is None
    with refused(409, "INVALID_EXPIRATION"):
        box.renew(timedelta(minutes=5))


@covers("SandboxSync.patch_metadata")
def test_patch_metadata_merges(garden):
    box = garden.create(metadata={"keep": "1", "change": "2", "drop": "3"})
    info = box.patch_metadata({"change": "two", "drop": None, "add": "4", "absent": None})
    assert info.id == box.id
    assert info.metadata == {"keep": "1", "change": "two", "add": "4"}
    assert box.get_info().metadata == info.metadata
    with refused(400, "INVALID_METADATA_LABEL"):
        box.patch_metadata({"opensandbox.io/id": "x"})
    with refused(400, "INVALID_METADATA_LABEL"):
        box.patch_metadata({"key": "not a label"})
    assert box.get_info().metadata == info.metadata


@covers("SandboxSync.renew")
def test_renew_extends_and_shortens(garden, settings):
    box = garden.create(timeout=timedelta(seconds=120))
    for seconds in (3600, 90):
        wanted = now() + timedelta(seconds=seconds)
        answer = box.renew(timedelta(seconds=seconds))
        assert abs(answer.expires_at - wanted) < timedelta(seconds=5)
        assert box.get_info().expires_at == answer.expires_at
    with refused(400, "INVALID_EXPIRATION"):
        box.renew(timedelta(seconds=-5))
    box.renew(timedelta(seconds=2))
    until(
        lambda: state_of(settings, box.id) in ("Gone", "Terminated"),
        what="the sandbox ends when its time is over",
    )


@covers("SandboxSync.kill")
def test_kill_is_final(garden, settings):
    box = garden.create()
    box.kill()
    until(lambda: state_of(settings, box.id) == "Gone", what="the sandbox is gone")
    assert box.is_healthy() is False
    with refused(404, "SANDBOX_NOT_FOUND"):
        box.get_info()
    with refused(404, "SANDBOX_NOT_FOUND"):
        box.kill()


@covers("SandboxSync.destroy", "SandboxSync.close", "SandboxSync.connection_config")
def test_destroy_removes_and_close_does_not(garden, settings):
    with garden.create() as kept:
        assert kept.connection_config.get_api_key() == settings.key
    kept.close()
    assert state_of(settings, kept.id) == "Running"
    removed = garden.create()
    removed.destroy()
    until(lambda: state_of(settings, removed.id) == "Gone", what="destroy removes the sandbox")


@covers("SandboxSync.connect", "SandboxSync.is_healthy", "SandboxSync.check_ready")
def test_connect_reaches_the_same_sandbox(garden, settings):
    box = garden.create()
    box.files.write_file("/tmp/mark", "same")
    with SandboxSync.connect(box.id, connection_config=settings.config()) as again:
        assert again.is_healthy() is True
        again.check_ready(timedelta(seconds=10), timedelta(milliseconds=50))
        assert again.files.read_file("/tmp/mark") == "same"
    with refused(404, "SANDBOX_NOT_FOUND"):
        SandboxSync.connect(UNKNOWN_ID, connection_config=settings.config())


def test_custom_health_check_that_never_passes_cleans_up(settings, manager):
    label = unique()
    with pytest.raises(SandboxReadyTimeoutException):
        SandboxSync.create(
            settings.image,
            connection_config=settings.config(),
            metadata={"case": label},
            ready_timeout=timedelta(seconds=1),
            health_check=lambda _: False,
        )
    mine = SandboxFilter(metadata={"case": label})
    until(lambda: not manager.list_sandbox_infos(mine).sandbox_infos, what="no sandbox is left")


def test_arguments_are_checked_before_any_request(settings):
    with pytest.raises(InvalidArgumentException):
        SandboxSync.create(connection_config=settings.config())
    with pytest.raises(InvalidArgumentException):
        SandboxSync.connect("", connection_config=settings.config())


def test_request_id_reaches_the_exception(settings):
    wanted = unique("request")
    config = settings.config(headers={"X-Request-ID": wanted})
    with pytest.raises(SandboxApiException) as caught:
        SandboxSync.connect(UNKNOWN_ID, connection_config=config)
    assert caught.value.request_id == wanted
    with pytest.raises(SandboxApiException) as caught:
        SandboxSync.connect(UNKNOWN_ID, connection_config=settings.config())
    assert caught.value.request_id
