"""Files and folders through the SDK."""

from __future__ import annotations

import io
import os
import re
from datetime import timedelta

import pytest
from e2b_code_interpreter import (
    AuthenticationException,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    SandboxException,
)
from support import moment, now, unique
from surface import covers


@pytest.fixture
def folder() -> str:
    return f"/home/user/{unique('dir')}"


@covers("Filesystem.write", "Filesystem.read")
async def test_text_bytes_and_streams(box, folder):
    text = "grüß €\n\0tail"
    info = await now(box.files.write(f"{folder}/deep/down/text", text))
    assert (info.name, info.path, info.type) == ("text", f"{folder}/deep/down/text", FileType.FILE)
    assert await now(box.files.read(info.path)) == text
    assert await now(box.files.read(info.path, format="bytes")) == bytearray(text.encode())
    blob = os.urandom(1_500_000)
    await now(box.files.write(f"{folder}/blob", blob))
    assert bytes(await now(box.files.read(f"{folder}/blob", format="bytes"))) == blob
    stream = await now(box.files.read(f"{folder}/blob", format="stream"))
    parts = [part async for part in stream] if hasattr(stream, "__aiter__") else list(stream)
    assert b"".join(parts) == blob
    await now(box.files.write(f"{folder}/blob", "short"))
    assert await now(box.files.read(f"{folder}/blob")) == "short"
    await now(box.files.write(f"{folder}/empty", ""))
    assert await now(box.files.read(f"{folder}/empty")) == ""


@pytest.mark.parametrize("options", [{}, {"gzip": True}, {"use_octet_stream": True}], ids=str)
async def test_every_way_to_upload(box, folder, options):
    blob = b"".join(b"%d\n" % n for n in range(60_000))
    await now(box.files.write(f"{folder}/bytes", blob, **options))
    await now(box.files.write(f"{folder}/file", io.BytesIO(blob), **options))
    await now(box.files.write(f"{folder}/text", io.StringIO("text\n"), **options))
    for name, wanted in (("bytes", blob), ("file", blob), ("text", b"text\n")):
        assert bytes(await now(box.files.read(f"{folder}/{name}", format="bytes"))) == wanted
        assert bytes(await now(box.files.read(f"{folder}/{name}", format="bytes", gzip=True))) == wanted


def test_chunks_of_an_iterator(plain, folder):
    chunks = [os.urandom(70_000) for _ in range(5)]
    plain.files.write(f"{folder}/chunks", iter(chunks))
    assert bytes(plain.files.read(f"{folder}/chunks", format="bytes")) == b"".join(chunks)


@covers("Filesystem.write_files")
async def test_many_files_in_one_request(box, folder):
    files = [{"path": f"{folder}/{n}/f{n}", "data": f"file {n}" if n % 2 else b"\xff%d" % n} for n in range(12)]
    infos = await now(box.files.write_files(files))
    assert [info.path for info in infos] == [file["path"] for file in files]
    assert await now(box.files.read(f"{folder}/3/f3")) == "file 3"
    assert bytes(await now(box.files.read(f"{folder}/4/f4", format="bytes"))) == b"\xff4"
    assert await now(box.files.write_files([])) == []


async def test_paths_start_in_the_home_of_the_user(box):
    name = unique("rel")
    assert (await now(box.files.write(name, "x"))).path == f"/home/user/{name}"
    assert (await now(box.files.write(f"~/{name}2", "y"))).path == f"/home/user/{name}2"
    assert await now(box.files.read(f"/home/user/{name}2")) == "y"
    assert (await now(box.files.write(f"{name}", "z", user="root"))).path == f"/root/{name}"
    assert (await now(box.files.get_info(f"/root/{name}", user="root"))).owner == "root"


@covers("Filesystem.get_info", "Filesystem.exists")
async def test_what_a_file_is(box, folder):
    await now(box.files.write(f"{folder}/f", "12345"))
    info = await now(box.files.get_info(f"{folder}/f"))
    assert (info.name, info.path, info.type, info.size) == ("f", f"{folder}/f", FileType.FILE, 5)
    assert (info.mode, info.permissions, info.owner, info.group) == (0o644, "-rw-r--r--", "user", "user")
    assert abs(info.modified_time - moment()) < timedelta(seconds=30)
    assert info.symlink_target is None and info.metadata is None
    parent = await now(box.files.get_info(folder))
    assert (parent.type, parent.mode, parent.permissions) == (FileType.DIR, 0o755, "drwxr-xr-x")
    assert parent.owner == "user"
    assert await now(box.files.exists(f"{folder}/f")) is True
    assert await now(box.files.exists(folder)) is True
    assert await now(box.files.exists(f"{folder}/g")) is False
    with pytest.raises(FileNotFoundException):
        await now(box.files.get_info(f"{folder}/g"))


async def test_links(box, folder):
    await now(box.files.write(f"{folder}/target", "12345"))
    await now(box.commands.run(f"cd {folder} && ln -s target link && ln -s nowhere dangling"))
    link = await now(box.files.get_info(f"{folder}/link"))
    assert link.type == FileType.SYMLINK and link.symlink_target == f"{folder}/target"
    assert await now(box.files.read(f"{folder}/link")) == "12345"
    names = [entry.name for entry in await now(box.files.list(folder))]
    assert names[-2:] == ["link", "target"]


@covers("Filesystem.list")
async def test_lists_are_in_order_and_as_deep_as_asked(box, folder):
    for name in ("file1", "subdir1/a", "subdir1/inner/b", "subdir2/c"):
        await now(box.files.write(f"{folder}/{name}", name))

    async def listed(**options):
        return [entry.path.removeprefix(f"{folder}/") for entry in await now(box.files.list(folder, **options))]

    assert await listed() == ["file1", "subdir1", "subdir2"]
    assert await listed(depth=2) == ["file1", "subdir1", "subdir1/a", "subdir1/inner", "subdir2", "subdir2/c"]
    assert "subdir1/inner/b" in await listed(depth=3)
    entry = (await now(box.files.list(folder)))[0]
    assert (entry.type, entry.size, entry.owner) == (FileType.FILE, 5, "user")
    with pytest.raises(FileNotFoundException):
        await now(box.files.list(f"{folder}/missing"))
    with pytest.raises(InvalidArgumentException):
        await now(box.files.list(f"{folder}/file1"))
    with pytest.raises(InvalidArgumentException):
        await now(box.files.list(folder, depth=0))


@covers("Filesystem.make_dir")
async def test_folders(box, folder):
    assert await now(box.files.make_dir(f"{folder}/a/b/c")) is True
    assert await now(box.files.make_dir(f"{folder}/a/b")) is False
    assert (await now(box.files.get_info(f"{folder}/a"))).owner == "user"
    await now(box.files.write(f"{folder}/file", "x"))
    with pytest.raises(InvalidArgumentException):
        await now(box.files.make_dir(f"{folder}/file"))


@covers("Filesystem.rename")
async def test_renames(box, folder):
    await now(box.files.write(f"{folder}/old", "moved"))
    info = await now(box.files.rename(f"{folder}/old", f"{folder}/new/place"))
    assert (info.name, info.path) == ("place", f"{folder}/new/place")
    assert await now(box.files.read(f"{folder}/new/place")) == "moved"
    assert await now(box.files.exists(f"{folder}/old")) is False
    with pytest.raises(FileNotFoundException):
        await now(box.files.rename(f"{folder}/old", f"{folder}/x"))


@covers("Filesystem.remove")
async def test_removals(box, folder):
    await now(box.files.write(f"{folder}/a/b/c", "x"))
    await now(box.files.remove(f"{folder}/a/b/c"))
    assert await now(box.files.exists(f"{folder}/a/b")) is True
    await now(box.files.remove(folder))
    assert await now(box.files.exists(folder)) is False
    await now(box.files.remove(folder))


async def test_metadata_stays_with_a_file(box, folder):
    given = {"author": "me", "Purpose": "test 1"}
    info = await now(box.files.write(f"{folder}/f", "x", metadata=given))
    kept = {"author": "me", "purpose": "test 1"}
    assert info.metadata == kept
    assert (await now(box.files.get_info(f"{folder}/f"))).metadata == kept
    moved = await now(box.files.rename(f"{folder}/f", f"{folder}/g"))
    assert moved.metadata == kept
    assert (await now(box.files.list(folder)))[0].metadata == kept
    await now(box.files.write(f"{folder}/g", "y", metadata={"only": "this"}))
    assert (await now(box.files.get_info(f"{folder}/g"))).metadata == {"only": "this"}
    await now(box.files.write(f"{folder}/g", "z"))
    assert (await now(box.files.get_info(f"{folder}/g"))).metadata is None
    with pytest.raises(InvalidArgumentException):
        await now(box.files.write(f"{folder}/h", "x", metadata={"big": "x" * 5000}))


async def test_users_and_permissions(box, folder):
    await now(box.files.write("/root/secret", "s", user="root"))
    assert await now(box.files.read("/root/secret", user="root")) == "s"
    await now(box.files.write(f"{folder}/mine", "x"))
    assert re.fullmatch(r"-rw-r--r--", (await now(box.files.get_info(f"{folder}/mine"))).permissions)
    with pytest.raises(AuthenticationException):
        await now(box.files.read("/tmp/x", user="nobody-of-that-name"))


async def test_what_can_not_be_read_or_written(box, folder):
    await now(box.files.make_dir(f"{folder}/dir"))
    with pytest.raises(FileNotFoundException, match="missing"):
        await now(box.files.read(f"{folder}/missing"))
    with pytest.raises(InvalidArgumentException):
        await now(box.files.read(f"{folder}/dir"))
    with pytest.raises((InvalidArgumentException, SandboxException)):
        await now(box.files.write(f"{folder}/dir", "x"))
    await now(box.files.write(f"{folder}/file", "x"))
    with pytest.raises((InvalidArgumentException, SandboxException)):
        await now(box.files.write(f"{folder}/file/below", "x"))


@pytest.mark.parametrize("name", ["with space", "ünïcode €", "quote'\"", "percent%20", "plus+and&amp", "#hash?"])
async def test_odd_names(box, folder, name):
    await now(box.files.write(f"{folder}/{name}", name))
    assert await now(box.files.read(f"{folder}/{name}")) == name
    assert [entry.name for entry in await now(box.files.list(folder))] == [name]
    renamed = await now(box.files.rename(f"{folder}/{name}", f"{folder}/{name}2"))
    assert renamed.name == f"{name}2"
