"""Pause and resume with the blocking SDK: processes stop, memory and lifetime stay."""

from __future__ import annotations

import time
from datetime import timedelta

from opensandbox import SandboxSync
from opensandbox.models.execd import RunCommandOpts
from support import UNKNOWN_ID, holds, out, refused, state_of, until
from surface import covers

TICK = "while :; do date +%s.%N >> /tmp/ticks; sleep 0.05; done"


def ticks(box) -> list[float]:
    return [float(line) for line in box.files.read_file("/tmp/ticks").split()]


@covers("SandboxSync.pause", "SandboxSync.resume")
def test_a_process_stands_still_while_paused(garden, settings):
    box = garden.create(timeout=timedelta(minutes=20))
    expires = box.get_info().expires_at
    ticking = box.commands.run(TICK, opts=RunCommandOpts(background=True))
    until(lambda: box.commands.run("test -s /tmp/ticks").exit_code == 0, what="the first tick")

    box.pause()
    until(lambda: state_of(settings, box.id) == "Paused", what="Paused")
    still_from = time.time()
    holds(lambda: state_of(settings, box.id) == "Paused", seconds=1.0, what="Paused")
    assert box.get_info().expires_at == expires, "pausing must not change the lifetime"
    still_to = time.time()

    with SandboxSync.resume(box.id, connection_config=settings.config()) as again:
        assert again.id == box.id
        assert state_of(settings, box.id) == "Running"
        until(lambda: ticks(again)[-1] > still_to, what="ticks after resume")
        slept = [t for t in ticks(again) if still_from + 0.1 < t < still_to - 0.1]
        assert not slept, f"the process ran while paused: {slept}"
        assert again.commands.get_command_status(ticking.id).running is True
        assert out(again.commands.run("echo works")) == "works"
        assert again.get_info().expires_at == expires


def test_pause_and_resume_refuse_the_wrong_state(garden, settings, manager):
    box = garden.create()
    with refused(409, ("SANDBOX_NOT_PAUSED", "INVALID_STATE")):
        manager.resume_sandbox(box.id)
    box.pause()
    until(lambda: state_of(settings, box.id) == "Paused", what="Paused")
    with refused(409, ("SANDBOX_NOT_RUNNING", "INVALID_STATE")):
        box.pause()
    with refused(404, "SANDBOX_NOT_FOUND"):
        SandboxSync.resume(UNKNOWN_ID, connection_config=settings.config())


def test_lifetime_runs_on_while_paused(garden, settings):
    box = garden.create()
    box.renew(timedelta(seconds=3))
    box.pause()
    until(
        lambda: state_of(settings, box.id) in ("Gone", "Terminated"),
        what="an expired paused sandbox is removed",
    )


def test_a_paused_sandbox_can_be_killed(garden, settings):
    box = garden.create()
    box.pause()
    until(lambda: state_of(settings, box.id) == "Paused", what="Paused")
    box.kill()
    until(lambda: state_of(settings, box.id) == "Gone", what="gone")
