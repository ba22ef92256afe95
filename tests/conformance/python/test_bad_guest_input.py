"""Bad requests to the daemon inside the sandbox, by a plain client."""

from __future__ import annotations

import json

import httpx
import pytest
from support import EXECD_PORT, out, unique, until

NOBODY = "0" * 32


@pytest.fixture(scope="module")
def execd(box):
    """Plain client of the sandbox's own daemon."""
    endpoint = box.get_endpoint(EXECD_PORT)
    with httpx.Client(base_url=f"http://{endpoint.endpoint}", headers=endpoint.headers, timeout=20) as client:
        yield client


def assert_error(answer: httpx.Response, *statuses: int, code: str = "") -> None:
    assert answer.status_code in statuses, f"{answer.status_code}: {answer.text}"
    body = answer.json()
    assert body["code"] and body["message"], body
    if code:
        assert body["code"] == code, body


def test_ping(execd):
    assert execd.get("/ping").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "{}",
        '{"command": ""}',
        '{"command": 7}',
        '{"command": "true", "argv": ["true"]}',
        '{"argv": []}',
        '{"argv": [1]}',
        '{"command": "true", "gid": 1}',
        '{"command": "true", "uid": -1}',
        '{"command": "true", "timeout": 0}',
        '{"command": "true", "timeout": -1}',
        '{"command": "true", "timeout": "soon"}',
        '{"command": "true", "envs": {"A": 1}}',
        '{"command": "true", "cwd": "/no/such/place"}',
    ],
)
def test_bad_commands(execd, body):
    answer = execd.post("/command", content=body, headers={"Content-Type": "application/json"})
    assert_error(answer, 400)
    assert not answer.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize(
    ("method", "path", "statuses"),
    [
        ("DELETE", "/command", (400,)),
        ("DELETE", f"/command?id={NOBODY}", (400, 404, 500)),
        ("GET", f"/command/status/{NOBODY}", (404,)),
        ("GET", f"/command/{NOBODY}/logs", (400, 404)),
        ("DELETE", "/session/nobody", (404,)),
        ("GET", "/files/info", (400,)),
        ("GET", "/files/info?path=/no/such", (404,)),
        ("GET", "/files/download", (400,)),
        ("GET", "/files/download?path=/no/such", (404,)),
        ("GET", "/files/download?path=/etc", (400, 500)),
        ("GET", "/files/download?path=/etc/passwd&limit=x", (400,)),
        ("GET", "/files/search", (400,)),
        ("GET", "/files/search?path=/no/such&pattern=*", (404,)),
        ("GET", "/files/search?path=/etc&pattern=%5B", (400, 500)),
        ("GET", "/directories/list", (400,)),
        ("GET", "/directories/list?path=/etc/passwd", (400,)),
        ("GET", "/directories/list?path=/no/such", (404,)),
        ("GET", "/directories/list?path=/etc&depth=-1", (400,)),
        ("GET", "/v1/filesystem/x/0/files/info?path=/etc", (400, 404)),
        ("GET", "/v1/filesystem/4294967295/0/files/info?path=/etc", (400,)),
    ],
)
def test_bad_queries(execd, method, path, statuses):
    assert_error(execd.request(method, path), *statuses)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/files/mv", "{}"),
        ("/files/mv", "["),
        ("/files/mv", '[{"src": "/tmp/a"}]'),
        ("/files/permissions", "[]"),
        ("/files/permissions", '{"/etc/passwd": {"mode": 999}}'),
        ("/files/permissions", '{"/etc/passwd": {"mode": "rwx"}}'),
        ("/files/replace", '{"/etc/passwd": {"old": "", "new": "x"}}'),
        ("/files/replace", "[]"),
        ("/directories", "[]"),
        ("/session/nobody/run", "{}"),
    ],
)
def test_bad_bodies(execd, path, body):
    answer = execd.post(path, content=body, headers={"Content-Type": "application/json"})
    assert_error(answer, 400, 404)


def test_bad_uploads(execd, box):
    target = f"/tmp/{unique('upload')}"
    meta = ("metadata", ("metadata", f'{{"path": "{target}"}}', "application/json"))
    data = ("file", ("f", b"x", "application/octet-stream"))
    for parts in (
        [meta],
        [data],
        [meta, data, data],
        [("metadata", ("metadata", "{", "application/json")), data],
        [("metadata", ("metadata", "{}", "application/json")), data],
    ):
        assert_error(execd.post("/files/upload", files=parts), 400)
    assert_error(execd.post("/files/upload", content=b"not multipart"), 400)
    assert box.commands.run(f"test -s {target}").exit_code == 1


def test_a_client_that_leaves_does_not_end_a_background_command(execd, box):
    mark = f"/tmp/{unique('left')}"
    command = {"command": f"sleep 0.3; touch {mark}", "background": True}
    with execd.stream("POST", "/command", json=command) as answer:
        assert answer.status_code == 200
    until(lambda: box.commands.run(f"test -e {mark}").exit_code == 0, what="the command went on")


def test_self_proxy(execd):
    assert execd.get(f"/proxy/{EXECD_PORT}/ping").status_code == 200
    assert execd.get("/proxy/9/").status_code in (502, 504)


def test_every_event_is_one_line_of_json_with_a_time(execd):
    answer = execd.post("/command", json={"command": "echo a; echo b >&2; exit 3"})
    events = [json.loads(line.removeprefix("data:")) for line in answer.text.splitlines() if line.strip()]
    kinds = [event["type"] for event in events if event["type"] != "ping"]
    assert kinds[0] == "init" and kinds[-1] == "error" and "execution_complete" not in kinds
    assert all(isinstance(event["timestamp"], int) for event in events)
    assert events[-1]["error"]["evalue"] == "3" and events[-1]["error"]["ename"] == "CommandExecError"
    assert [e["text"] for e in events if e["type"] == "stdout"] == ["a"]
    assert [e["text"] for e in events if e["type"] == "stderr"] == ["b"]


def test_the_daemon_survives_all_of_it(box):
    assert out(box.commands.run("echo fine")) == "fine"
