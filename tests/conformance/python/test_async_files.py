"""Files of the asyncio SDK."""

from __future__ import annotations

import io
import os

import pytest
from opensandbox.exceptions import InvalidArgumentException
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    DirectoryListEntry,
    MoveEntry,
    SearchEntry,
    SetPermissionEntry,
    WriteEntry,
)
from support import out, refused, unique
from surface import covers


@pytest.fixture(params=["own", "identity"])
async def files(request, abox):
    """The file service twice: plain, and acting as ``user``."""
    if request.param == "own":
        return abox.files
    uid, gid = out(await abox.commands.run("id -u user; id -g user")).split()
    return abox.files_with_identity(int(uid), int(gid))


@pytest.fixture
async def place(abox) -> str:
    path = f"/tmp/{unique('afiles')}"
    await abox.commands.run(f"mkdir {path} && chown user {path}")
    return path


@covers(
    "Filesystem.write_file",
    "Filesystem.write_files",
    "Filesystem.read_file",
    "Filesystem.read_bytes",
    "Filesystem.read_bytes_stream",
)
async def test_reading_and_writing(files, place):
    data = os.urandom(1 << 20)
    await files.write_file(f"{place}/deep/blob", data)
    assert await files.read_bytes(f"{place}/deep/blob") == data
    await files.write_file(f"{place}/deep/blob", io.BytesIO(data[::-1]))
    chunks = [chunk async for chunk in await files.read_bytes_stream(f"{place}/deep/blob")]
    assert b"".join(chunks) == data[::-1]
    await files.write_files(
        [
            WriteEntry(path=f"{place}/one", data="l1\nl2\nl3\n", mode=600),
            WriteEntry(path=f"{place}/two", data=b"\x00"),
        ]
    )
    assert await files.read_file(f"{place}/one", offset=2, limit=1) == "l2"
    assert await files.read_bytes(f"{place}/one", range_header="bytes=3-4") == b"l2"
    with refused(404, "FILE_NOT_FOUND"):
        await files.read_file(f"{place}/absent")


@covers(
    "Filesystem.create_directories",
    "Filesystem.list_directory",
    "Filesystem.get_file_info",
    "Filesystem.delete_files",
    "Filesystem.delete_directories",
    "Filesystem.move_files",
    "Filesystem.search",
)
async def test_the_tree(files, place):
    await files.create_directories([WriteEntry(path=f"{place}/a/b", mode=750)])
    await files.write_file(f"{place}/a/x.py", "1", mode=644)
    listed = await files.list_directory(DirectoryListEntry(path=f"{place}/a"))
    assert [(entry.path, entry.entry_type) for entry in listed] == [
        (f"{place}/a/b", "directory"),
        (f"{place}/a/x.py", "file"),
    ]
    about = (await files.get_file_info([f"{place}/a/x.py"]))[f"{place}/a/x.py"]
    assert (about.size, about.mode) == (1, 644)
    await files.move_files([MoveEntry(src=f"{place}/a/x.py", dest=f"{place}/c/y.py")])
    found = await files.search(SearchEntry(path=place, pattern="*.py"))
    assert [entry.path for entry in found] == [f"{place}/c/y.py"]
    await files.delete_files([f"{place}/c/y.py", f"{place}/absent"])
    assert await files.search(SearchEntry(path=place, pattern="*.py")) == []
    await files.delete_directories([f"{place}/a", f"{place}/absent"])
    with refused(404):
        await files.list_directory(DirectoryListEntry(path=f"{place}/a"))


@covers("Filesystem.replace_contents", "Filesystem.replace_contents_detailed")
async def test_replacing(files, place):
    path = f"{place}/text"
    await files.write_file(path, "a b a")
    await files.replace_contents([ContentReplaceEntry(path=path, old_content="b", new_content="B")])
    counts = await files.replace_contents_detailed(
        [ContentReplaceEntry(path=path, old_content="a", new_content="A")]
    )
    assert [(entry.path, entry.replaced_count) for entry in counts] == [(path, 2)]
    assert await files.read_file(path) == "A B A"


@covers("Filesystem.set_permissions", "Sandbox.files", "Sandbox.files_with_identity")
async def test_owners_and_rights(abox, place):
    path = f"{place}/owned"
    await abox.files.write_file(path, "x", mode=600)
    await abox.files.set_permissions(
        [SetPermissionEntry(path=path, mode=640, owner="nobody", group="nogroup")]
    )
    about = (await abox.files.get_file_info([path]))[path]
    assert (about.mode, about.owner, about.group) == (640, "nobody", "nogroup")
    uid, gid = out(await abox.commands.run("id -u user; id -g user")).split()
    with refused((400, 403, 500)):
        await abox.files_with_identity(int(uid), int(gid)).read_file(path)
    with pytest.raises(InvalidArgumentException):
        abox.files_with_identity(0, 2**32)
