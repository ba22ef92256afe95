"""Signed addresses for files: for whoever holds them, for one file, for a while."""

from __future__ import annotations

import time
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from e2b_code_interpreter import InvalidArgumentException, get_signature
from support import access_token, assert_error, now, unique
from surface import covers


def changed(url: str, **changes: str | None) -> str:
    """The address with some of its query replaced; None removes."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    query.update(changes)
    return parts._replace(query=urlencode({k: v for k, v in query.items() if v is not None})).geturl()


@covers("Sandbox.download_url")
async def test_downloads(box):
    path = f"/home/user/{unique('get file')}"
    await now(box.files.write(path, "to be fetched"))
    for options in ({}, {"user": "root"}, {"use_signature_expiration": 60}):
        answer = httpx.get(box.download_url(path, **options))
        assert answer.status_code == 200 and answer.text == "to be fetched", answer.text
    relative = path.rsplit("/", 1)[1]
    assert httpx.get(box.download_url(relative)).text == "to be fetched"
    assert_error(httpx.get(box.download_url(f"{path}.missing")), 404)


@covers("Sandbox.upload_url")
async def test_uploads(box):
    path = f"/home/user/{unique('put')}"
    for options in ({}, {"use_signature_expiration": 60}):
        answer = httpx.post(box.upload_url(path, **options), files={"file": ("name", b"brought")})
        assert answer.status_code == 200, answer.text
        assert answer.json()[0]["path"] == path
        assert await now(box.files.read(path)) == "brought"
    raw = httpx.post(
        box.upload_url(path), content=b"as a stream", headers={"content-type": "application/octet-stream"}
    )
    assert raw.status_code == 200 and await now(box.files.read(path)) == "as a stream"
    as_root = httpx.post(box.upload_url("/root/put", user="root"), files={"file": b"r"})
    assert as_root.status_code == 200 and (await now(box.files.get_info("/root/put", user="root"))).owner == "root"


async def test_an_expired_address(box):
    path = f"/home/user/{unique('old')}"
    await now(box.files.write(path, "too late"))
    for url, send in (
        (box.download_url(path, use_signature_expiration=-5), httpx.get),
        (box.upload_url(path, use_signature_expiration=-5), lambda url: httpx.post(url, files={"file": b"x"})),
    ):
        answer = send(url)
        assert answer.status_code == 401
        assert answer.json() == {"code": 401, "message": "signature is already expired"}
    later = box.download_url(path, use_signature_expiration=-5)
    prolonged = changed(later, signature_expiration=str(int(time.time()) + 600))
    assert_error(httpx.get(prolonged), 401)
    assert_error(httpx.get(changed(later, signature_expiration=None)), 401)


async def test_forged_addresses(box):
    path = f"/home/user/{unique('kept')}"
    await now(box.files.write(path, "kept"))
    url = box.download_url(path)
    for forged in (
        changed(url, signature=None),
        changed(url, signature="v1_nonsense"),
        changed(url, signature=""),
        changed(url, path="/etc/passwd"),
        changed(url, path=f"{path}/../other"),
        changed(url, username="root"),
        changed(url, signature_expiration=str(int(time.time()) + 600)),
        changed(url, signature_expiration="soon"),
    ):
        answer = httpx.get(forged)
        assert answer.status_code in (400, 401) and "kept" not in answer.text, f"{forged}: {answer.text}"
    assert_error(httpx.post(url, files={"file": b"overwritten"}), 401)
    assert_error(httpx.get(box.upload_url(path)), 401)
    assert await now(box.files.read(path)) == "kept"


async def test_addresses_end_with_the_sandbox(flavour, garden):
    box = await flavour.create(garden)
    await now(box.files.write("/tmp/f", "x"))
    url = box.download_url("/tmp/f")
    assert httpx.get(url).text == "x"
    await now(box.pause())
    assert httpx.get(url).status_code in (401, 502), "a paused sandbox gives nothing"
    await now(box.connect())
    assert httpx.get(url).text == "x", "the token is the same after a pause"
    await now(box.kill())
    assert httpx.get(url).status_code in (401, 502)


async def test_two_sandboxes_with_the_same_path(flavour, garden):
    boxes = [await flavour.create(garden) for _ in range(2)]
    for n, each in enumerate(boxes):
        await now(each.files.write("/tmp/same", str(n)))
    assert [httpx.get(each.download_url("/tmp/same")).text for each in boxes] == ["0", "1"]


def test_the_signature_is_of_the_path_as_given(plain):
    plain.files.write("/tmp/s", "x")
    signature = get_signature("/tmp/s", "read", None, access_token(plain))["signature"]
    assert plain.download_url("/tmp/s").endswith(urlencode({"signature": signature}))
    with pytest.raises((ValueError, InvalidArgumentException)):
        get_signature("/tmp/s", "read", None, None)


def test_ranges_and_conditions(plain):
    plain.files.write("/tmp/ranged", "0123456789")
    url = plain.download_url("/tmp/ranged")
    part = httpx.get(url, headers={"Range": "bytes=2-4"})
    assert part.status_code == 206 and part.text == "234"
    assert httpx.get(url, headers={"Range": "bytes=50-60"}).status_code == 416
    whole = httpx.get(url)
    assert whole.headers["content-length"] == "10" and "inline" in whole.headers["content-disposition"]
    same = httpx.get(url, headers={"If-Modified-Since": whole.headers["last-modified"]})
    assert same.status_code == 304
    zipped = httpx.get(url, headers={"Accept-Encoding": "gzip"})
    assert zipped.text == "0123456789"
    assert httpx.get(url, headers={"Accept-Encoding": "identity;q=0"}).status_code == 406


def test_browsers_may_use_them(plain):
    plain.files.write("/tmp/cors", "x")
    answer = httpx.get(plain.download_url("/tmp/cors"), headers={"Origin": "http://app.example"})
    assert answer.headers.get("access-control-allow-origin") in ("*", "http://app.example")
