"""Watching folders; the blocking SDK polls, the asyncio SDK is told."""

from __future__ import annotations

import pytest
from e2b_code_interpreter import (
    FilesystemEventType,
    FileNotFoundException,
    InvalidArgumentException,
    SandboxException,
)
from support import unique, until, until_async
from surface import covers

CREATE, WRITE, CHMOD = FilesystemEventType.CREATE, FilesystemEventType.WRITE, FilesystemEventType.CHMOD
REMOVE, RENAME = FilesystemEventType.REMOVE, FilesystemEventType.RENAME


@pytest.fixture
def folder(plain) -> str:
    path = f"/home/user/{unique('watched')}"
    plain.files.make_dir(path)
    return path


class Seen:
    """Events of a polled watcher, gathered until enough came."""

    def __init__(self, handle):
        self.handle = handle
        self.events = []

    def until(self, enough, what: str):
        def probe():
            self.events += self.handle.get_new_events()
            return enough([(event.name, event.type) for event in self.events])

        until(probe, what=what)
        return self.events


@covers("Filesystem.watch_dir", "WatchHandle.get_new_events", "WatchHandle.stop", only="sync")
def test_one_new_file_is_three_events(plain, folder):
    handle = plain.files.watch_dir(folder)
    assert handle.get_new_events() == []
    plain.files.write(f"{folder}/new", "small")
    events = Seen(handle).until(lambda seen: len(seen) >= 3, "three events")
    assert [(event.name, event.type) for event in events] == [("new", CREATE), ("new", CHMOD), ("new", WRITE)]
    assert all(event.entry is None for event in events)
    assert handle.get_new_events() == []
    handle.stop()
    with pytest.raises(SandboxException):
        handle.get_new_events()


def test_renames_and_removals(plain, folder):
    plain.files.write(f"{folder}/a", "x")
    handle = plain.files.watch_dir(folder)
    plain.files.rename(f"{folder}/a", f"{folder}/b")
    plain.files.remove(f"{folder}/b")
    events = Seen(handle).until(lambda seen: ("b", REMOVE) in seen, "the removal")
    assert [(event.name, event.type) for event in events] == [("a", RENAME), ("b", CREATE), ("b", REMOVE)]
    handle.stop()


def test_a_flat_watch_does_not_look_deeper(plain, folder):
    plain.files.make_dir(f"{folder}/sub")
    handle = plain.files.watch_dir(folder)
    plain.files.write(f"{folder}/sub/deep", "x")
    plain.files.write(f"{folder}/top", "x")
    events = Seen(handle).until(lambda seen: ("top", WRITE) in seen, "the file above")
    assert not any("deep" in event.name for event in events)
    handle.stop()


def test_a_recursive_watch_follows_new_folders(plain, folder):
    plain.files.make_dir(f"{folder}/old")
    handle = plain.files.watch_dir(folder, recursive=True)
    plain.files.write(f"{folder}/old/one", "x")
    events = Seen(handle).until(lambda seen: len(seen) >= 3, "three events")
    assert [(event.name, event.type) for event in events] == [
        ("old/one", CREATE),
        ("old/one", CHMOD),
        ("old/one", WRITE),
    ]
    plain.files.make_dir(f"{folder}/fresh")
    seen = Seen(handle)
    seen.until(lambda seen: ("fresh", CREATE) in seen, "the new folder")
    plain.files.write(f"{folder}/fresh/two", "x")
    seen.until(lambda seen: ("fresh/two", WRITE) in seen, "a file in the new folder")
    handle.stop()


def test_events_can_carry_the_entry(plain, folder):
    handle = plain.files.watch_dir(folder, include_entry=True)
    plain.files.write(f"{folder}/new", "12345")
    events = Seen(handle).until(lambda seen: ("new", WRITE) in seen, "the write")
    written = next(event for event in events if event.type == WRITE)
    assert written.entry.path == f"{folder}/new" and written.entry.owner == "user"
    handle.stop()
    network = plain.files.watch_dir(folder, allow_network_mounts=True)
    network.stop()


@covers("Filesystem.watch_dir", "WatchHandle.stop", only="async")
async def test_events_are_told(async_box):
    folder = f"/home/user/{unique('watched')}"
    await async_box.files.make_dir(folder)
    events, exits = [], []
    handle = await async_box.files.watch_dir(folder, on_event=events.append, on_exit=exits.append, recursive=True)
    await async_box.files.write(f"{folder}/new", "small")
    await until_async(lambda: len(events) >= 3, what="three events")
    assert [(event.name, event.type) for event in events] == [("new", CREATE), ("new", CHMOD), ("new", WRITE)]
    await handle.stop()
    await until_async(lambda: exits == [None], what="the end is told once")


async def test_a_watch_has_a_deadline(async_box):
    folder = f"/home/user/{unique('watched')}"
    await async_box.files.make_dir(folder)
    exits = []
    await async_box.files.watch_dir(folder, on_event=lambda event: None, on_exit=exits.append, timeout=1)
    await until_async(lambda: exits, within=10, what="the deadline")


def test_what_can_not_be_watched(plain, folder):
    plain.files.write(f"{folder}/file", "x")
    with pytest.raises(FileNotFoundException):
        plain.files.watch_dir(f"{folder}/missing")
    with pytest.raises(InvalidArgumentException):
        plain.files.watch_dir(f"{folder}/file")


async def test_asyncio_errors_are_the_same(async_box):
    with pytest.raises(FileNotFoundException):
        await async_box.files.watch_dir("/no/such/folder", on_event=lambda event: None)
