"""Snapshots of the blocking SDK: what is saved, listed, restored and removed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from opensandbox.models.sandboxes import SnapshotFilter
from support import now, out, refused, state_of, unique, until
from surface import covers

UNKNOWN_SNAPSHOT = "nosuchsnapshot0000000000"


@pytest.fixture
def shelf(garden, manager):
    """Ids of snapshots to remove after the test, once no sandbox uses them."""
    ids: list[str] = []
    yield ids
    garden.clear()
    for snapshot_id in ids:
        manager.delete_snapshot(snapshot_id)


def ready(manager, snapshot_id):
    def state():
        found = manager.get_snapshot(snapshot_id)
        assert found.status.state in ("Creating", "Ready"), found.status
        return found if found.status.state == "Ready" else None

    return until(state, what="the snapshot is ready")


@covers("SandboxSync.create_snapshot")
def test_a_sandbox_from_a_snapshot_has_the_files(garden, manager, shelf):
    box = garden.create()
    box.commands.run("mkdir -p /srv/data; echo saved > /srv/data/file; chmod 640 /srv/data/file")
    taken = box.create_snapshot("first")
    shelf.append(taken.id)
    assert (taken.sandbox_id, taken.name) == (box.id, "first")
    assert abs(taken.created_at - now()) < timedelta(minutes=1)
    ready(manager, taken.id)
    assert out(box.commands.run("echo on")) == "on", "the source keeps running"
    box.commands.run("echo later > /srv/data/file")

    restored = garden.create(snapshot_id=taken.id, env={"WHO": "second"})
    assert restored.id != box.id
    assert out(restored.commands.run("cat /srv/data/file; stat -c %a /srv/data/file")) == "saved\n640"
    assert out(restored.commands.run("echo $WHO")) == "second"
    info = restored.get_info()
    assert info.snapshot_id == taken.id and info.image is None
    restored.commands.run("echo mine > /srv/data/file")
    again = garden.create(snapshot_id=taken.id)
    assert out(again.commands.run("cat /srv/data/file")) == "saved", "restores do not share"


@covers("SandboxManagerSync.create_snapshot", "SandboxManagerSync.list_snapshots")
def test_list_snapshots(garden, manager, shelf):
    box, name = garden.create(), unique("snap")
    for _ in range(2):
        shelf.append(manager.create_snapshot(box.id, name=name).id)
        ready(manager, shelf[-1])
    shelf.append(manager.create_snapshot(box.id).id)
    ready(manager, shelf[-1])

    def found(**options):
        listed = manager.list_snapshots(SnapshotFilter(**options))
        return [info.id for info in listed.snapshot_infos], listed.pagination

    ids, about = found(sandbox_id=box.id)
    assert ids == shelf[::-1] and about.total_items == 3
    assert set(found(name=name)[0]) == set(shelf[:2])
    assert found(name=name[:-1])[0] == [], "names match as a whole"
    assert set(found(sandbox_id=box.id, states=["Ready"])[0]) == set(shelf)
    assert found(sandbox_id=box.id, states=["Failed"])[0] == []
    page, about = found(sandbox_id=box.id, page=2, page_size=2)
    assert page == [shelf[0]] and about.total_pages == 2 and about.has_next_page is False
    assert manager.get_snapshot(shelf[2]).name is None


def test_a_snapshot_outlives_its_sandbox(garden, manager, shelf, settings):
    box = garden.create()
    box.commands.run("echo kept > /srv/kept")
    shelf.append(box.create_snapshot().id)
    ready(manager, shelf[0])
    box.kill()
    until(lambda: state_of(settings, box.id) == "Gone", what="the source is gone")
    restored = garden.create(snapshot_id=shelf[0])
    assert out(restored.commands.run("cat /srv/kept")) == "kept"


@covers("SandboxManagerSync.get_snapshot", "SandboxManagerSync.delete_snapshot")
def test_deleted_and_unknown_snapshots(garden, manager):
    box = garden.create()
    snapshot_id = box.create_snapshot().id
    ready(manager, snapshot_id)
    manager.delete_snapshot(snapshot_id)
    for gone in (snapshot_id, UNKNOWN_SNAPSHOT):
        with refused(404, "SNAPSHOT::NOT_FOUND"):
            manager.get_snapshot(gone)
        with refused(404, "SNAPSHOT::NOT_FOUND"):
            manager.delete_snapshot(gone)
        with refused(404, "SNAPSHOT::NOT_FOUND"):
            garden.create(snapshot_id=gone)


def test_a_paused_sandbox_is_no_source(garden, settings):
    box = garden.create()
    box.pause()
    until(lambda: state_of(settings, box.id) == "Paused", what="Paused")
    with refused(409, "SNAPSHOT::INVALID_SOURCE_STATE"):
        box.create_snapshot()
