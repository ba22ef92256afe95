"""Files of the blocking SDK, as the sandbox's own user and as a chosen identity."""

from __future__ import annotations

import hashlib
import io
import os
from datetime import timedelta

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
from support import now, out, refused, unique
from surface import covers


@pytest.fixture(scope="module")
def user_ids(box) -> tuple[int, int]:
    uid, gid = out(box.commands.run("id -u user; id -g user")).split()
    return int(uid), int(gid)


@pytest.fixture(params=["own", "identity"])
def files(request, box, user_ids):
    """The file service twice: plain, and acting as ``user``."""
    return box.files if request.param == "own" else box.files_with_identity(*user_ids)


@pytest.fixture
def place(box) -> str:
    """A fresh directory that ``user`` owns."""
    path = f"/tmp/{unique('files')}"
    box.commands.run(f"mkdir {path} && chown user {path}")
    return path


@covers("FilesystemSync.write_file", "FilesystemSync.read_file")
def test_text_round_trip(box, files, place):
    path = f"{place}/new/deep/note.txt"
    files.write_file(path, "héllo\nworld\n")
    assert files.read_file(path) == "héllo\nworld\n"
    assert out(box.commands.run(f"cat {path}")) == "héllo\nworld"
    files.write_file(path, "kürzer", encoding="latin-1")
    assert files.read_file(path, encoding="latin-1") == "kürzer"
    assert files.read_bytes(path) == "kürzer".encode("latin-1")
    files.write_file(path, "")
    assert files.read_file(path) == ""


@covers("FilesystemSync.read_bytes", "FilesystemSync.read_bytes_stream")
def test_binary_round_trip(box, files, place):
    path = f"{place}/blob"
    data = os.urandom(3 << 20) + bytes(range(256)) + b"\r\n--boundary--\r\n"
    files.write_file(path, data)
    assert files.read_bytes(path) == data
    chunks = list(files.read_bytes_stream(path, chunk_size=65536))
    assert b"".join(chunks) == data and len(chunks) > 1
    digest = out(box.commands.run(f"sha256sum {path}")).split()[0]
    assert digest == hashlib.sha256(data).hexdigest()
    stream = io.BytesIO(data)
    files.write_file(path, stream)
    assert files.read_bytes(path) == data


def test_parts_of_a_file(files, place):
    path = f"{place}/parts"
    files.write_file(path, "0123456789\nsecond\nthird\n")
    assert files.read_bytes(path, range_header="bytes=2-4") == b"234"
    assert files.read_bytes(path, range_header="bytes=-6") == b"third\n"
    assert files.read_file(path, range_header="bytes=18-") == "third\n"
    assert b"".join(files.read_bytes_stream(path, range_header="bytes=0-0")) == b"0"
    assert files.read_file(path, offset=2, limit=1) == "second"
    assert files.read_file(path, offset=2) == "second\nthird"
    assert files.read_file(path, limit=2) == "0123456789\nsecond"
    with refused(416):
        files.read_bytes(path, range_header="bytes=1000-")
    with refused(400):
        files.read_bytes(path, range_header="bytes=0-1", offset=1)
    with refused(404, "FILE_NOT_FOUND"):
        files.read_bytes(f"{place}/absent")


@covers("FilesystemSync.write_files")
def test_many_files_in_one_call(files, place):
    entries = [WriteEntry(path=f"{place}/{n}.txt", data=f"file {n}") for n in range(20)]
    entries.append(WriteEntry(path=f'{place}/odd "name" ü.bin', data=b"\x00\x01", mode=640))
    files.write_files(entries)
    for n in range(20):
        assert files.read_file(f"{place}/{n}.txt") == f"file {n}"
    assert files.read_bytes(f'{place}/odd "name" ü.bin') == b"\x00\x01"
    with pytest.raises(InvalidArgumentException):
        files.write_files([WriteEntry(path=f"{place}/none", data=None)])


@covers("FilesystemSync.get_file_info")
def test_file_info(box, files, place, user_ids):
    path, link = f"{place}/info", f"{place}/link"
    files.write_file(path, "12345", mode=640)
    box.commands.run(f"ln -s {path} {link}")
    found = files.get_file_info([path, place, link])
    assert set(found) == {path, place, link}
    about = found[path]
    assert (about.path, about.entry_type, about.size, about.mode) == (path, "file", 5, 640)
    for moment in (about.modified_at, about.created_at):
        assert abs(moment - now()) < timedelta(minutes=2)
    assert found[place].entry_type == "directory" and found[place].owner == "user"
    assert found[link].entry_type == "symlink"
    with refused(404, "FILE_NOT_FOUND"):
        files.get_file_info([path, f"{place}/absent"])


def test_mode_defaults_to_755(files, place):
    files.write_file(f"{place}/plain", "x")
    assert files.get_file_info([f"{place}/plain"])[f"{place}/plain"].mode == 755


@covers("FilesystemSync.create_directories", "FilesystemSync.delete_directories")
def test_directories(files, place):
    deep, kept = f"{place}/a/b/c", f"{place}/kept"
    files.create_directories([WriteEntry(path=deep, mode=750), WriteEntry(path=kept, mode=700)])
    found = files.get_file_info([deep, kept])
    assert found[deep].entry_type == "directory" and found[deep].mode == 750
    assert found[kept].mode == 700
    files.create_directories([WriteEntry(path=kept, mode=755)])
    assert files.get_file_info([kept])[kept].mode == 700, "an existing directory keeps its mode"
    files.write_file(f"{deep}/file", "x")
    files.delete_directories([f"{place}/a", f"{place}/never"])
    with refused(404):
        files.get_file_info([f"{place}/a"])
    assert files.get_file_info([kept])


@covers("FilesystemSync.delete_files")
def test_delete_files(files, place):
    files.write_file(f"{place}/one", "1")
    files.write_file(f"{place}/two", "2")
    files.delete_files([f"{place}/one", f"{place}/absent", f"{place}/two"])
    assert files.list_directory(DirectoryListEntry(path=place)) == []
    with refused((400, 500)):
        files.delete_files([place])
    assert files.get_file_info([place])


@covers("FilesystemSync.move_files")
def test_move_files(files, place):
    files.write_file(f"{place}/from", "moved")
    files.move_files([MoveEntry(src=f"{place}/from", dest=f"{place}/new/to")])
    assert files.read_file(f"{place}/new/to") == "moved"
    with refused(404):
        files.move_files([MoveEntry(src=f"{place}/from", dest=f"{place}/else")])
    files.write_file(f"{place}/taken", "kept")
    with refused((400, 409, 500)):
        files.move_files([MoveEntry(src=f"{place}/new/to", dest=f"{place}/taken")])
    assert files.read_file(f"{place}/taken") == "kept"
    files.move_files([MoveEntry(src=f"{place}/new", dest=f"{place}/renamed")])
    assert files.read_file(f"{place}/renamed/to") == "moved"


@covers("SandboxSync.files", "FilesystemSync.set_permissions")
def test_permissions_and_owners(box, place):
    path = f"{place}/owned"
    box.files.write_file(path, "x", mode=600, owner="user")
    assert box.files.get_file_info([path])[path].owner == "user"
    box.files.set_permissions([SetPermissionEntry(path=path, mode=644, owner="nobody", group="nogroup")])
    about = box.files.get_file_info([path])[path]
    assert (about.mode, about.owner, about.group) == (644, "nobody", "nogroup")
    box.files.set_permissions([SetPermissionEntry(path=path, mode=0, owner="0")])
    about = box.files.get_file_info([path])[path]
    assert (about.mode, about.owner, about.group) == (644, "root", "nogroup")
    with refused((400, 404, 500)):
        box.files.set_permissions([SetPermissionEntry(path=f"{place}/absent", mode=644)])
    with refused((400, 404, 500)):
        box.files.set_permissions([SetPermissionEntry(path=path, mode=644, owner="no-such-user")])


@covers("FilesystemSync.search")
def test_search(files, place):
    for name in ("a.py", "sub/b.py", "sub/deep/c.py", "sub/d.txt", "e.pyc"):
        files.write_file(f"{place}/{name}", name)

    def found(pattern, path=place):
        return sorted(
            entry.path.removeprefix(f"{place}/")
            for entry in files.search(SearchEntry(path=path, pattern=pattern))
        )

    assert found("*.py") == ["a.py", "sub/b.py", "sub/deep/c.py"]
    assert found("d.*") == ["sub/d.txt"]
    assert found("[ae].*") == ["a.py", "e.pyc"]
    assert found("*.rs") == []
    assert found("*.py", f"{place}/sub/deep") == ["sub/deep/c.py"]
    assert len(found("**")) == 5
    with refused(404):
        files.search(SearchEntry(path=f"{place}/absent", pattern="*"))


@covers("FilesystemSync.list_directory")
def test_list_directory(box, files, place):
    for name in ("b.txt", "a/x.txt", "a/y/z.txt"):
        files.write_file(f"{place}/{name}", "1")
    box.commands.run(f"ln -s b.txt {place}/c")

    def listed(**options):
        entries = files.list_directory(DirectoryListEntry(path=place, **options))
        return [(entry.path.removeprefix(f"{place}/"), entry.entry_type) for entry in entries]

    children = [("a", "directory"), ("b.txt", "file"), ("c", "symlink")]
    assert listed() == children == listed(depth=1)
    assert listed(depth=0) == []
    assert [path for path, _ in listed(depth=2)] == ["a", "a/x.txt", "a/y", "b.txt", "c"]
    assert ("a/y/z.txt", "file") in listed(depth=9)
    with refused(400):
        files.list_directory(DirectoryListEntry(path=f"{place}/b.txt"))
    with refused(404):
        files.list_directory(DirectoryListEntry(path=f"{place}/absent"))


@covers("FilesystemSync.replace_contents", "FilesystemSync.replace_contents_detailed")
def test_replace_contents(files, place):
    one, two = f"{place}/one", f"{place}/two"
    files.write_file(one, "cat dog cat\ncat")
    files.write_file(two, "nothing")
    files.replace_contents([ContentReplaceEntry(path=one, old_content="dog", new_content="$1 \\n")])
    assert files.read_file(one) == "cat $1 \\n cat\ncat"
    counts = files.replace_contents_detailed(
        [
            ContentReplaceEntry(path=one, old_content="cat", new_content="bird"),
            ContentReplaceEntry(path=two, old_content="cat", new_content="bird"),
        ]
    )
    assert {entry.path: entry.replaced_count for entry in counts} == {one: 3, two: 0}
    assert files.read_file(one) == "bird $1 \\n bird\nbird"
    assert files.read_file(two) == "nothing"
    with refused(400):
        files.replace_contents([ContentReplaceEntry(path=one, old_content="", new_content="x")])
    with refused((400, 404, 500)):
        files.replace_contents(
            [ContentReplaceEntry(path=f"{place}/absent", old_content="a", new_content="b")]
        )


def test_home_and_variables_are_expanded(box):
    name = unique("home")
    box.files.write_file(f"~/{name}", "tilde")
    assert out(box.commands.run(f"cat ~/{name}")) == "tilde"
    assert box.files.read_file(f"$HOME/{name}") == "tilde"
    box.files.delete_files([f"~/{name}"])


def test_relative_paths_mean_one_place(box):
    name = unique("relative")
    box.files.write_file(name, "here")
    assert box.files.read_file(name) == "here"
    box.files.delete_files([name])


@covers("SandboxSync.files_with_identity")
def test_identity_acts_with_that_users_rights(box, user_ids, place):
    mine = box.files_with_identity(*user_ids)
    mine.write_file(f"{place}/mine", "x", mode=600)
    assert out(box.commands.run(f"stat -c '%u %g' {place}/mine")) == f"{user_ids[0]} {user_ids[1]}"
    secret = f"{place}/secret"
    box.files.write_file(secret, "root only", mode=600)
    box.commands.run(f"chown 0:0 {secret}")
    with refused((400, 403, 500)):
        mine.read_file(secret)
    with refused((400, 403, 500)):
        mine.write_file(f"/etc/{unique('x')}", "no")
    with refused((400, 403, 500)):
        mine.set_permissions([SetPermissionEntry(path=secret, mode=644)])
    assert box.files.read_file(secret) == "root only"
    with pytest.raises(InvalidArgumentException):
        box.files_with_identity(-1, 0)
