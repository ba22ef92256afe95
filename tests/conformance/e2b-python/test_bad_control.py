"""Wrong requests to the control API by a plain client: refused as JSON, and nothing is left behind."""

from __future__ import annotations

import json
import socket

import httpx
import pytest
from support import UNKNOWN_ID, assert_error, unique


def created(http, garden, body) -> httpx.Response:
    answer = http.post("/v2/sandboxes", json=body)
    if answer.status_code == 201:
        garden.adopt(answer.json()["sandboxID"])
    return answer


@pytest.mark.parametrize("path", ["/v2/sandboxes", "/sandboxes"])
def test_the_smallest_request(http, garden, path):
    answer = http.post(path, json={"templateID": "base"})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    garden.adopt(made["sandboxID"])
    assert {"templateID", "sandboxID", "clientID", "envdVersion"} <= set(made)
    assert made["envdAccessToken"] if path == "/v2/sandboxes" else True
    detail = http.get(f"/sandboxes/{made['sandboxID']}").json()
    for name in ("templateID", "sandboxID", "clientID", "startedAt", "endAt", "cpuCount", "memoryMB", "diskSizeMB"):
        assert name in detail, name
    assert detail["state"] == "running" and detail["envdVersion"] == made["envdVersion"]


@pytest.mark.parametrize("key", ["", "wrong", "e2b_" + "f" * 40])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2/sandboxes"),
        ("GET", "/v2/sandboxes"),
        ("GET", f"/sandboxes/{UNKNOWN_ID}"),
        ("DELETE", f"/sandboxes/{UNKNOWN_ID}"),
        ("GET", "/volumes"),
        ("GET", "/secrets"),
        ("GET", "/templates"),
        ("POST", "/v3/templates"),
        ("GET", "/snapshots"),
    ],
)
def test_nothing_without_a_key(settings, method, path, key):
    with settings.raw(key) as http:
        assert_error(http.request(method, path, json={} if method == "POST" else None), 401)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"null", b'"x"', b"\xff\xfe", b"{}"])
def test_bodies_that_are_no_request(http, body):
    for path in ("/v2/sandboxes", "/sandboxes"):
        answer = http.post(path, content=body, headers={"content-type": "application/json"})
        assert_error(answer, (400, 422))


@pytest.mark.parametrize(
    "wrong",
    [
        {"templateID": 7},
        {"templateID": ""},
        {"templateID": "base", "timeout": "long"},
        {"templateID": "base", "timeout": 1.5},
        {"templateID": "base", "metadata": "x"},
        {"templateID": "base", "metadata": {"k": 1}},
        {"templateID": "base", "envVars": {"k": None}},
        {"templateID": "base", "envVars": {"bad=name": "x"}},
        {"templateID": "base", "autoResume": {"enabled": "yes"}},
        {"templateID": "base", "volumeMounts": [{"name": "x"}]},
        {"templateID": "base", "volumeMounts": {"name": "x", "path": "/y"}},
    ],
    ids=json.dumps,
)
def test_fields_of_the_wrong_kind(http, garden, wrong):
    assert_error(created(http, garden, wrong), (400, 422))


def test_a_chunked_body_without_a_length(http, garden):
    """The JavaScript SDK sends all of its bodies so."""
    body = json.dumps({"templateID": "base"}).encode()
    answer = http.post(
        "/v2/sandboxes", content=iter([body[:5], body[5:]]), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 201, answer.text
    garden.adopt(answer.json()["sandboxID"])


def test_unknown_fields_of_newer_clients_are_named_or_ignored(http, garden):
    answer = created(http, garden, {"templateID": "base", "fieldOfTheFuture": 1})
    assert answer.status_code in (201, 400), answer.text
    if answer.status_code == 400:
        assert_error(answer, 400, "fieldOfTheFuture")


@pytest.mark.parametrize("path", ["/", "/nothing", "/v2/nothing", "/sandboxes/x/y/z", "/v9/sandboxes"])
def test_unknown_routes_answer_json(http, path):
    answer = http.get(path)
    assert answer.status_code in (200, 404), answer.text
    if answer.status_code == 404:
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.json()["message"]


def test_wrong_methods_answer_json(http):
    for method, path in (("PUT", "/v2/sandboxes"), ("PATCH", "/volumes"), ("POST", f"/sandboxes/{UNKNOWN_ID}")):
        answer = http.request(method, path, json={})
        assert_error(answer, (404, 405))


@pytest.mark.parametrize("sandbox_id", ["..", "%2e%2e", "a/b", "UPPER", "x" * 5000, "a%00b", "'; drop"])
def test_ids_of_the_wrong_shape(http, sandbox_id):
    for suffix in ("", "/pause", "/connect"):
        method = "POST" if suffix else "GET"
        answer = http.request(method, f"/sandboxes/{sandbox_id}{suffix}", json={"timeout": 10} if suffix else None)
        assert 400 <= answer.status_code < 500, f"{answer.status_code}: {answer.text}"


def test_ids_may_carry_the_old_suffix(http, garden):
    sandbox_id = garden.create().sandbox_id
    assert http.get(f"/sandboxes/{sandbox_id}-00000000").json()["sandboxID"] == sandbox_id


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "101"},
        {"limit": "x"},
        {"nextToken": "garbage"},
        {"order": "sideways"},
        {"state": "sleeping"},
        {"startedAfter": "yesterday"},
    ],
    ids=str,
)
def test_bad_queries(http, query):
    assert_error(http.get("/v2/sandboxes", params=query), (400, 422))


def test_metadata_filters_in_both_encodings(http, garden):
    label = unique()
    sandbox_id = garden.create(metadata={"case": label, "a b": "c&d"}).sandbox_id
    for raw in (f"case%3D{label}", f"case={label}&limit=5", f"case%3D{label}%26a%252520b%3Dc%252526d"):
        listed = http.get(f"/v2/sandboxes?metadata={raw}").json()
        assert [item["sandboxID"] for item in listed] == [sandbox_id], raw
    assert [item["sandboxID"] for item in http.get(f"/sandboxes?metadata=case%3D{label}").json()] == [sandbox_id]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("timeout", {}),
        ("timeout", {"timeout": "x"}),
        ("timeout", {"timeout": 10**12}),
        ("refreshes", {"duration": 10**6}),
        ("connect", {"timeout": -5}),
        ("fork", {"count": 0}),
        ("fork", {"count": 101}),
        ("pause", {"memory": "yes"}),
        ("snapshots", {"name": "has space"}),
        ("snapshots", {"name": 7}),
    ],
)
def test_bad_verbs(http, plain, path, body):
    assert_error(http.post(f"/sandboxes/{plain.sandbox_id}/{path}", json=body), (400, 422))
    assert plain.is_running()


def test_metrics_and_logs_over_plain_http(http, plain):
    sandbox_id = plain.sandbox_id
    answer = http.get("/sandboxes/metrics", params={"sandbox_ids": f"{sandbox_id},{UNKNOWN_ID}"})
    assert answer.status_code == 200 and set(answer.json()["sandboxes"]) <= {sandbox_id}
    assert_error(http.get(f"/sandboxes/{sandbox_id}/metrics?start=x"), (400, 422))
    logs = http.get(f"/sandboxes/{sandbox_id}/logs").json()
    assert isinstance(logs["logs"], list) and isinstance(logs["logEntries"], list)
    newer = http.get(f"/v2/sandboxes/{sandbox_id}/logs?limit=5&direction=forward").json()
    assert isinstance(newer["logs"], list)
    for path in ("logs", "metrics"):
        assert_error(http.get(f"/sandboxes/{UNKNOWN_ID}/{path}"), 404)


def test_teams(http):
    teams = http.get("/teams").json()
    assert len(teams) == 1 and {"teamID", "name", "isDefault"} <= set(teams[0])


def test_a_huge_body_is_refused(http):
    body = {"templateID": "base", "envVars": {"BIG": "x" * (32 << 20)}}
    try:
        assert http.post("/v2/sandboxes", json=body).status_code in (400, 413, 422)
    except httpx.TransportError:
        pass  # hanging up before the end is a refusal too
    assert http.get("/health").status_code in (200, 204)


@pytest.mark.parametrize("cut", [1, 20, -1])
def test_a_body_that_is_cut_off_makes_no_sandbox(http, settings, cut):
    label = unique()
    body = json.dumps({"templateID": "base", "metadata": {"case": label}}).encode()
    host, port = settings.authority.rsplit(":", 1)
    head = (
        f"POST /v2/sandboxes HTTP/1.1\r\nHost: {settings.authority}\r\nX-API-Key: {settings.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(head.encode() + body[:cut])
        raw.shutdown(socket.SHUT_WR)
        raw.recv(4096)  # an answer, or nothing more: the server has seen the end
    assert http.get(f"/v2/sandboxes?metadata=case%3D{label}").json() == []


def test_failures_that_must_not_be_repeated_say_so(http):
    """The Python SDK would otherwise create a second sandbox by its own retries."""
    answer = http.post("/v2/sandboxes", json={"templateID": unique("missing")})
    assert_error(answer, 404)
    assert answer.headers.get("should-retry", "false") == "false"
