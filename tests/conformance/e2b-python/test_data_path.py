"""Reaching ports of a sandbox: by headers, by host, by path; WebSockets; closed ports; the traffic token."""

from __future__ import annotations

import http.client
import json

import httpx
import pytest
import pytest_asyncio
from support import (
    ENVD_PORT,
    UNKNOWN_ID,
    access_token,
    assert_error,
    attempt,
    now,
    refused,
    serve,
    wait_for_port,
)
from websockets.sync.client import connect as open_socket

WEB, ECHO, SOCKET = 8321, 8322, 8323

#: Answers every request with what it was asked.
ECHO_SERVER = """
import http.server, json
class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        text = json.dumps({"method": self.command, "path": self.path, "body": body,
                           "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
        self.send_response(207)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("X-From-Inside", "yes")
        self.end_headers()
        self.wfile.write(text)
    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Echo).serve_forever()
"""

#: A WebSocket server that sends every text back in capitals.
SOCKET_SERVER = """
import base64, hashlib, socketserver, struct
class Socket(socketserver.StreamRequestHandler):
    def handle(self):
        key = None
        while (line := self.rfile.readline().strip()):
            name, _, value = line.partition(b":")
            if name.lower() == b"sec-websocket-key":
                key = value.strip()
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
                         b"Sec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                return
            size = head[1] & 127
            if size == 126:
                size = struct.unpack(">H", self.rfile.read(2))[0]
            mask, data = self.rfile.read(4), self.rfile.read(size)
            text = bytes(b ^ mask[n % 4] for n, b in enumerate(data)).upper()
            self.wfile.write(bytes([0x81]) + (bytes([len(text)]) if len(text) < 126
                             else bytes([126]) + struct.pack(">H", len(text))) + text)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
Server(("127.0.0.1", PORT), Socket).serve_forever()
"""


async def start(box, port: int, program: str) -> None:
    await now(box.files.write(f"/tmp/{port}.py", program.replace("PORT", str(port))))
    await now(box.commands.run(f"python3 /tmp/{port}.py", background=True, timeout=0))
    await wait_for_port(box, port)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(module_garden):
    box = module_garden.create()
    await serve(box, WEB, files={"index.html": "by port", "a/b.txt": "deeper"})
    await start(box, ECHO, ECHO_SERVER)
    await start(box, SOCKET, SOCKET_SERVER)
    return box


def test_by_headers(served, settings):
    with settings.port(served, WEB) as web:
        assert web.get("/").text == "by port" and web.get("/a/b.txt").text == "deeper"
        assert web.get("/missing").status_code == 404
    with settings.port(served, ECHO) as echo:
        answer = echo.post("/x/y?q=1&q=2", content=b"body", headers={"X-Mine": "kept"})
    assert answer.status_code == 207 and answer.headers["x-from-inside"] == "yes"
    seen = answer.json()
    assert (seen["method"], seen["path"], seen["body"]) == ("POST", "/x/y?q=1&q=2", "body")
    assert seen["headers"]["x-mine"] == "kept"


def test_by_host(served, settings):
    host = served.get_host(WEB)
    assert httpx.get(f"{settings.url}/a/b.txt", headers={"Host": host}).text == "deeper"


def test_by_path(served, settings):
    base = f"{settings.url}/kruise/{served.sandbox_id}"
    assert httpx.get(f"{base}/{WEB}/a/b.txt").text == "deeper"
    assert httpx.get(f"{base}/{WEB}/").text == "by port"
    seen = httpx.put(f"{base}/{ECHO}/x?y=z", content=b"put").json()
    assert (seen["method"], seen["path"], seen["body"]) == ("PUT", "/x?y=z", "put"), "the prefix is taken off"


def test_the_daemon_by_every_address(served, settings):
    """Port 49983 is the daemon, whatever way it is addressed, and it wants its token."""
    token = {"X-Access-Token": access_token(served)}
    served.files.write("/tmp/f", "text")
    for url, headers in (
        (f"{settings.url}/kruise/{served.sandbox_id}/{ENVD_PORT}", {}),
        (settings.url, {"Host": served.get_host(ENVD_PORT)}),
        (settings.url, {"E2b-Sandbox-Id": served.sandbox_id, "E2b-Sandbox-Port": str(ENVD_PORT)}),
    ):
        assert httpx.get(f"{url}/health", headers=headers).status_code == 204
        assert httpx.get(f"{url}/files?path=/tmp/f", headers=headers | token).text == "text"
        assert_error(httpx.get(f"{url}/files?path=/tmp/f", headers=headers), 401)
        assert_error(httpx.get(f"{url}/envs", headers=headers), 401)


def test_the_keys_of_the_control_api_stay_outside(served, settings):
    headers = {"X-API-Key": settings.key, "Authorization": "Bearer of-the-app"}
    with settings.port(served, ECHO, **headers) as echo:
        seen = echo.get("/").json()["headers"]
    assert settings.key not in json.dumps(seen), "the service inside must not learn the API key"
    assert seen.get("authorization") == "Bearer of-the-app", "the app's own credentials pass"


def test_a_web_socket(served, settings):
    url = settings.url.replace("http://", "ws://")
    headers = {"E2b-Sandbox-Id": served.sandbox_id, "E2b-Sandbox-Port": str(SOCKET)}
    with open_socket(f"{url}/chat", additional_headers=headers) as socket:
        for text in ("hello", "x" * 5000):
            socket.send(text)
            assert socket.recv(timeout=10) == text.upper()
    with open_socket(f"{url}/kruise/{served.sandbox_id}/{SOCKET}/chat") as socket:
        socket.send("by path")
        assert socket.recv(timeout=10) == "BY PATH"


def test_a_closed_port(served, settings):
    with settings.port(served, 9) as web:
        answer = web.get("/")
    assert_error(answer, 502, "The sandbox is running but port is not open")
    body = answer.json()
    assert (body["sandboxId"], body["port"]) == (served.sandbox_id, 9)
    assert httpx.get(f"{settings.url}/kruise/{served.sandbox_id}/9/").status_code == 502


def test_no_such_sandbox(settings):
    for answer in (
        httpx.get(f"{settings.url}/", headers={"E2b-Sandbox-Id": UNKNOWN_ID, "E2b-Sandbox-Port": "80"}),
        httpx.get(f"{settings.url}/kruise/{UNKNOWN_ID}/80/"),
        httpx.get(f"{settings.url}/health", headers={"E2b-Sandbox-Id": UNKNOWN_ID, "E2b-Sandbox-Port": "49983"}),
    ):
        assert_error(answer, 502, "The sandbox was not found")
        assert answer.json()["sandboxId"] == UNKNOWN_ID


@pytest.mark.parametrize("port", ["0", "70000", "http"])
def test_bad_ports(served, settings, port):
    headers = {"E2b-Sandbox-Id": served.sandbox_id, "E2b-Sandbox-Port": port}
    assert 400 <= httpx.get(f"{settings.url}/", headers=headers).status_code < 500
    assert 400 <= httpx.get(f"{settings.url}/kruise/{served.sandbox_id}/{port}/").status_code < 500


@pytest.mark.parametrize("path", ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"])
def test_internal_routes_are_not_there(served, settings, path):
    with settings.port(served, ENVD_PORT) as envd:
        assert_error(envd.post(path, json={}), 404)
    assert served.commands.run("echo alive").stdout == "alive\n"


@pytest.mark.parametrize(
    "path", ["/atoll/", "/atoll/config", "/../atoll/config", "/code-interpreter/health", "/ping", "/command"]
)
def test_other_faces_of_the_daemon_stay_hidden(served, settings, path):
    """Only the daemon's own routes, although one program serves all of them inside."""
    host, port = settings.authority.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=15)
    headers = {
        "E2b-Sandbox-Id": served.sandbox_id,
        "E2b-Sandbox-Port": str(ENVD_PORT),
        "X-Access-Token": access_token(served),
    }
    for method in ("GET", "POST"):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status in (404, 405, 400), f"{method} {path}: {answer.status}"
    connection.close()


async def test_private_traffic_needs_a_token(flavour, garden, settings):
    box = await flavour.create(garden, network={"allow_public_traffic": False})
    assert box.traffic_access_token
    await serve(box, WEB)
    with settings.port(box, WEB) as stranger:
        assert_error(stranger.get("/"), 403)
        wrong = stranger.get("/", headers={"E2B-Traffic-Access-Token": "wrong"})
        assert_error(wrong, 403)
        right = stranger.get("/", headers={"E2B-Traffic-Access-Token": box.traffic_access_token})
        assert right.text == "served"
    assert httpx.get(f"{settings.url}/kruise/{box.sandbox_id}/{WEB}/").status_code == 403
    assert (await now(box.commands.run("echo the daemon has its own token"))).exit_code == 0
    again = await now(flavour.Sandbox.connect(box.sandbox_id))
    assert again.traffic_access_token == box.traffic_access_token
    other = await flavour.create(garden, network={"allow_public_traffic": False})
    assert other.traffic_access_token != box.traffic_access_token
    with settings.port(box, WEB) as stranger:
        foreign = stranger.get("/", headers={"E2B-Traffic-Access-Token": other.traffic_access_token})
        assert_error(foreign, 403)


async def test_the_host_can_be_masked_or_is_refused(flavour, garden, settings):
    box = await attempt(flavour.Sandbox.create("base", network={"mask_request_host": "localhost:${PORT}"}))
    if box:
        garden.adopt(box)
        await start(box, ECHO, ECHO_SERVER)
        with settings.port(box, ECHO) as echo:
            assert echo.get("/").json()["headers"]["host"] == f"localhost:{ECHO}"


def test_headers_win_over_a_path(served, settings):
    """Both ways at once name one sandbox, not two: the path belongs to the service."""
    with settings.port(served, ECHO) as echo:
        assert echo.get(f"/kruise/{UNKNOWN_ID}/80/x").json()["path"] == f"/kruise/{UNKNOWN_ID}/80/x"


def test_a_large_answer_and_a_large_question(served, settings):
    served.commands.run("head -c 20000000 /dev/zero > /tmp/www/zeros")
    with settings.port(served, WEB) as web:
        with web.stream("GET", "/zeros") as answer:
            assert sum(len(part) for part in answer.iter_bytes()) == 20_000_000
    with settings.port(served, ECHO) as echo:
        assert len(echo.post("/", content=b"x" * 3_000_000).json()["body"]) == 3_000_000


async def test_refused_networks(flavour):
    """What this server can't enforce is refused when the sandbox is asked for."""
    for network in (
        {"rules": {"api.example": [{"transform": {"headers": {"X-Key": "${e2b.secrets.k}"}}}]}},
        {"egress_proxy": {"address": "proxy.example:1080"}},
    ):
        with refused():
            await now(flavour.Sandbox.create("base", network=network))
    with refused():
        token = flavour.Secret.iam_token(audience="a", token_type="JWT-SVID")
        await now(flavour.Sandbox.create("base", iam={"tokens": {"t": token}}))
