"""Metrics, health, diagnostics and isolated sessions of the blocking SDK."""

from __future__ import annotations

import json
import time

import httpx
import pytest
from opensandbox import SandboxSync
from opensandbox.models.filesystem import DirectoryListEntry
from opensandbox.models.isolated import (
    CreateIsolatedSessionRequest,
    IsolatedSessionInfo,
    IsolatedWorkspaceSpec,
)
from opensandbox.sync.adapters.factory import AdapterFactorySync
from opensandbox.sync.adapters.isolated_adapter import IsolationSessionHandleSync
from support import EXECD_PORT, refused, unique, until
from surface import covers


SESSION = "00000000-0000-4000-8000-000000000000"


def looks_right(metrics) -> None:
    assert metrics.cpu_count > 0
    assert 0 <= metrics.cpu_used_percentage <= 100
    assert 0 < metrics.memory_used_in_mib <= metrics.memory_total_in_mib
    assert abs(metrics.timestamp - time.time() * 1000) < 60_000


@covers("SandboxSync.get_metrics", "SandboxSync.metrics", "MetricsSync.get_metrics")
def test_metrics(box):
    looks_right(box.get_metrics())
    looks_right(box.metrics.get_metrics(box.id))


def test_metrics_stream_gives_one_sample_after_another(box):
    endpoint = box.get_endpoint(EXECD_PORT)
    url = f"http://{endpoint.endpoint}/metrics/watch"
    samples = []
    with httpx.stream("GET", url, headers=endpoint.headers, timeout=20) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            text = line.removeprefix("data:").strip()
            if text.startswith("{"):
                samples.append(json.loads(text))
            if len(samples) == 2:
                break
    assert {"cpu_count", "cpu_used_pct", "mem_total_mib", "mem_used_mib", "timestamp"} <= set(samples[0])
    assert samples[1]["timestamp"] > samples[0]["timestamp"]


@covers("HealthSync.ping")
def test_health_service(box, settings):
    factory = AdapterFactorySync(settings.config().with_transport_if_missing())
    assert factory.create_health_service(box.get_endpoint(EXECD_PORT)).ping(box.id) is True


@covers(
    "SandboxSync.get_diagnostic_logs",
    "SandboxSync.get_diagnostic_events",
    "SandboxSync.diagnostics",
    "DiagnosticsSync.get_logs",
    "DiagnosticsSync.get_events",
    "SandboxManagerSync.get_diagnostic_logs",
    "SandboxManagerSync.get_diagnostic_events",
)
def test_diagnostics(garden, manager):
    mark = unique("boot")
    box = garden.create(entrypoint=["sh", "-c", f"echo {mark}; exec sleep infinity"])
    until(lambda: mark in (box.get_diagnostic_logs("container").content or ""), what="the log")
    for scope in ("container", "all"):
        for logs in (
            box.get_diagnostic_logs(scope),
            box.diagnostics.get_logs(box.id, scope),
            manager.get_diagnostic_logs(box.id, scope),
        ):
            assert (logs.sandbox_id, logs.kind, logs.scope) == (box.id, "logs", scope)
            assert logs.delivery == "inline" and mark in logs.content
            assert logs.content_type.startswith("text/plain") and logs.truncated is False
    for scope in ("runtime", "all"):
        for events in (
            box.get_diagnostic_events(scope),
            box.diagnostics.get_events(box.id, scope),
            manager.get_diagnostic_events(box.id, scope),
        ):
            assert (events.sandbox_id, events.kind, events.scope) == (box.id, "events", scope)
            assert events.delivery == "inline" and events.content
    with refused(400, "DIAGNOSTICS_SCOPE_UNSUPPORTED"):
        box.get_diagnostic_logs("no-such-scope")
    with refused(400, "DIAGNOSTICS_SCOPE_UNSUPPORTED"):
        box.get_diagnostic_events("no-such-scope")


@pytest.fixture(scope="module")
def impatient(box, settings):
    """The shared sandbox through a client that does not repeat a 503."""
    with SandboxSync.connect(box.id, connection_config=settings.no_retry()) as sandbox:
        yield sandbox


@covers("SandboxSync.isolation", "IsolationServiceSync.capabilities")
def test_isolation_says_that_it_is_not_available(impatient):
    about = impatient.isolation.capabilities()
    assert about.available is False and about.message
    assert about.commit_supported is False and about.diff_supported is False


@covers(
    "IsolationServiceSync.create",
    "IsolationServiceSync.attach",
    "IsolationServiceSync.list",
    "IsolationServiceSync.run_once",
    "IsolationServiceSync.session",
)
def test_isolated_sessions_are_refused(impatient):
    request = CreateIsolatedSessionRequest(workspace=IsolatedWorkspaceSpec(path="/tmp"))
    isolation = impatient.isolation

    def in_session():
        with isolation.session(request):
            raise AssertionError("there is no session to enter")

    for call in (
        lambda: isolation.create(request),
        lambda: isolation.attach(SESSION),
        lambda: isolation.list(),
        lambda: isolation.run_once("echo no", workspace="/tmp"),
        in_session,
    ):
        with refused(503):
            call()


@covers(
    "IsolationSessionSync.session_id",
    "IsolationSessionSync.info",
    "IsolationSessionSync.files",
    "IsolationSessionSync.run",
    "IsolationSessionSync.run_background",
    "IsolationSessionSync.run_status",
    "IsolationSessionSync.run_logs",
    "IsolationSessionSync.get",
    "IsolationSessionSync.delete",
)
def test_a_handle_to_an_isolated_session_is_refused_everything(impatient):
    handle = IsolationSessionHandleSync(IsolatedSessionInfo(session_id=SESSION), impatient.isolation)
    assert handle.session_id == handle.info.session_id == SESSION
    for call in (
        lambda: handle.run("echo no"),
        lambda: handle.run_background("echo no"),
        lambda: handle.run_status("r"),
        lambda: handle.run_logs("r"),
        lambda: handle.get(),
        lambda: handle.delete(),
        lambda: handle.files.read_file("/tmp/x"),
        lambda: handle.files.write_file("/tmp/x", "no"),
        lambda: handle.files.list_directory(DirectoryListEntry(path="/tmp")),
    ):
        with refused(503):
            call()
