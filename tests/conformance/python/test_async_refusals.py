"""What the asyncio SDK offers and this server refuses: isolation, egress rules, vault."""

from __future__ import annotations

import pytest
from opensandbox import Sandbox
from opensandbox.adapters.factory import AdapterFactory
from opensandbox.adapters.isolated_adapter import IsolationSessionHandle
from opensandbox.models.isolated import (
    CreateIsolatedSessionRequest,
    IsolatedSessionInfo,
    IsolatedWorkspaceSpec,
)
from opensandbox.models.sandboxes import NetworkRule
from opensandbox.transport import RetryPolicy
from support import refused
from surface import covers

SESSION = "00000000-0000-4000-8000-000000000000"
REQUEST = CreateIsolatedSessionRequest(workspace=IsolatedWorkspaceSpec(path="/tmp"))


@pytest.fixture
async def impatient(abox, settings):
    """The shared sandbox through a client that does not repeat a 503."""
    config = settings.async_config(retry_policy=RetryPolicy.disabled())
    sandbox = await Sandbox.connect(abox.id, connection_config=config)
    yield sandbox
    await sandbox.close()


@covers(
    "Sandbox.isolation",
    "IsolationService.capabilities",
    "IsolationService.create",
    "IsolationService.attach",
    "IsolationService.list",
    "IsolationService.run_once",
    "IsolationService.session",
)
async def test_isolation(impatient):
    isolation = impatient.isolation
    about = await isolation.capabilities()
    assert about.available is False and about.message

    async def in_session():
        async with isolation.session(REQUEST):
            raise AssertionError("there is no session to enter")

    for call in (
        lambda: isolation.create(REQUEST),
        lambda: isolation.attach(SESSION),
        lambda: isolation.list(),
        lambda: isolation.run_once("echo no", workspace="/tmp"),
        in_session,
    ):
        with refused(503):
            await call()


@covers(
    "IsolationSession.session_id",
    "IsolationSession.info",
    "IsolationSession.files",
    "IsolationSession.run",
    "IsolationSession.run_background",
    "IsolationSession.run_status",
    "IsolationSession.run_logs",
    "IsolationSession.get",
    "IsolationSession.delete",
)
async def test_isolated_session_handle(impatient):
    handle = IsolationSessionHandle(IsolatedSessionInfo(session_id=SESSION), impatient.isolation)
    assert handle.session_id == handle.info.session_id == SESSION
    for call in (
        lambda: handle.run("echo no"),
        lambda: handle.run_background("echo no"),
        lambda: handle.run_status("r"),
        lambda: handle.run_logs("r"),
        lambda: handle.get(),
        lambda: handle.delete(),
        lambda: handle.files.read_file("/tmp/x"),
    ):
        with refused(503):
            await call()


@covers(
    "Sandbox.credential_vault",
    "Egress.get_policy",
    "Egress.patch_rules",
    "Egress.delete_rules",
    *(
        f"{service}.{method}"
        for service in ("CredentialVault", "Egress")
        for method in (
            "create",
            "get",
            "patch",
            "delete",
            "list_credentials",
            "get_credential",
            "list_bindings",
            "get_binding",
        )
    ),
)
async def test_egress_and_vault(impatient, settings):
    config = impatient.connection_config
    egress = AdapterFactory(config).create_egress_service(await impatient.get_endpoint(18080))
    assert (await egress.get_policy()).default_action == settings.egress
    rule = NetworkRule(action="deny", target="example.com")
    for call in (lambda: egress.patch_rules([rule]), lambda: egress.delete_rules(["example.com"])):
        with refused((400, 405, 409, 501, 503)):
            await call()
    vault = impatient.credential_vault
    credential = {"name": "token", "source": {"type": "inline", "value": "s3cret"}}
    for call in (
        lambda: vault.create(credentials=[credential], bindings=[]),
        lambda: vault.get(),
        lambda: vault.patch(credentials={"add": [credential]}),
        lambda: vault.delete(),
        lambda: vault.list_credentials(),
        lambda: vault.get_credential("token"),
        lambda: vault.list_bindings(),
        lambda: vault.get_binding("b"),
    ):
        with refused((400, 404, 405, 409, 501, 503)) as caught:
            await call()
        assert "s3cret" not in str(caught.value)
