"""Wrong requests to the daemon in a sandbox: frames, types, paths; it answers and lives on."""

from __future__ import annotations

import base64
import json
import struct

import httpx
import pytest
from support import ENVD_PORT, assert_error, unique

STREAM, UNARY = "application/connect+json", "application/json"
#: Codes for a request that can't be understood.
WRONG = ("invalid_argument", "unimplemented", "internal", "unknown", "not_found", "resource_exhausted")
START = {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "echo hello"]}, "stdin": False}


def frame(message, flags: int = 0) -> bytes:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data)) + data


def frames(data: bytes) -> list[tuple[int, dict]]:
    """All frames of a stream; what is left over is a failure."""
    found = []
    while data:
        flags, size = struct.unpack(">BI", data[:5])
        assert len(data) >= 5 + size, "the last frame is cut"
        found.append((flags, json.loads(data[5 : 5 + size])))
        data = data[5 + size :]
    return found


@pytest.fixture
def envd(plain, settings):
    with settings.port(plain, ENVD_PORT) as client:
        yield client
    assert plain.commands.run("echo alive").stdout == "alive\n", "the daemon has survived"


def stream(envd, method: str, body: bytes, content_type: str = STREAM, **headers) -> httpx.Response:
    return envd.post(f"/{method}", content=body, headers={"content-type": content_type, **headers})


def in_band_error(answer: httpx.Response) -> str:
    """Streams fail inside: 200, then an end frame with the error; gives its code."""
    assert answer.status_code == 200, f"{answer.status_code}: {answer.text}"
    assert answer.headers["content-type"] == STREAM
    flags, last = frames(answer.content)[-1]
    assert flags == 2 and last["error"]["message"], last
    return last["error"]["code"]


def test_a_stream_as_it_should_be(envd):
    answer = stream(envd, "process.Process/Start", frame(START), **{"connect-protocol-version": "1"})
    assert answer.status_code == 200 and answer.headers["content-type"] == STREAM, "exactly, without a charset"
    got = frames(answer.content)
    events = [message["event"] for flags, message in got if flags == 0]
    assert "start" in events[0] and events[0]["start"]["pid"] > 0
    out = b"".join(base64.b64decode(e["data"]["stdout"]) for e in events if "stdout" in e.get("data", {}))
    assert out == b"hello\n" and "end" in events[-1]
    assert events[-1]["end"].get("exitCode", 0) == 0 and events[-1]["end"]["exited"] is True
    assert got[-1][0] == 2 and "error" not in got[-1][1]


def test_headers_of_the_python_sdk_are_taken(envd):
    identity = {"connect-content-encoding": "identity", "connect-timeout-ms": "5000"}
    assert frames(stream(envd, "process.Process/Start", frame(START), **identity).content)[-1] == (2, {})
    answer = envd.post("/process.Process/List", json={}, headers={"content-encoding": "identity"})
    assert answer.status_code == 200 and answer.headers["content-type"].startswith(UNARY)


def test_snake_case_is_understood(envd):
    answer = envd.post("/filesystem.Filesystem/Stat", json={"path": "/tmp", "unknown_field": 1})
    assert answer.status_code == 200 and answer.json()["entry"]["type"] == "FILE_TYPE_DIRECTORY"
    made = envd.post("/filesystem.Filesystem/CreateWatcher", json={"path": "/tmp", "include_entry": True}).json()
    watcher = made.get("watcherId") or made["watcher_id"]
    assert watcher.startswith("w")
    assert envd.post("/filesystem.Filesystem/RemoveWatcher", json={"watcher_id": watcher}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        b"\0\0\0\0\5{",
        frame(b"not json"),
        frame(b"[]"),
        frame({"process": 7}),
        frame({"process": {"cmd": 7}}),
        frame({}),
        b"\0\xff\xff\xff\xff",
        struct.pack(">BI", 0, 1 << 30) + b"{}",
        frame(START, flags=1),
        frame(START, flags=64),
    ],
    ids=lambda body: f"{body[:12]!r}-{len(body)}",
)
def test_malformed_frames(envd, body):
    try:
        answer = stream(envd, "process.Process/Start", body)
    except httpx.TransportError:
        return  # hanging up on a frame that can't end is a refusal too
    if answer.status_code == 200:
        assert in_band_error(answer) in WRONG
    else:
        assert 400 <= answer.status_code < 500, answer.text


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/proto", "application/connect+proto", "application/grpc", ""]
)
def test_wrong_content_types(envd, content_type):
    for method, body in (
        ("process.Process/Start", frame(START)),
        ("process.Process/List", b"{}"),
        ("filesystem.Filesystem/Stat", b'{"path": "/tmp"}'),
    ):
        answer = envd.post(f"/{method}", content=body, headers={"content-type": content_type})
        assert 400 <= answer.status_code < 500, f"{method} {content_type}: {answer.status_code}"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b'{"path": 7}', b'{"path": "/tmp", "depth": -1}'])
def test_malformed_unary_requests(envd, body):
    answer = envd.post("/filesystem.Filesystem/ListDir", content=body, headers={"content-type": UNARY})
    if body == b"":
        assert answer.status_code in (200, 400), answer.text
        return
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "invalid_argument" and answer.json()["message"]


@pytest.mark.parametrize(
    ("method", "body", "status", "code"),
    [
        ("filesystem.Filesystem/Stat", {"path": "/no/such"}, 404, "not_found"),
        ("filesystem.Filesystem/ListDir", {"path": "/etc/passwd"}, 400, "invalid_argument"),
        ("filesystem.Filesystem/MakeDir", {"path": "/tmp"}, 409, "already_exists"),
        ("filesystem.Filesystem/Move", {"source": "/no/such", "destination": "/tmp/x"}, 404, "not_found"),
        ("filesystem.Filesystem/GetWatcherEvents", {"watcherId": "wnosuch"}, 404, "not_found"),
        ("process.Process/SendSignal", {"process": {"pid": 999999}, "signal": "SIGNAL_SIGKILL"}, 404, "not_found"),
        ("process.Process/SendInput", {"process": {"pid": 999999}, "input": {"stdin": "eA=="}}, 404, "not_found"),
        ("process.Process/Update", {"process": {"pid": 999999}}, 404, "not_found"),
        ("process.Process/CloseStdin", {"process": {"tag": "nobody"}}, 404, "not_found"),
        ("process.Process/SendSignal", {"process": {"pid": 1}, "signal": "SIGNAL_SIGKILL"}, 404, "not_found"),
    ],
)
def test_errors_of_unary_calls(envd, method, body, status, code):
    answer = envd.post(f"/{method}", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["code"] == code and answer.json()["message"]


@pytest.mark.parametrize(
    ("method", "message", "code"),
    [
        ("process.Process/Connect", {"process": {"pid": 999999}}, "not_found"),
        ("filesystem.Filesystem/WatchDir", {"path": "/no/such"}, "not_found"),
        ("filesystem.Filesystem/WatchDir", {"path": "/etc/passwd"}, "invalid_argument"),
        (
            "process.Process/Start",
            {"process": {"cmd": "/bin/bash", "args": [], "cwd": "/no/such"}},
            "invalid_argument",
        ),
    ],
)
def test_errors_of_streams_are_inside(envd, method, message, code):
    assert in_band_error(stream(envd, method, frame(message))) == code


def test_a_program_that_is_not_there(envd):
    answer = stream(envd, "process.Process/Start", frame({"process": {"cmd": "/no/such/program"}}))
    assert in_band_error(answer) in ("invalid_argument", "not_found", "internal", "unknown")


@pytest.mark.parametrize("path", ["/process.Process/Nothing", "/filesystem.Filesystem/", "/nothing.At/All", "/x"])
def test_unknown_calls(envd, path):
    assert envd.post(path, json={}).status_code in (404, 405, 501)
    assert envd.get(path).status_code in (404, 405, 501)


def test_a_deadline_is_told_inside(envd):
    slow = {"process": {"cmd": "/bin/sleep", "args": ["1000"]}}
    answer = stream(envd, "process.Process/Start", frame(slow), **{"connect-timeout-ms": "500"})
    assert in_band_error(answer) == "deadline_exceeded"
    bad = stream(envd, "process.Process/Start", frame(START), **{"connect-timeout-ms": "soon"})
    assert bad.status_code in (200, 400)


def test_keepalives_come_after_the_start(envd):
    slow = {"process": {"cmd": "/bin/sleep", "args": ["2.5"]}}
    answer = stream(envd, "process.Process/Start", frame(slow), **{"keepalive-ping-interval": "1"})
    kinds = [next(iter(message["event"])) for flags, message in frames(answer.content) if flags == 0]
    assert kinds[0] == "start" and kinds[-1] == "end" and "keepalive" in kinds[1:-1]


@pytest.mark.parametrize("user", ["nobody-of-that-name", "../root", "a:b", "x" * 500])
def test_unknown_users(envd, user):
    basic = base64.b64encode(f"{user}:".encode()).decode()
    answer = stream(envd, "process.Process/Start", frame(START), authorization=f"Basic {basic}")
    if answer.status_code == 200:
        assert in_band_error(answer) == "unauthenticated"
    else:
        assert answer.status_code == 401, answer.text
    assert_error(envd.get("/files", params={"path": "/tmp/x", "username": user}), (400, 401))


def test_files_that_can_not_be_had(envd):
    assert_error(envd.get("/files", params={"path": "/no/such"}), 404)
    assert_error(envd.get("/files", params={"path": "/tmp"}), 400)
    assert_error(envd.get("/files", params={"path": "/tmp/a\0b"}), (400, 404))
    assert_error(envd.get("/files", params={"path": "/" + "x/" * 3000}), (400, 404, 500))


def test_uploads_of_the_wrong_kind(envd):
    target = {"path": f"/tmp/{unique('up')}"}
    for content_type, body in (
        ("text/plain", b"x"),
        ("application/json", b"{}"),
        ("multipart/form-data", b"no boundary"),
        ("multipart/form-data; boundary=x", b"--y\r\nnonsense"),
    ):
        answer = envd.post("/files", params=target, content=body, headers={"content-type": content_type})
        assert_error(answer, (400, 415))
    assert_error(envd.post("/files", content=b"x", headers={"content-type": "application/octet-stream"}), 400)
    twice = [("file", ("a", b"1")), ("file", ("b", b"2"))]
    assert_error(envd.post("/files", params=target, files=twice), 400)
    gzip = {"content-type": "application/octet-stream", "content-encoding": "gzip"}
    assert_error(envd.post("/files", params=target, content=b"not gzip", headers=gzip), 400)
    odd = {"content-type": "application/octet-stream", "content-encoding": "snappy"}
    assert_error(envd.post("/files", params=target, content=b"x", headers=odd), (400, 415))
    metadata = {"content-type": "application/octet-stream", "x-metadata-k": "x" * 5000}
    assert_error(envd.post("/files", params=target, content=b"x", headers=metadata), (400, 431))


def test_files_are_composed(envd, plain):
    folder = f"/home/user/{unique('parts')}"
    for n in range(3):
        plain.files.write(f"{folder}/{n}", f"part {n};")
    body = {"source_paths": [f"{folder}/{n}" for n in range(3)], "destination": f"{folder}/whole"}
    assert envd.post("/files/compose", json=body).status_code == 200
    assert plain.files.read(f"{folder}/whole") == "part 0;part 1;part 2;"
    assert [entry.name for entry in plain.files.list(folder)] == ["whole"]
    assert_error(envd.post("/files/compose", json={"source_paths": []}), 400)


def test_paths_do_not_leave_the_sandbox(envd, plain):
    """Whatever is asked, it is the sandbox's own file that answers."""
    mark = unique("inside")
    plain.files.write("/etc/atoll-mark", mark, user="root")
    for path in ("/../../etc/atoll-mark", "/proc/1/root/etc/atoll-mark", "../../../etc/atoll-mark"):
        answer = envd.get("/files", params={"path": path, "username": "root"})
        assert answer.status_code in (200, 400, 404), answer.text
        if answer.status_code == 200:
            assert answer.text == mark


def test_the_daemons_own_numbers(envd):
    assert envd.get("/health").status_code == 204
    metrics = envd.get("/metrics").json()
    for name in ("ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "disk_used", "disk_total"):
        assert name in metrics, name
    envs = envd.get("/envs").json()
    assert envs["E2B_SANDBOX"] == "true" and envs["E2B_SANDBOX_ID"]
