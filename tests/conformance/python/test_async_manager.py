"""Manager, services and pool of the asyncio SDK."""

from __future__ import annotations

from datetime import timedelta

import pytest
from opensandbox import (
    AcquirePolicy,
    InMemoryAsyncPoolStateStore,
    PoolCreationSpec,
    PoolDestroyState,
    SandboxManager,
    SandboxPoolAsync,
    SandboxPoolManagerAsync,
)
from opensandbox.adapters.factory import AdapterFactory
from opensandbox.models.sandboxes import (
    CreateSnapshotRequest,
    SandboxFilter,
    SandboxImageSpec,
    SnapshotFilter,
)
from opensandbox.models.templates import CreateTemplateRequest, TemplateFilter
from support import DEFAULT_ENTRYPOINT, EXECD_PORT, now, out, refused, state_of, unique, until, until_async
from surface import covers


@pytest.fixture
async def amanager(settings):
    manager = await SandboxManager.create(settings.async_config())
    yield manager
    await manager.close()


@covers(
    "SandboxManager.create",
    "SandboxManager.close",
    "SandboxManager.connection_config",
    "SandboxManager.list_sandbox_infos",
    "SandboxManager.get_sandbox_info",
    "SandboxManager.patch_sandbox_metadata",
    "SandboxManager.renew_sandbox",
    "SandboxManager.pause_sandbox",
    "SandboxManager.resume_sandbox",
    "SandboxManager.get_diagnostic_logs",
    "SandboxManager.get_diagnostic_events",
    "SandboxManager.kill_sandbox",
)
async def test_manager(settings, garden):
    label = unique()
    sandbox_id = garden.create(metadata={"case": label}).id
    async with await SandboxManager.create(settings.async_config()) as manager:
        assert manager.connection_config.get_api_key() == settings.key
        listed = await manager.list_sandbox_infos(
            SandboxFilter(metadata={"case": label}, states=["running"], page=1, page_size=5)
        )
        assert [info.id for info in listed.sandbox_infos] == [sandbox_id]
        assert listed.pagination.total_items == 1
        tricky = SandboxFilter(metadata={"case": f"{label}&x=y z"})
        assert (await manager.list_sandbox_infos(tricky)).sandbox_infos == []
        assert (await manager.get_sandbox_info(sandbox_id)).metadata == {"case": label}
        patched = await manager.patch_sandbox_metadata(sandbox_id, {"more": "1"})
        assert patched.metadata == {"case": label, "more": "1"}
        renewed = await manager.renew_sandbox(sandbox_id, timedelta(hours=1))
        assert renewed.expires_at > now() + timedelta(minutes=59)
        await manager.pause_sandbox(sandbox_id)
        until(lambda: state_of(settings, sandbox_id) == "Paused", what="Paused")
        await manager.resume_sandbox(sandbox_id)
        until(lambda: state_of(settings, sandbox_id) == "Running", what="Running")
        assert (await manager.get_diagnostic_logs(sandbox_id, "container")).kind == "logs"
        assert (await manager.get_diagnostic_events(sandbox_id, "runtime")).content
        await manager.kill_sandbox(sandbox_id)
        with refused(404, "SANDBOX_NOT_FOUND"):
            await manager.kill_sandbox(sandbox_id)
    await manager.close()


@covers(
    "SandboxManager.create_snapshot",
    "SandboxManager.get_snapshot",
    "SandboxManager.list_snapshots",
    "SandboxManager.delete_snapshot",
)
async def test_manager_snapshots(amanager, garden):
    sandbox_id = garden.create().id
    taken = await amanager.create_snapshot(sandbox_id, name="s")

    async def ready():
        return (await amanager.get_snapshot(taken.id)).status.state == "Ready"

    await until_async(ready, what="Ready")
    listed = await amanager.list_snapshots(SnapshotFilter(sandbox_id=sandbox_id, name="s"))
    assert [info.id for info in listed.snapshot_infos] == [taken.id]
    await amanager.delete_snapshot(taken.id)
    with refused(404, "SNAPSHOT::NOT_FOUND"):
        await amanager.get_snapshot(taken.id)


@covers(
    "SandboxManager.create_template",
    "SandboxManager.get_template",
    "SandboxManager.list_templates",
    "SandboxManager.delete_template",
)
async def test_manager_templates_are_refused(amanager):
    request = CreateTemplateRequest(image="base", publish="s3://b/p")
    for call in (
        lambda: amanager.create_template(request),
        lambda: amanager.get_template("tpl_none"),
        lambda: amanager.list_templates(TemplateFilter()),
        lambda: amanager.delete_template("tpl_none"),
    ):
        with refused(501, "FSB::API_NOT_SUPPORTED"):
            await call()


@covers(
    "Sandboxes.create_sandbox",
    "Sandboxes.get_sandbox_info",
    "Sandboxes.list_sandboxes",
    "Sandboxes.patch_sandbox_metadata",
    "Sandboxes.get_sandbox_endpoint",
    "Sandboxes.get_signed_sandbox_endpoint",
    "Sandboxes.invalidate_endpoint_cache",
    "Sandboxes.renew_sandbox_expiration",
    "Sandboxes.pause_sandbox",
    "Sandboxes.resume_sandbox",
    "Sandboxes.kill_sandbox",
    "Sandboxes.create_snapshot",
    "Sandboxes.get_snapshot",
    "Sandboxes.list_snapshots",
    "Sandboxes.delete_snapshot",
    "Health.ping",
)
async def test_services(settings, garden):
    config = settings.async_config().with_transport_if_missing()
    factory = AdapterFactory(config)
    service, label = factory.create_sandbox_service(), unique()
    created = await service.create_sandbox(
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
    sandbox_id = garden.adopt(created.id)
    until(lambda: state_of(settings, sandbox_id) == "Running", what="Running")
    assert (await service.get_sandbox_info(sandbox_id)).id == sandbox_id
    listed = await service.list_sandboxes(SandboxFilter(metadata={"service": label}))
    assert [info.id for info in listed.sandbox_infos] == [sandbox_id]
    assert (await service.patch_sandbox_metadata(sandbox_id, {"n": "1"})).metadata["n"] == "1"
    endpoint = await service.get_sandbox_endpoint(sandbox_id, EXECD_PORT)
    assert await factory.create_health_service(endpoint).ping(sandbox_id) is True
    service.invalidate_endpoint_cache(sandbox_id)
    with refused(400, ("SANDBOX::INVALID_PARAMETER", "SANDBOX::API_NOT_SUPPORTED")):
        await service.get_signed_sandbox_endpoint(sandbox_id, EXECD_PORT, 4102444800, True)
    wanted = now() + timedelta(hours=1)
    renewed = await service.renew_sandbox_expiration(sandbox_id, wanted)
    assert abs(renewed.expires_at - wanted) < timedelta(seconds=1)
    taken = await service.create_snapshot(sandbox_id, CreateSnapshotRequest(name="s"))

    async def ready():
        return (await service.get_snapshot(taken.id)).status.state == "Ready"

    await until_async(ready, what="Ready")
    assert (await service.list_snapshots(SnapshotFilter(sandbox_id=sandbox_id))).pagination.total_items == 1
    await service.delete_snapshot(taken.id)
    await service.pause_sandbox(sandbox_id)
    until(lambda: state_of(settings, sandbox_id) == "Paused", what="Paused")
    await service.resume_sandbox(sandbox_id)
    until(lambda: state_of(settings, sandbox_id) == "Running", what="Running")
    await service.kill_sandbox(sandbox_id)
    until(lambda: state_of(settings, sandbox_id) == "Gone", what="gone")
    await config.close_transport_if_owned()


@covers(
    "Sandboxes.create_sandbox_from_template",
    "Sandboxes.create_template",
    "Sandboxes.get_template",
    "Sandboxes.list_templates",
    "Sandboxes.delete_template",
)
async def test_service_templates_are_refused(settings):
    config = settings.async_config().with_transport_if_missing()
    service = AdapterFactory(config).create_sandbox_service()
    for call in (
        lambda: service.create_sandbox_from_template("tpl_none", timedelta(minutes=5)),
        lambda: service.create_template(CreateTemplateRequest(image="base", publish="s3://b/p")),
        lambda: service.get_template("tpl_none"),
        lambda: service.list_templates(TemplateFilter()),
        lambda: service.delete_template("tpl_none"),
    ):
        with refused(501, "FSB::API_NOT_SUPPORTED"):
            await call()
    await config.close_transport_if_owned()


@covers(
    "SandboxPoolAsync.start",
    "SandboxPoolAsync.acquire",
    "SandboxPoolAsync.resize",
    "SandboxPoolAsync.snapshot",
    "SandboxPoolAsync.snapshot_idle_entries",
    "SandboxPoolAsync.release_all_idle",
    "SandboxPoolAsync.release_all_idle_parallel",
    "SandboxPoolAsync.shutdown",
    "SandboxPoolManagerAsync.destroy",
)
async def test_pool(settings, manager):
    label, store = unique("apool"), InMemoryAsyncPoolStateStore()
    mine = SandboxFilter(metadata={"pool": label}, states=["Pending", "Running"])
    pool = SandboxPoolAsync(
        pool_name=label,
        max_idle=2,
        state_store=store,
        connection_config=settings.async_config(),
        creation_spec=PoolCreationSpec(image=settings.image, metadata={"pool": label}),
        idle_timeout=timedelta(minutes=10),
        drain_timeout=timedelta(seconds=5),
    )

    async def warm():
        return (await pool.snapshot()).idle_count == 2

    await pool.start()
    try:
        await until_async(warm, what="two idle sandboxes")
        idle = {entry.sandbox_id for entry in await pool.snapshot_idle_entries()}
        await pool.resize(0)
        taken = await pool.acquire(timedelta(minutes=20), policy=AcquirePolicy.FAIL_FAST)
        assert taken.id in idle and out(await taken.commands.run("echo ok")) == "ok"
        await taken.destroy()
        assert await pool.release_all_idle() == 1
        await pool.resize(2)
        await until_async(warm, what="the pool warms again")
        await pool.resize(0)
        assert await pool.release_all_idle_parallel() == 2
        await pool.resize(2)
        await until_async(warm, what="the pool warms once more")
        destroyer = SandboxPoolManagerAsync(state_store=store, connection_config=settings.async_config())
        result = await destroyer.destroy(label)
        assert result.state == PoolDestroyState.DESTROYED and result.killed_idle_count == 2
        until(lambda: not manager.list_sandbox_infos(mine).sandbox_infos, what="none is left")
    finally:
        await pool.shutdown(graceful=False)
        for info in manager.list_sandbox_infos(mine).sandbox_infos:
            manager.kill_sandbox(info.id)
