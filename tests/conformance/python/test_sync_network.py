"""Endpoints, the server's reverse proxy, WebSocket and the egress policy."""

from __future__ import annotations

import time

import httpx
import pytest
from opensandbox import SandboxSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.sandboxes import NetworkRule
from opensandbox.sync.adapters.factory import AdapterFactorySync
from support import EXECD_PORT, UNKNOWN_ID, assert_error, out, refused, until
from surface import covers
from websockets.sync.client import connect as websocket

PORT = 8123
#: Answers every request with what it saw; /redirect redirects; Upgrade echoes one frame.
ECHO_SERVER = """
import base64, hashlib, json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args):
        pass
    def upgrade(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.wfile.write(("HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\n"
            "Connection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + "\\r\\n\\r\\n").encode())
        head = self.rfile.read(2)
        length = head[1] & 127
        mask = self.rfile.read(4)
        body = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(length)))
        self.wfile.write(bytes([0x81, len(body)]) + body)
        self.rfile.read(2)
        self.wfile.write(bytes([0x88, 2, 3, 232]))
        self.close_connection = True
    def answer(self):
        if self.headers.get("Upgrade"):
            return self.upgrade()
        if self.path.endswith("/redirect"):
            self.send_response(302)
            self.send_header("Location", "/target?x=1")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        seen = {"method": self.command, "path": self.path, "body": body.decode("latin-1"),
            "headers": {k.lower(): v for k, v in self.headers.items()}}
        data = json.dumps(seen).encode()
        self.send_response(201 if self.command == "POST" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-From-Sandbox", "yes")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer

ThreadingHTTPServer(("127.0.0.1", PORT), Echo).serve_forever()
"""


@pytest.fixture(scope="module")
def echo(box) -> SandboxSync:
    """The shared sandbox with the echo server on its loopback."""
    box.files.write_file("/tmp/echo.py", ECHO_SERVER.replace("PORT", str(PORT)))
    box.commands.run("python3 /tmp/echo.py", opts=RunCommandOpts(background=True))
    probe = f"exec 3<>/dev/tcp/127.0.0.1/{PORT}"
    until(lambda: box.commands.run(f"bash -c '{probe}'").exit_code == 0, what="the echo server")
    return box


def shape_is_right(endpoint: str, port: int) -> bool:
    if "://" in endpoint:
        return False
    if "/" in endpoint:
        return endpoint.endswith(f"/{port}")
    return endpoint.endswith(f":{port}")


@covers("SandboxSync.get_endpoint")
def test_direct_endpoint_needs_only_its_own_headers(echo):
    for port in (PORT, EXECD_PORT, 18080, 1, 65535):
        assert shape_is_right(echo.get_endpoint(port).endpoint, port)
    endpoint = echo.get_endpoint(PORT)
    answer = httpx.get(f"http://{endpoint.endpoint}/a/b?q=1&q=2", headers=endpoint.headers)
    assert answer.status_code == 200 and answer.headers["X-From-Sandbox"] == "yes"
    assert answer.json()["path"].endswith("/a/b?q=1&q=2")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_server_proxy_carries_methods_bodies_and_queries(echo, http, method):
    data = b"body \x00\xff" if method != "GET" else b""
    url = f"/v1/sandboxes/{echo.id}/proxy/{PORT}/some/path?a=b%20c&d=%2F"
    answer = http.request(method, url, content=data)
    assert answer.status_code == (201 if method == "POST" else 200), answer.text
    seen = answer.json()
    assert seen["method"] == method and seen["body"] == data.decode("latin-1")
    assert seen["path"] == "/some/path?a=b%20c&d=%2F"


def test_server_proxy_keeps_secrets_out_of_the_sandbox(echo, http, settings):
    answer = http.get(
        f"/v1/sandboxes/{echo.id}/proxy/{PORT}/",
        headers={"Authorization": "Bearer hidden", "Cookie": "session=hidden", "X-Mine": "shown"},
    )
    seen = answer.json()["headers"]
    assert seen["x-mine"] == "shown"
    for name in ("open-sandbox-api-key", "authorization", "cookie"):
        assert name not in seen
    assert settings.key not in answer.text and "hidden" not in answer.text
    assert {"x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"} <= set(seen)


def test_direct_endpoint_does_not_carry_the_api_key(echo, settings):
    endpoint = echo.get_endpoint(PORT)
    assert settings.key not in str(endpoint.headers)


def test_server_proxy_rewrites_root_relative_redirects(echo, http):
    answer = http.get(f"/v1/sandboxes/{echo.id}/proxy/{PORT}/redirect")
    assert answer.status_code == 302
    assert answer.headers["Location"] == f"/v1/sandboxes/{echo.id}/proxy/{PORT}/target?x=1"


def test_server_proxy_wants_the_key(echo, settings):
    url = f"/v1/sandboxes/{echo.id}/proxy/{PORT}/"
    with settings.raw("") as nobody:
        assert_error(nobody.get(url), 401, "MISSING_API_KEY")
    with settings.raw("wrong-key") as stranger:
        assert_error(stranger.get(url), 401, "INVALID_API_KEY")


def test_server_proxy_says_when_nobody_listens(echo, http):
    assert_error(http.get(f"/v1/sandboxes/{echo.id}/proxy/9/"), 502, "BACKEND_CONNECTION_FAILED")
    assert_error(http.get(f"/v1/sandboxes/{UNKNOWN_ID}/proxy/80/"), 404, "SANDBOX_NOT_FOUND")


def test_websocket_through_both_ways(echo, settings):
    proxied = settings.url.replace("http", "ws", 1) + f"/v1/sandboxes/{echo.id}/proxy/{PORT}/ws"
    headers = {"OPEN-SANDBOX-API-KEY": settings.key}
    with websocket(proxied, additional_headers=headers, open_timeout=10, proxy=None) as socket:
        socket.send("through the proxy")
        assert socket.recv(timeout=10) == "through the proxy"
    endpoint = echo.get_endpoint(PORT)
    direct = f"ws://{endpoint.endpoint}/ws"
    with websocket(direct, additional_headers=endpoint.headers, open_timeout=10, proxy=None) as socket:
        socket.send("direct")
        assert socket.recv(timeout=10) == "direct"


def test_everything_works_in_server_proxy_mode(echo, settings):
    config = settings.config(use_server_proxy=True)
    with SandboxSync.connect(echo.id, connection_config=config) as proxied:
        endpoint = proxied.get_endpoint(PORT).endpoint
        assert endpoint == f"{settings.domain}/v1/sandboxes/{echo.id}/proxy/{PORT}"
        assert proxied.is_healthy()
        ran = proxied.commands.run("echo out; echo err >&2; exit 4")
        assert ran.exit_code == 4 and ran.logs.stdout[0].text == "out"
        blob = bytes(range(256)) * 4096
        proxied.files.write_file("/tmp/proxied.bin", blob)
        assert proxied.files.read_bytes("/tmp/proxied.bin") == blob
        assert proxied.get_metrics().cpu_count > 0
        assert proxied.get_egress_policy().default_action == settings.egress


@covers("SandboxSync.get_signed_endpoint")
def test_signed_endpoint_works_or_is_refused_by_name(echo, settings):
    """Signed routes are optional in the contract; what is forbidden is an endpoint that fails."""
    expires = int(time.time()) + 300
    try:
        endpoint = echo.get_signed_endpoint(PORT, expires)
    except SandboxApiException as refusal:
        assert refusal.status_code == 400 and refusal.error.code == "SANDBOX::API_NOT_SUPPORTED"
    else:
        answer = httpx.get(f"http://{endpoint.endpoint}/signed", headers=endpoint.headers)
        assert answer.status_code == 200 and answer.json()["path"].endswith("/signed")
    config = settings.config(use_server_proxy=True)
    with SandboxSync.connect(echo.id, connection_config=config) as proxied:
        with refused(400, ("SANDBOX::INVALID_PARAMETER", "SANDBOX::API_NOT_SUPPORTED")):
            proxied.get_signed_endpoint(PORT, expires)


@covers("SandboxSync.get_egress_policy", "EgressSync.get_policy")
def test_egress_policy_tells_the_truth(box, settings):
    for policy in (box.get_egress_policy(), egress_of(box, settings).get_policy()):
        assert policy.default_action == settings.egress and not policy.egress


def egress_of(box, settings):
    factory = AdapterFactorySync(settings.no_retry().with_transport_if_missing())
    return factory.create_egress_service(box.get_endpoint(18080))


@covers(
    "SandboxSync.patch_egress_rules",
    "SandboxSync.delete_egress_rules",
    "EgressSync.patch_rules",
    "EgressSync.delete_rules",
)
def test_egress_rules_cannot_be_changed(box, settings):
    rules = [NetworkRule(action="deny", target="example.com")]
    statuses = (400, 405, 409, 501, 503)
    egress = egress_of(box, settings)
    for call in (
        lambda: box.patch_egress_rules(rules),
        lambda: egress.patch_rules(rules),
        lambda: egress.delete_rules(["example.com"]),
    ):
        with refused(statuses):
            call()
    with SandboxSync.connect(box.id, connection_config=settings.no_retry()) as again:
        with refused(statuses):
            again.delete_egress_rules(["example.com"])
    assert box.get_egress_policy().default_action == settings.egress


@covers(
    "SandboxSync.credential_vault",
    *(
        f"{service}.{method}"
        for service in ("CredentialVaultSync", "EgressSync")
        for method in (
            "create",
            "get",
            "patch",
            "delete",
            "list_credentials",
            "get_credential",
            "list_bindings",
            "get_binding",
        )
    ),
)
def test_credential_vault_is_refused(box, settings):
    with SandboxSync.connect(box.id, connection_config=settings.no_retry()) as again:
        vault = again.credential_vault
        credential = {"name": "token", "source": {"type": "inline", "value": "s3cret"}}
        for call in (
            lambda: vault.create(credentials=[credential], bindings=[]),
            lambda: vault.get(),
            lambda: vault.patch(expected_revision=1, credentials={"add": [credential]}),
            lambda: vault.delete(),
            lambda: vault.list_credentials(),
            lambda: vault.get_credential("token"),
            lambda: vault.list_bindings(),
            lambda: vault.get_binding("b"),
        ):
            with refused((400, 404, 405, 409, 501, 503)) as caught:
                call()
            assert "s3cret" not in str(caught.value), "an error must not repeat the secret"


def test_sandboxes_cannot_reach_each_other_or_the_server_as_themselves(garden, echo, settings):
    """The API from inside a sandbox is as closed as from outside."""
    other = garden.create()
    port = settings.domain.rsplit(":", 1)[1]
    script = (
        "import urllib.request as u\n"
        "try:\n"
        f"    print(u.urlopen('http://127.0.0.1:{port}/v1/sandboxes', timeout=3).status)\n"
        "except Exception as e:\n"
        "    print(getattr(e, 'code', 'unreachable'))\n"
    )
    other.files.write_file("/tmp/probe.py", script)
    assert out(other.commands.run("python3 /tmp/probe.py")) in ("401", "unreachable")
    reach = f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{PORT}'"
    assert other.commands.run(reach).exit_code != 0, "loopback is shared between sandboxes"
