"""The client-side pool of the blocking SDK against real sandboxes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from opensandbox import (
    AcquirePolicy,
    InMemoryPoolStateStore,
    PoolCreationSpec,
    PoolDestroyState,
    SandboxPoolManagerSync,
    SandboxPoolSync,
)
from opensandbox.exceptions import PoolDestroyedException, PoolEmptyException
from opensandbox.models.sandboxes import SandboxFilter
from support import now, out, state_of, unique, until
from surface import covers


class Bench:
    """A pool whose sandboxes all carry one label, so that they can be counted and removed."""

    def __init__(self, settings, manager):
        self.settings, self.manager, self.label = settings, manager, unique("pool")
        self.store = InMemoryPoolStateStore()

    def pool(self, max_idle: int) -> SandboxPoolSync:
        return SandboxPoolSync(
            pool_name=self.label,
            max_idle=max_idle,
            state_store=self.store,
            connection_config=self.settings.config(),
            creation_spec=PoolCreationSpec(
                image=self.settings.image,
                resource={"cpu": "500m", "memory": "256Mi"},
                metadata={"pool": self.label},
                env={"POOLED": "yes"},
            ),
            idle_timeout=timedelta(minutes=10),
            drain_timeout=timedelta(seconds=5),
            warmup_concurrency=4,
        )

    def alive(self) -> set[str]:
        found = self.manager.list_sandbox_infos(
            SandboxFilter(metadata={"pool": self.label}, states=["Pending", "Running"])
        )
        return {info.id for info in found.sandbox_infos}


@pytest.fixture
def bench(settings, manager):
    made = Bench(settings, manager)
    yield made
    for sandbox_id in made.alive():
        manager.kill_sandbox(sandbox_id)


@covers(
    "SandboxPoolSync.start",
    "SandboxPoolSync.acquire",
    "SandboxPoolSync.resize",
    "SandboxPoolSync.snapshot",
    "SandboxPoolSync.snapshot_idle_entries",
    "SandboxPoolSync.release_all_idle",
    "SandboxPoolSync.release_all_idle_parallel",
    "SandboxPoolSync.shutdown",
)
def test_pool_warms_hands_out_and_releases(bench):
    pool = bench.pool(max_idle=2)
    pool.start()
    try:
        until(lambda: pool.snapshot().idle_count == 2, what="two idle sandboxes")
        idle = {entry.sandbox_id for entry in pool.snapshot_idle_entries()}
        assert idle == bench.alive()
        pool.resize(0)
        taken = pool.acquire(timedelta(minutes=30), policy=AcquirePolicy.FAIL_FAST)
        assert taken.id in idle
        assert out(taken.commands.run("echo $POOLED")) == "yes"
        left = taken.get_info().expires_at - now()
        assert timedelta(minutes=29) < left <= timedelta(minutes=30, seconds=5)
        taken.destroy()
        assert pool.release_all_idle() == 1
        until(lambda: not bench.alive(), what="released sandboxes are gone")
        with pytest.raises(PoolEmptyException):
            pool.acquire(policy=AcquirePolicy.FAIL_FAST)
        made = pool.acquire(policy=AcquirePolicy.DIRECT_CREATE)
        assert out(made.commands.run("echo direct")) == "direct"
        made.destroy()
        pool.resize(2)
        until(lambda: pool.snapshot().idle_count == 2, what="the pool warms again")
        pool.resize(0)
        assert pool.release_all_idle_parallel(max_workers=2) == 2
    finally:
        pool.shutdown(graceful=True)
    assert pool.snapshot().lifecycle_state.value == "STOPPED"


def test_pool_skips_a_sandbox_that_died(bench):
    pool = bench.pool(max_idle=2)
    pool.start()
    try:
        until(lambda: pool.snapshot().idle_count == 2, what="two idle sandboxes")
        pool.resize(0)
        dead = pool.snapshot_idle_entries()[0].sandbox_id
        bench.manager.kill_sandbox(dead)
        until(lambda: state_of(bench.settings, dead) == "Gone", what="gone")
        taken = pool.acquire(policy=AcquirePolicy.RETRY_NEXT_IDLE_THEN_CREATE)
        assert taken.id != dead and out(taken.commands.run("echo ok")) == "ok"
        taken.destroy()
        pool.release_all_idle()
    finally:
        pool.shutdown(graceful=False)


@covers("SandboxPoolManagerSync.destroy")
def test_destroying_a_pool_kills_its_idle_sandboxes(bench):
    pool = bench.pool(max_idle=2)
    pool.start()
    try:
        until(lambda: pool.snapshot().idle_count == 2, what="two idle sandboxes")
        destroyer = SandboxPoolManagerSync(state_store=bench.store, connection_config=bench.settings.config())
        result = destroyer.destroy(bench.label)
        assert result.state == PoolDestroyState.DESTROYED and result.killed_idle_count == 2
        until(lambda: not bench.alive(), what="no sandbox of the pool is left")
        with pytest.raises(PoolDestroyedException):
            pool.acquire()
    finally:
        pool.shutdown(graceful=False)
