"""The asyncio SDK's sandbox class, from creation to removal."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from opensandbox import Sandbox
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.sandboxes import NetworkRule, SandboxOrigin
from opensandbox.transport import RetryPolicy
from support import UNKNOWN_ID, now, out, refused, state_of, unique, until, until_async
from surface import covers


@covers(
    "Sandbox.create",
    "Sandbox.get_info",
    "Sandbox.patch_metadata",
    "Sandbox.renew",
    "Sandbox.origin",
    "Sandbox.connection_config",
    "Sandbox.is_healthy",
    "Sandbox.check_ready",
    "Sandbox.kill",
    "Sandbox.close",
)
async def test_life_of_a_sandbox(settings, garden):
    box = await Sandbox.create(
        settings.image,
        connection_config=settings.async_config(),
        timeout=timedelta(seconds=300),
        env={"A": "1"},
        metadata={"k": "v"},
        entrypoint=["sleep", "infinity"],
        resource={"cpu": "500m", "memory": "256Mi"},
    )
    garden.adopt(box.id)
    info = await box.get_info()
    assert info.id == box.id and info.status.state == "Running"
    assert info.metadata == {"k": "v"} and info.entrypoint[-2:] == ["sleep", "infinity"]
    assert box.origin == SandboxOrigin.UNKNOWN
    assert box.connection_config.get_domain() == settings.domain
    assert await box.is_healthy() is True
    await box.check_ready(timedelta(seconds=5), timedelta(milliseconds=50))
    assert out(await box.commands.run("echo $A")) == "1"
    assert (await box.patch_metadata({"k": None, "n": "2"})).metadata == {"n": "2"}
    wanted = now() + timedelta(seconds=900)
    assert abs((await box.renew(timedelta(seconds=900))).expires_at - wanted) < timedelta(seconds=5)
    await box.kill()
    until(lambda: state_of(settings, box.id) == "Gone", what="gone")
    with refused(404, "SANDBOX_NOT_FOUND"):
        await box.get_info()
    await box.close()


@covers("Sandbox.destroy", "Sandbox.connect")
async def test_connect_and_destroy(settings, garden):
    async with await Sandbox.create(settings.image, connection_config=settings.async_config()) as made:
        garden.adopt(made.id)
        await made.files.write_file("/tmp/mark", "same")
    again = await Sandbox.connect(made.id, connection_config=settings.async_config())
    assert await again.files.read_file("/tmp/mark") == "same"
    await again.destroy()
    until(lambda: state_of(settings, made.id) == "Gone", what="gone")
    with refused(404, "SANDBOX_NOT_FOUND"):
        await Sandbox.connect(UNKNOWN_ID, connection_config=settings.async_config())


@covers("Sandbox.pause", "Sandbox.resume")
async def test_pause_and_resume(settings, garden):
    box = await Sandbox.create(settings.image, connection_config=settings.async_config())
    garden.adopt(box.id)
    started = await box.commands.run(
        "while :; do date +%s.%N >> /tmp/ticks; sleep 0.05; done", opts=RunCommandOpts(background=True)
    )
    await box.pause()
    until(lambda: state_of(settings, box.id) == "Paused", what="Paused")
    paused_at = time.time()
    again = await Sandbox.resume(box.id, connection_config=settings.async_config())
    assert (await again.get_info()).status.state == "Running"

    async def ticked():
        return float((await again.files.read_file("/tmp/ticks")).split()[-1]) > paused_at

    await until_async(ticked, what="the process goes on")
    assert (await again.commands.get_command_status(started.id)).running is True
    await again.close()
    await box.close()


async def test_many_at_once(settings, garden):
    async def one(n: int) -> str:
        box = await Sandbox.create(settings.image, connection_config=settings.async_config())
        garden.adopt(box.id)
        ran = out(await box.commands.run(f"echo {n}"))
        await box.destroy()
        return ran

    assert await asyncio.gather(*(one(n) for n in range(8))) == [str(n) for n in range(8)]


@covers(
    "Sandbox.get_endpoint",
    "Sandbox.get_signed_endpoint",
    "Sandbox.get_metrics",
    "Sandbox.metrics",
    "Metrics.get_metrics",
    "Sandbox.get_egress_policy",
)
async def test_views_of_a_running_sandbox(abox, settings):
    endpoint = (await abox.get_endpoint(8080)).endpoint
    assert "://" not in endpoint and endpoint.endswith("8080")
    proxied = await Sandbox.connect(abox.id, connection_config=settings.async_config(use_server_proxy=True))
    assert (await proxied.get_endpoint(8080)).endpoint == (
        f"{settings.domain}/v1/sandboxes/{abox.id}/proxy/8080"
    )
    with refused(400, ("SANDBOX::INVALID_PARAMETER", "SANDBOX::API_NOT_SUPPORTED")):
        await proxied.get_signed_endpoint(8080, int(time.time()) + 60)
    assert out(await proxied.commands.run("echo proxied")) == "proxied"
    await proxied.close()
    for metrics in (await abox.get_metrics(), await abox.metrics.get_metrics(abox.id)):
        assert metrics.cpu_count > 0 and 0 < metrics.memory_used_in_mib <= metrics.memory_total_in_mib
    assert (await abox.get_egress_policy()).default_action == settings.egress


@covers(
    "Sandbox.get_diagnostic_logs",
    "Sandbox.get_diagnostic_events",
    "Sandbox.diagnostics",
    "Diagnostics.get_logs",
    "Diagnostics.get_events",
)
async def test_diagnostics(abox):
    for logs in (
        await abox.get_diagnostic_logs("container"),
        await abox.diagnostics.get_logs(abox.id, "all"),
    ):
        assert (logs.sandbox_id, logs.kind, logs.delivery) == (abox.id, "logs", "inline")
    for events in (
        await abox.get_diagnostic_events("runtime"),
        await abox.diagnostics.get_events(abox.id, "all"),
    ):
        assert (events.sandbox_id, events.kind) == (abox.id, "events") and events.content
    with refused(400, "DIAGNOSTICS_SCOPE_UNSUPPORTED"):
        await abox.get_diagnostic_logs("nonsense")


@covers("Sandbox.create_snapshot")
async def test_snapshot_round_trip(settings, garden, manager):
    box = await Sandbox.create(settings.image, connection_config=settings.async_config())
    garden.adopt(box.id)
    await box.commands.run("echo saved > /srv/saved")
    name = unique("snap")
    taken = await box.create_snapshot(name)
    until(lambda: manager.get_snapshot(taken.id).status.state == "Ready", what="Ready")
    restored = await Sandbox.create(snapshot_id=taken.id, connection_config=settings.async_config())
    garden.adopt(restored.id)
    assert out(await restored.commands.run("cat /srv/saved")) == "saved"
    await restored.destroy()
    until(lambda: state_of(settings, restored.id) == "Gone", what="gone")
    manager.delete_snapshot(taken.id)
    await box.close()


@covers("Sandbox.create_from_template", "Sandbox.patch_egress_rules", "Sandbox.delete_egress_rules")
async def test_refused_operations(abox, settings):
    with refused(501, "FSB::API_NOT_SUPPORTED"):
        await Sandbox.create_from_template(
            "tpl_none", timeout=timedelta(minutes=5), connection_config=settings.async_config()
        )
    impatient = settings.async_config(retry_policy=RetryPolicy.disabled())
    again = await Sandbox.connect(abox.id, connection_config=impatient)
    for call in (
        lambda: again.patch_egress_rules([NetworkRule(action="deny", target="example.com")]),
        lambda: again.delete_egress_rules(["example.com"]),
    ):
        with refused((400, 405, 409, 501, 503)):
            await call()
    await again.close()


async def test_request_id_reaches_the_exception(settings):
    wanted = unique("request")
    config = settings.async_config(headers={"X-Request-ID": wanted})
    with refused(404, "SANDBOX_NOT_FOUND") as caught:
        await Sandbox.connect(UNKNOWN_ID, connection_config=config)
    assert caught.value.request_id == wanted


async def test_wrong_key_is_refused(settings):
    with pytest.raises(SandboxApiException) as caught:
        await Sandbox.create(settings.image, connection_config=settings.async_config("wrong"))
    assert caught.value.status_code == 401 and caught.value.error.code == "INVALID_API_KEY"
