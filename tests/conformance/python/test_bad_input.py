"""Bad requests by a plain client: each is refused, says why, and leaves nothing behind."""

from __future__ import annotations

import json
import socket

import httpx
import pytest
from support import UNKNOWN_ID, assert_error, create_body, holds, state_of, unique, until

LONG = "x" * 64


def listed(http, label: str) -> list:
    answer = http.get("/v1/sandboxes", params={"metadata": f"case={label}"})
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def assert_invalid(answer, field: str = "") -> dict:
    """422 with FastAPI's detail list and, besides, our own code and message."""
    body = assert_error(answer, 422)
    assert isinstance(body["detail"], list) and body["detail"]
    for item in body["detail"]:
        assert {"loc", "msg", "type"} <= set(item)
    if field:
        places = [part for item in body["detail"] for part in map(str, item["loc"])]
        assert field in places, f"{field} is not named in {body['detail']}"
    return body


def test_health_and_version_need_no_key(settings):
    with settings.raw("") as nobody:
        assert nobody.get("/health").json()["status"] == "healthy"
        assert nobody.get("/version").json()["version"]


ROUTES = [
    ("POST", "/v1/sandboxes"),
    ("GET", "/v1/sandboxes"),
    ("GET", "/v1/sandboxes/{id}"),
    ("DELETE", "/v1/sandboxes/{id}"),
    ("PATCH", "/v1/sandboxes/{id}/metadata"),
    ("POST", "/v1/sandboxes/{id}/pause"),
    ("POST", "/v1/sandboxes/{id}/resume"),
    ("POST", "/v1/sandboxes/{id}/renew-expiration"),
    ("GET", "/v1/sandboxes/{id}/endpoints/80"),
    ("GET", "/v1/sandboxes/{id}/proxy/80/"),
    ("POST", "/v1/sandboxes/{id}/snapshots"),
    ("GET", "/v1/sandboxes/{id}/networkpolicy"),
    ("GET", "/v1/sandboxes/{id}/diagnostics/logs"),
    ("GET", "/v1/sandboxes/{id}/diagnostics/events"),
    ("GET", "/v1/sandboxes/{id}/diagnostics/inspect"),
    ("GET", "/v1/sandboxes/{id}/diagnostics/summary"),
    ("GET", "/v1/snapshots"),
    ("GET", "/v1/snapshots/{id}"),
    ("DELETE", "/v1/snapshots/{id}"),
    ("GET", "/v1/templates"),
    ("GET", "/v1/pools"),
    ("POST", "/v1/metrics/events"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_wants_a_valid_key(settings, method, path):
    url = path.format(id=UNKNOWN_ID)
    for key, code in (("", "MISSING_API_KEY"), ("wrong", "INVALID_API_KEY")):
        with settings.raw(key) as client:
            assert_error(client.request(method, url, json={}), 401, code)


UNKNOWN = [
    ("GET", "", None),
    ("DELETE", "", None),
    ("PATCH", "/metadata", {"a": "1"}),
    ("POST", "/pause", None),
    ("POST", "/resume", None),
    ("POST", "/renew-expiration", {"expiresAt": "2099-01-01T00:00:00Z"}),
    ("GET", "/endpoints/80", None),
    ("GET", "/proxy/80/", None),
    ("POST", "/snapshots", {}),
    ("GET", "/networkpolicy", None),
    ("PUT", "/networkpolicy", {"defaultAction": "deny"}),
    ("PATCH", "/networkpolicy", [{"action": "deny", "target": "a.example"}]),
    ("DELETE", "/networkpolicy", ["a.example"]),
    ("GET", "/diagnostics/logs?scope=container", None),
    ("GET", "/diagnostics/events?scope=runtime", None),
    ("GET", "/diagnostics/logs", None),
    ("GET", "/diagnostics/inspect", None),
    ("GET", "/diagnostics/summary", None),
]


@pytest.mark.parametrize(("method", "tail", "body"), UNKNOWN)
@pytest.mark.parametrize("sandbox_id", [UNKNOWN_ID, "UPPER-case.id", "%2e%2e", "a%00b"])
def test_unknown_ids_are_not_found_everywhere(http, method, tail, body, sandbox_id):
    answer = http.request(method, f"/v1/sandboxes/{sandbox_id}{tail}", json=body)
    if sandbox_id == UNKNOWN_ID:
        assert_error(answer, 404, "SANDBOX_NOT_FOUND")
    else:
        assert answer.status_code in (400, 404, 405, 422), answer.text


def test_unknown_routes_and_methods(http):
    assert http.get("/v1/no-such-thing").status_code == 404
    assert http.put("/v1/sandboxes", json={}).status_code == 405
    assert_error(http.get("/v1/snapshots/nosuchsnapshot"), 404, "SNAPSHOT::NOT_FOUND")
    assert_error(http.delete("/v1/snapshots/nosuchsnapshot"), 404, "SNAPSHOT::NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/pools"),
        ("GET", "/v1/pools"),
        ("GET", "/v1/pools/p"),
        ("PUT", "/v1/pools/p"),
        ("DELETE", "/v1/pools/p"),
    ],
)
def test_pools_are_refused(http, method, path):
    capacity = {"bufferMax": 1, "bufferMin": 0, "poolMax": 1, "poolMin": 0}
    body = {"name": "p", "template": {"spec": {}}, "capacitySpec": capacity}
    answer = http.request(method, path, json=body if method in ("POST", "PUT") else None)
    assert_error(answer, 501, "KUBERNETES::POOL_NOT_SUPPORTED")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/templates"),
        ("GET", "/v1/templates"),
        ("GET", "/v1/templates/t"),
        ("DELETE", "/v1/templates/t"),
    ],
)
def test_templates_are_refused(http, method, path):
    body = {"image": "base", "publish": "s3://b/p"} if method == "POST" else None
    assert_error(http.request(method, path, json=body), 501, "FSB::API_NOT_SUPPORTED")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '"text"', "{'a': 1}", "\x00", '{"image":', "[" * 100000]
)
def test_invalid_json_is_422(http, text):
    answer = http.post("/v1/sandboxes", content=text, headers={"Content-Type": "application/json"})
    assert_invalid(answer)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", "base"),
        ("image", {"uri": 7}),
        ("image", {"uri": "base", "auth": {"username": "u"}}),
        ("timeout", 59),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", "soon"),
        ("timeout", 60.5),
        ("timeout", True),
        ("timeout", [600]),
        ("entrypoint", []),
        ("entrypoint", "tail -f /dev/null"),
        ("entrypoint", [1]),
        ("entrypoint", None),
        ("env", {"A": 1}),
        ("env", ["A=1"]),
        ("env", {"OPENSANDBOX_LIFECYCLE": "x"}),
        ("metadata", {"a": 1}),
        ("metadata", "a=b"),
        ("resourceLimits", None),
        ("resourceLimits", {"cpu": 1}),
        ("resourceLimits", "cpu=1"),
        ("extensions", {"a": 1}),
        ("volumes", {"name": "v"}),
        ("secureAccess", "maybe"),
    ],
)
def test_wrong_types_name_the_field(http, settings, field, value):
    label = unique()
    body = {"metadata": {"case": label}, **create_body(settings)}
    body[field] = value
    if value is None:
        del body[field]
    answer = http.post("/v1/sandboxes", json=body)
    if answer.status_code == 202:
        http.delete(f"/v1/sandboxes/{answer.json()['id']}")
    assert_invalid(answer, field)
    assert listed(http, label) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"image": None},
        {"image": {"uri": "  "}},
        {"snapshotId": "nosuchsnapshot"},
        {"image": None, "snapshotId": " "},
    ],
    ids=["neither", "blank", "both", "blank-snapshot"],
)
def test_exactly_one_source(http, settings, changes):
    assert_invalid(http.post("/v1/sandboxes", json=create_body(settings, **changes)))


@pytest.mark.parametrize("seconds", [86401, 10**9, 10**15])
def test_timeout_above_the_limit(http, settings, seconds):
    answer = http.post("/v1/sandboxes", json=create_body(settings, timeout=seconds))
    body = assert_error(answer, 400, "SANDBOX::INVALID_PARAMETER")
    assert "timeout" in body["message"] and "86400" in body["message"]


@pytest.mark.parametrize("seconds", [60, 86400, "600"])
def test_timeouts_at_the_edges_are_accepted(http, settings, garden, seconds):
    answer = http.post("/v1/sandboxes", json=create_body(settings, timeout=seconds))
    assert answer.status_code == 202, answer.text
    garden.adopt(answer.json()["id"])


def test_null_and_unknown_members_are_accepted(http, settings, garden):
    body = create_body(settings, surprise={"a": 1}, env={"A": "1", "B": None})
    body["timeout"] = body["networkPolicy"] = body["platform"] = body["volumes"] = None
    answer = http.post("/v1/sandboxes", json=body)
    assert answer.status_code == 202, answer.text
    made = answer.json()
    garden.adopt(made["id"])
    assert "expiresAt" not in made
    until(lambda: state_of(settings, made["id"]) == "Running", what="Running")
    shown = http.get(f"/v1/sandboxes/{made['id']}").json()
    for part in (made, made["status"], shown, shown["status"], shown["image"]):
        assert None not in part.values(), "absent members are left out, never null"


@pytest.mark.parametrize(
    "metadata",
    [
        {"opensandbox.io/id": "x"},
        {"opensandbox.io/anything": "x"},
        {"bad key": "x"},
        {"": "x"},
        {"-a": "x"},
        {LONG: "x"},
        {"Prefix_/name": "x"},
        {"a/b/c": "x"},
        {"/name": "x"},
        {"key": "has space"},
        {"key": "a&b"},
        {"key": "-dash"},
        {"key": "dot."},
        {"key": LONG},
        {"key": "ünïcode"},
        {"key": "new\nline"},
    ],
)
def test_bad_labels(http, settings, metadata):
    answer = http.post("/v1/sandboxes", json=create_body(settings, metadata=metadata))
    assert_error(answer, 400, "SANDBOX::INVALID_METADATA_LABEL")


@pytest.mark.parametrize(
    "limits",
    [
        {"cpu": "0"},
        {"cpu": "-1"},
        {"cpu": "many"},
        {"cpu": "1x"},
        {"cpu": ""},
        {"cpu": "1e400"},
        {"cpu": "nan"},
        {"memory": "0"},
        {"memory": "-5Mi"},
        {"memory": "1.5Gi"},
        {"memory": "12Qi"},
        {"memory": "Mi"},
        {"memory": "lots"},
        {"memory": "99999999999999999999Gi"},
        {"gpu": "0"},
        {"gpu": "some"},
    ],
)
def test_bad_resource_strings(http, settings, limits):
    wanted = {"cpu": "1", "memory": "256Mi", **limits}
    answer = http.post("/v1/sandboxes", json=create_body(settings, resourceLimits=wanted))
    body = assert_error(answer, 400, "SANDBOX::INVALID_PARAMETER")
    assert next(iter(limits)) in body["message"], body


@pytest.mark.parametrize(
    ("limits"),
    [
        {"cpu": "0.5", "memory": "256Mi"},
        {"cpu": "250m", "memory": "268435456"},
        {"cpu": "1", "memory": "256mb"},
        {"cpu": "1", "memory": "1gi"},
    ],
)
def test_good_resource_strings(http, settings, garden, limits):
    answer = http.post("/v1/sandboxes", json=create_body(settings, resourceLimits=limits))
    assert answer.status_code == 202, answer.text
    garden.adopt(answer.json()["id"])


def host(path="/tmp", **more) -> dict:
    return {"name": "v", "mountPath": "/mnt/v", "host": {"path": path}, **more}


@pytest.mark.parametrize(
    "volumes",
    [
        [host("relative/path")],
        [host("/etc")],
        [host("/")],
        [host("/proc")],
        [host(name="Bad_Name")],
        [host(name="")],
        [host(name=LONG)],
        [host(), host(mountPath="/mnt/w")],
        [host(mountPath="relative")],
        [host(subPath="../up")],
        [host(subPath="/abs")],
        [{"name": "v", "mountPath": "/mnt/v"}],
        [host(pvc={"claimName": "c"})],
        [{"name": "v", "mountPath": "/mnt/v", "pvc": {"claimName": "Not_A_Name"}}],
        [{"name": "v", "mountPath": "/mnt/v", "pvc": {"claimName": "../up"}}],
        [{"name": "v", "mountPath": "/mnt/v", "ossfs": {"bucket": "b", "endpoint": "e"}}],
    ],
)
def test_bad_volumes(http, settings, volumes):
    answer = http.post("/v1/sandboxes", json=create_body(settings, volumes=volumes))
    body = assert_error(answer, (400, 422))
    if answer.status_code == 400:
        assert body["code"].startswith("VOLUME::"), body
    else:
        assert_invalid(answer, "volumes")


@pytest.mark.parametrize("platform", [{"os": "plan9", "arch": "amd64"}, {"os": "linux", "arch": "mips"}])
def test_bad_platform(http, settings, platform):
    answer = http.post("/v1/sandboxes", json=create_body(settings, platform=platform))
    assert_error(answer, 400, "SANDBOX::INVALID_PARAMETER")


def test_reserved_egress_environment(http, settings):
    answer = http.post("/v1/sandboxes", json=create_body(settings, env={"OPENSANDBOX_EGRESS_EVIL": "1"}))
    assert_error(answer, 400)


@pytest.mark.parametrize("value", ["299", "86401", "soon", "-1", ""])
def test_bad_renew_extension(http, settings, value):
    extensions = {"access.renew.extend.seconds": value}
    answer = http.post("/v1/sandboxes", json=create_body(settings, extensions=extensions))
    assert_error(answer, 400)


@pytest.mark.parametrize("path", ["/v1/sandboxes", "/v1/snapshots"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("page", "0"),
        ("page", "-1"),
        ("page", "x"),
        ("page", "1.5"),
        ("pageSize", "0"),
        ("pageSize", "201"),
        ("pageSize", "x"),
    ],
)
def test_bad_pages(http, path, name, value):
    assert_invalid(http.get(path, params={name: value}), name)


def test_pages_at_the_edges(http):
    for params in ({"page": 1, "pageSize": 200}, {"page": 10**6, "pageSize": 1}):
        answer = http.get("/v1/sandboxes", params=params)
        assert answer.status_code == 200, answer.text
        about = answer.json()["pagination"]
        assert set(about) == {"page", "pageSize", "totalItems", "totalPages", "hasNextPage"}


def test_bad_metadata_filter(http):
    assert_error(http.get("/v1/sandboxes", params={"metadata": "novalue"}), 400, "INVALID_METADATA_FORMAT")
    assert http.get("/v1/sandboxes", params={"metadata": "blank="}).status_code == 200


@pytest.fixture(scope="module")
def one(settings, module_garden) -> str:
    """One sandbox for requests that must not change it."""
    return module_garden.create(metadata={"keep": "1"}).id


@pytest.mark.parametrize("port", ["0", "65536", "70000", "-1"])
def test_bad_ports(http, one, port):
    assert_error(http.get(f"/v1/sandboxes/{one}/endpoints/{port}"), (400, 422))


def test_a_port_that_is_no_number(http, one):
    assert_invalid(http.get(f"/v1/sandboxes/{one}/endpoints/http"))
    assert http.get(f"/v1/sandboxes/{one}/proxy/http/").status_code in (404, 422)


def test_endpoint_in_proxy_mode_has_no_expiry(http, one):
    answer = http.get(f"/v1/sandboxes/{one}/endpoints/80?use_server_proxy=true&expires=4102444800")
    assert_error(answer, 400, ("SANDBOX::INVALID_PARAMETER", "SANDBOX::API_NOT_SUPPORTED"))
    assert_error(http.get(f"/v1/sandboxes/{one}/endpoints/80?use_server_proxy=maybe"), 422)


@pytest.mark.parametrize("patch", [{"keep": 2}, {"keep": ["x"]}, ["keep"], "keep", {"keep": {"a": "b"}}])
def test_bad_metadata_patches(http, one, patch):
    assert_invalid(http.patch(f"/v1/sandboxes/{one}/metadata", json=patch))
    assert http.get(f"/v1/sandboxes/{one}").json()["metadata"] == {"keep": "1"}


@pytest.mark.parametrize("body", [{}, {"expiresAt": None}, {"expiresAt": "tomorrow"}, {"expiresAt": []}, []])
def test_bad_renewals(http, one, body):
    assert_invalid(http.post(f"/v1/sandboxes/{one}/renew-expiration", json=body))


def test_renewal_accepts_offsets_and_naive_times(http, one):
    for moment in ("2030-01-01T02:00:00+02:00", "2030-01-01T00:00:00", "2030-01-01T00:00:00.000Z"):
        answer = http.post(f"/v1/sandboxes/{one}/renew-expiration", json={"expiresAt": moment})
        assert answer.status_code == 200, answer.text
        assert answer.json()["expiresAt"].startswith("2030-01-01T00:00:00")
        assert answer.json()["expiresAt"].endswith("Z")
    past = http.post(f"/v1/sandboxes/{one}/renew-expiration", json={"expiresAt": "2001-01-01T00:00:00Z"})
    assert_error(past, 400, "INVALID_EXPIRATION")


@pytest.mark.parametrize("body", [{"name": ""}, {"name": 7}, [], "name"])
def test_bad_snapshot_requests(http, one, body):
    assert_invalid(http.post(f"/v1/sandboxes/{one}/snapshots", json=body))


@pytest.mark.parametrize(
    "event",
    [{}, {"eventType": "sandbox.create", "createDurationMs": -1, "success": True}],
)
def test_bad_metrics_events(http, event):
    assert_error(http.post("/v1/metrics/events", json=event), (400, 422))


def test_good_metrics_event(http):
    event = {
        "eventType": "sandbox.create",
        "createDurationMs": 5,
        "success": True,
        "sandboxId": "x",
        "image": "base",
    }
    assert http.post("/v1/metrics/events", json=event).status_code == 204


@pytest.mark.parametrize("cut", [1, 40, -1])
def test_a_body_that_is_cut_off_makes_no_sandbox(http, settings, cut):
    label = unique()
    body = json.dumps(create_body(settings, metadata={"case": label})).encode()
    host_name, port = settings.domain.rsplit(":", 1)
    head = (
        f"POST /v1/sandboxes HTTP/1.1\r\nHost: {settings.domain}\r\n"
        f"OPEN-SANDBOX-API-KEY: {settings.key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host_name, int(port)), timeout=10) as raw:
        raw.sendall(head.encode() + body[:cut])
    assert http.get("/health").status_code == 200
    holds(lambda: listed(http, label) == [], seconds=0.5, what="no sandbox")


def test_a_huge_body_is_refused(http, settings):
    body = create_body(settings, env={"BIG": "x" * (32 << 20)})
    try:
        assert http.post("/v1/sandboxes", json=body).status_code in (400, 413, 422)
    except httpx.TransportError:
        pass  # hanging up before the end is a refusal too
    assert http.get("/health").status_code == 200


@pytest.mark.parametrize("name", ["X-Request-ID", "x-request-id"])
def test_request_ids_are_echoed(http, name):
    for url in ("/v1/sandboxes", f"/v1/sandboxes/{UNKNOWN_ID}"):
        assert http.get(url, headers={name: "my-request-1"}).headers["X-Request-ID"] == "my-request-1"
    made = [http.get("/v1/sandboxes").headers["X-Request-ID"] for _ in range(2)]
    assert made[0] != made[1] and all(made)
