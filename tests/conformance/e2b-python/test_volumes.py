"""Volumes: their own API, their content, and mounts in sandboxes."""

from __future__ import annotations

import io
import os
from datetime import timedelta

import httpx
import pytest
from e2b_code_interpreter import (
    VolumeException,
    VolumeFileType,
    VolumeNotFoundException,
    VolumePathNotFoundException,
)
from support import assert_error, moment, now, refused, required, unique
from surface import covers


@pytest.fixture
async def volume(flavour, garden):
    made = await now(flavour.Volume.create(unique("vol")))
    garden.remove_later(f"/volumes/{made.volume_id}")
    return made


@covers(
    "Volume.create",
    "Volume.connect",
    "Volume.get_info",
    "Volume.list",
    "Volume.destroy",
    "Volume.name",
    "Volume.token",
    "Volume.volume_id",
)
async def test_life_of_a_volume(flavour, garden):
    Volume, name = flavour.Volume, unique("vol")
    made = await now(Volume.create(name))
    garden.remove_later(f"/volumes/{made.volume_id}")
    assert made.name == name and made.token and made.volume_id
    assert (name, made.volume_id) in [(info.name, info.volume_id) for info in await now(Volume.list())]
    info = await now(Volume.get_info(made.volume_id))
    assert (info.name, info.volume_id) == (name, made.volume_id) and info.token
    again = await now(Volume.connect(made.volume_id))
    await now(again.write_file("/x", "same"))
    assert await now(made.read_file("/x")) == "same"
    with refused(400, 409, error=VolumeException):
        await now(Volume.create(name))
    assert await now(Volume.destroy(made.volume_id)) is True
    assert await now(Volume.destroy(made.volume_id)) is False
    for call in (lambda: Volume.get_info(made.volume_id), lambda: Volume.connect(made.volume_id)):
        with pytest.raises(VolumeNotFoundException):
            await now(call())
    assert made.volume_id not in [info.volume_id for info in await now(Volume.list())]


@pytest.mark.parametrize("name", ["", "has space", "../up", "a/b", "x" * 300])
async def test_bad_names(flavour, name):
    with refused(400, 422, error=VolumeException):
        await now(flavour.Volume.create(name))


@covers("Volume.write_file", "Volume.read_file")
async def test_content(volume):
    text = "grüß €\n"
    written = await now(volume.write_file("/text", text))
    assert (written.name, written.path, written.type) == ("text", "/text", VolumeFileType.FILE)
    assert written.size == len(text.encode())
    assert await now(volume.read_file("/text")) == text
    blob = os.urandom(1_200_000)
    await now(volume.write_file("/blob", io.BytesIO(blob)))
    assert await now(volume.read_file("/blob", format="bytes")) == blob
    stream = await now(volume.read_file("/blob", format="stream"))
    parts = [part async for part in stream] if hasattr(stream, "__aiter__") else list(stream)
    assert b"".join(parts) == blob
    await now(volume.write_file("/text", "", force=True))
    assert await now(volume.read_file("/text")) == ""
    for missing in ("/missing", "/no/folder/file"):
        with pytest.raises(VolumePathNotFoundException):
            await now(volume.read_file(missing))


@covers("Volume.make_dir", "Volume.list", "Volume.exists", "Volume.get_info", "Volume.remove")
async def test_folders(volume):
    made = await now(volume.make_dir("/a", mode=0o750))
    assert (made.type, made.mode & 0o777, made.path) == (VolumeFileType.DIRECTORY, 0o750, "/a")
    with pytest.raises((VolumePathNotFoundException, VolumeException)):
        await now(volume.make_dir("/no/parents"))
    await now(volume.make_dir("/b/c/d", force=True))
    await now(volume.write_file("/b/c/file", "x"))
    assert [entry.path for entry in await now(volume.list("/"))] == ["/a", "/b"]
    deep = {entry.path for entry in await now(volume.list("/", depth=3))}
    assert deep == {"/a", "/b", "/b/c", "/b/c/d", "/b/c/file"}
    assert await now(volume.exists("/b/c/file")) is True
    assert await now(volume.exists("/b/c/other")) is False
    info = await now(volume.get_info("/b/c/file"))
    assert (info.name, info.type, info.size) == ("file", VolumeFileType.FILE, 1)
    for time in (info.atime, info.mtime, info.ctime):
        assert abs(time - moment()) < timedelta(seconds=60)
    await now(volume.remove("/b"))
    assert await now(volume.exists("/b")) is False
    for call in (
        lambda: volume.remove("/b"),
        lambda: volume.list("/b"),
        lambda: volume.get_info("/b"),
        lambda: volume.update_metadata("/b", mode=0o600),
    ):
        with pytest.raises(VolumePathNotFoundException):
            await now(call())


@covers("Volume.update_metadata")
async def test_owners_and_modes(volume):
    made = await now(volume.write_file("/f", "x", uid=1000, gid=1001, mode=0o600))
    assert (made.uid, made.gid, made.mode & 0o777) == (1000, 1001, 0o600)
    changed = await now(volume.update_metadata("/f", uid=0, mode=0o640))
    assert (changed.uid, changed.gid, changed.mode & 0o777) == (0, 1001, 0o640)
    assert (await now(volume.get_info("/f"))).mode & 0o777 == 0o640


async def test_a_mount_outlives_its_sandboxes(flavour, garden, volume):
    writer = await flavour.create(garden, volume_mounts={"/mnt/data": volume})
    assert (await now(writer.get_info())).volume_mounts == [{"name": volume.name, "path": "/mnt/data"}]
    await now(writer.files.write("/mnt/data/hello", "by the writer"))
    await now(writer.commands.run("echo by the shell > /mnt/data/shell"))
    assert await now(volume.read_file("/hello")) == "by the writer"
    await now(volume.write_file("/outside", "from outside", uid=1000, gid=1000, mode=0o600))
    assert await now(writer.files.read("/mnt/data/outside")) == "from outside"
    owner = await now(writer.commands.run("stat -c '%u %g %a' /mnt/data/outside", user="root"))
    assert owner.stdout == "1000 1000 600\n"
    reader = await flavour.create(garden, volume_mounts={"/data": volume.name})
    assert await now(reader.files.read("/data/shell")) == "by the shell\n"
    await now(writer.kill())
    assert await now(reader.files.read("/data/hello")) == "by the writer"


async def test_a_mount_survives_a_pause(flavour, garden, volume):
    box = await flavour.create(garden, volume_mounts={"/data": volume})
    await now(box.files.write("/data/f", "x"))
    await now(box.pause())
    await now(volume.write_file("/g", "y"))
    await now(box.connect())
    assert await now(box.files.read("/data/f")) == "x" and await now(box.files.read("/data/g")) == "y"


async def test_bad_mounts(flavour, garden, volume):
    for mounts in ({"/data": unique("missing")}, {"relative": volume}, {"/a/../b": volume}, {"/": volume}):
        with refused(400):
            garden.adopt(await now(flavour.Sandbox.create("base", volume_mounts=mounts)))


@pytest.mark.parametrize("path", ["../up", "/../../etc/passwd", "/a/../../etc/passwd", "/%2e%2e/x\0y", ""])
async def test_content_stays_in_the_volume(volume, path):
    headers = {"Authorization": f"Bearer {volume.token}"}
    with httpx.Client(base_url=required("E2B_VOLUME_API_URL"), headers=headers) as http:
        answer = http.get(f"/volumecontent/{volume.volume_id}/file", params={"path": path})
        assert answer.status_code in (400, 404), answer.text
        put = http.put(f"/volumecontent/{volume.volume_id}/file", params={"path": path}, content=b"x")
        assert put.status_code in (201, 400, 404), put.text
    if put.status_code == 201:
        assert len(await now(volume.list("/", depth=5))) > 0, "it was kept inside"


async def test_links_do_not_lead_out_of_a_volume(flavour, garden, volume, tmp_path):
    """A link made inside, to a file of the machine that the server runs on."""
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    box = await flavour.create(garden, volume_mounts={"/data": volume})
    await now(box.commands.run(f"ln -s {secret} /data/link; ln -s {tmp_path} /data/folder"))
    for path in ("/link", "/folder/secret"):
        try:
            assert "of the host" not in await now(volume.read_file(path))
        except (VolumeException, VolumePathNotFoundException):
            pass
    link = await now(volume.get_info("/link"))
    assert link.type == VolumeFileType.SYMLINK and link.target == str(secret)
    for path in ("/folder/escaped", "/link"):
        try:
            await now(volume.write_file(path, "escaped", force=True))
        except (VolumeException, VolumePathNotFoundException):
            pass
    assert secret.read_text() == "of the host" and [entry.name for entry in tmp_path.iterdir()] == ["secret"]


async def test_tokens_open_one_volume_only(flavour, garden, settings, volume):
    other = await now(flavour.Volume.create(unique("vol")))
    garden.remove_later(f"/volumes/{other.volume_id}")
    url = f"{required('E2B_VOLUME_API_URL')}/volumecontent/{volume.volume_id}/dir?path=/"
    for token in (other.token, settings.other_key, "nonsense", ""):
        answer = httpx.get(url, headers={"Authorization": f"Bearer {token}"} if token else {})
        assert answer.status_code in (401, 403, 404), f"{token!r}: {answer.text}"
    assert httpx.get(url, headers={"Authorization": f"Bearer {volume.token}"}).status_code == 200


async def test_another_tenant_sees_nothing(flavour, settings, volume, garden):
    key = settings.other_key
    assert volume.volume_id not in [info.volume_id for info in await now(flavour.Volume.list(api_key=key))]
    with pytest.raises(VolumeNotFoundException):
        await now(flavour.Volume.get_info(volume.volume_id, api_key=key))
    assert await now(flavour.Volume.destroy(volume.volume_id, api_key=key)) is False
    with refused(400):
        await now(flavour.Sandbox.create("base", volume_mounts={"/data": volume.name}, api_key=key))
    twin = await now(flavour.Volume.create(volume.name, api_key=key))
    garden.remove_later(f"/volumes/{twin.volume_id}", key)
    assert twin.volume_id != volume.volume_id


def test_the_control_api_speaks_json(http):
    assert_error(http.post("/volumes", json={}), (400, 422))
    assert_error(http.post("/volumes", content=b"{", headers={"content-type": "application/json"}), (400, 422))
    assert_error(http.get("/volumes/nosuchvolume"), 404)
