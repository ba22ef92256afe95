"""The service layer below the blocking SDK's classes, called directly."""

from __future__ import annotations

from datetime import timedelta

import pytest
from opensandbox.models.sandboxes import (
    CreateSnapshotRequest,
    SandboxFilter,
    SandboxImageSpec,
    SnapshotFilter,
)
from opensandbox.models.templates import CreateTemplateRequest, TemplateFilter
from opensandbox.sync.adapters.factory import AdapterFactorySync
from support import DEFAULT_ENTRYPOINT, EXECD_PORT, now, refused, state_of, unique, until
from surface import covers


@pytest.fixture
def service(settings):
    config = settings.config().with_transport_if_missing()
    yield AdapterFactorySync(config).create_sandbox_service()
    config.close_transport_if_owned()


def wanted_sandbox(settings, label) -> dict:
    return dict(
        spec=SandboxImageSpec(settings.image),
        entrypoint=DEFAULT_ENTRYPOINT,
        env={},
        metadata={"service": label},
        timeout=timedelta(minutes=5),
        resource={"cpu": "1", "memory": "256Mi"},
        network_policy=None,
        extensions={},
        volumes=None,
    )


@covers(
    "SandboxesSync.create_sandbox",
    "SandboxesSync.get_sandbox_info",
    "SandboxesSync.list_sandboxes",
    "SandboxesSync.patch_sandbox_metadata",
    "SandboxesSync.get_sandbox_endpoint",
    "SandboxesSync.get_signed_sandbox_endpoint",
    "SandboxesSync.invalidate_endpoint_cache",
    "SandboxesSync.renew_sandbox_expiration",
    "SandboxesSync.pause_sandbox",
    "SandboxesSync.resume_sandbox",
    "SandboxesSync.kill_sandbox",
)
def test_lifecycle_calls(service, settings, garden):
    label = unique()
    sandbox_id = garden.adopt(service.create_sandbox(**wanted_sandbox(settings, label)).id)
    until(lambda: service.get_sandbox_info(sandbox_id).status.state == "Running", what="Running")
    listed = service.list_sandboxes(SandboxFilter(metadata={"service": label}))
    assert [info.id for info in listed.sandbox_infos] == [sandbox_id]
    assert service.patch_sandbox_metadata(sandbox_id, {"service": None}).metadata in (None, {})
    direct = service.get_sandbox_endpoint(sandbox_id, EXECD_PORT)
    service.invalidate_endpoint_cache(sandbox_id)
    assert service.get_sandbox_endpoint(sandbox_id, EXECD_PORT) == direct
    proxied = service.get_sandbox_endpoint(sandbox_id, EXECD_PORT, True).endpoint
    assert proxied == f"{settings.domain}/v1/sandboxes/{sandbox_id}/proxy/{EXECD_PORT}"
    with refused(400, ("SANDBOX::INVALID_PARAMETER", "SANDBOX::API_NOT_SUPPORTED")):
        service.get_signed_sandbox_endpoint(sandbox_id, EXECD_PORT, 4102444800, True)
    wanted = now() + timedelta(hours=2)
    renewed = service.renew_sandbox_expiration(sandbox_id, wanted).expires_at
    assert abs(renewed - wanted) < timedelta(seconds=1)
    service.pause_sandbox(sandbox_id)
    until(lambda: state_of(settings, sandbox_id) == "Paused", what="Paused")
    service.resume_sandbox(sandbox_id)
    until(lambda: state_of(settings, sandbox_id) == "Running", what="Running")
    service.kill_sandbox(sandbox_id)
    until(lambda: state_of(settings, sandbox_id) == "Gone", what="gone")


@covers(
    "SandboxesSync.create_snapshot",
    "SandboxesSync.get_snapshot",
    "SandboxesSync.list_snapshots",
    "SandboxesSync.delete_snapshot",
)
def test_snapshot_calls(service, settings, garden):
    sandbox_id = garden.adopt(service.create_sandbox(**wanted_sandbox(settings, unique())).id)
    until(lambda: service.get_sandbox_info(sandbox_id).status.state == "Running", what="Running")
    taken = service.create_snapshot(sandbox_id, CreateSnapshotRequest(name="s"))
    until(lambda: service.get_snapshot(taken.id).status.state == "Ready", what="Ready")
    listed = service.list_snapshots(SnapshotFilter(sandbox_id=sandbox_id))
    assert [info.id for info in listed.snapshot_infos] == [taken.id]
    service.delete_snapshot(taken.id)
    with refused(404, "SNAPSHOT::NOT_FOUND"):
        service.get_snapshot(taken.id)


@covers(
    "SandboxesSync.create_sandbox_from_template",
    "SandboxesSync.create_template",
    "SandboxesSync.get_template",
    "SandboxesSync.list_templates",
    "SandboxesSync.delete_template",
)
def test_template_calls_are_refused(service):
    for call in (
        lambda: service.create_sandbox_from_template("tpl_none", timedelta(minutes=5)),
        lambda: service.create_template(CreateTemplateRequest(image="base", publish="s3://b/p")),
        lambda: service.get_template("tpl_none"),
        lambda: service.list_templates(TemplateFilter()),
        lambda: service.delete_template("tpl_none"),
    ):
        with refused(501, "FSB::API_NOT_SUPPORTED"):
            call()
