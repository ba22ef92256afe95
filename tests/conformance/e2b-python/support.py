"""Settings, the two flavours of the SDK, cleaning up, and polling."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
import uuid
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import e2b_code_interpreter as sdk
import httpx
import pytest

UNKNOWN_ID = "inosuchsandbox000000"
ENVD_PORT = 49983
INTERPRETER_PORT = 49999
#: Statuses with which the server may say "this can't be done here".
REFUSALS = (400, 409, 422, 501)


def required(name: str) -> str:
    """Value of an environment variable that the runner must give."""
    value = os.environ.get(name, "")
    if not value:
        pytest.fail(f"set {name}: see tests/conformance/README.md", pytrace=False)
    return value


@dataclass(frozen=True)
class Settings:
    """Where the server is and who talks to it; the SDK itself reads the same variables."""

    url: str
    key: str
    other_key: str

    @classmethod
    def from_environment(cls) -> Settings:
        required("E2B_SANDBOX_URL")
        required("E2B_VOLUME_API_URL")
        return cls(
            url=required("E2B_API_URL").rstrip("/"),
            key=required("E2B_API_KEY"),
            other_key=required("E2B_API_KEY_B"),
        )

    @property
    def authority(self) -> str:
        return self.url.split("://", 1)[1]

    def raw(self, key: str | None = None, **options) -> httpx.Client:
        """Plain HTTP client of the control API; ``key=""`` sends no API key."""
        value = self.key if key is None else key
        headers = {"X-API-Key": value} if value else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, **options)

    def port(self, sandbox, port: int, *, token: bool = True, **headers: str) -> httpx.Client:
        """Plain HTTP client of one port of a sandbox, addressed by headers."""
        given = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)}
        if token and port in (ENVD_PORT, INTERPRETER_PORT):
            given["X-Access-Token"] = access_token(sandbox)
        given.update(headers)
        return httpx.Client(base_url=self.url, headers=given, timeout=30)


def access_token(sandbox) -> str:
    """The token that opens a sandbox's daemon; the SDK keeps it to itself."""
    return sandbox._envd_access_token


async def now(value: Any) -> Any:
    """The value itself, awaited when the asyncio flavour gave a coroutine."""
    return await value if inspect.isawaitable(value) else value


class Garden:
    """Removes by id what a test made."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._paths: list[tuple[str, str]] = []

    def remove_later(self, path: str, key: str | None = None) -> None:
        """DELETE this path when the test is over; what is already gone is fine."""
        self._paths.append((path, key or self.settings.key))

    def adopt(self, sandbox, key: str | None = None):
        """Kill this sandbox (or the one of this id) when the test is over."""
        sandbox_id = sandbox if isinstance(sandbox, str) else sandbox.sandbox_id
        self.remove_later(f"/sandboxes/{sandbox_id}", key)
        return sandbox

    def create(self, template: str | None = "base", **options):
        """A sandbox of the blocking SDK."""
        return self.adopt(sdk.Sandbox.create(template, **options), options.get("api_key"))

    def clear(self) -> None:
        problems = []
        for path, key in reversed(self._paths):
            with self.settings.raw(key) as http:
                # One that is just being paused or snapshotted is busy for a moment.
                answer = until(
                    lambda: (got := http.delete(path)).status_code != 409 and got, what=f"{path} is free"
                )
            if answer.status_code not in (200, 204, 404):
                problems.append(f"{path}: {answer.status_code} {answer.text}")
        self._paths.clear()
        assert not problems, f"could not be removed: {problems}"


@dataclass(frozen=True)
class Flavour:
    """The blocking or the asyncio half of the packages."""

    name: str
    Sandbox: type
    Template: type
    Volume: type
    Secret: type

    def __str__(self) -> str:
        return self.name

    async def create(self, garden: Garden, template: str | None = "base", **options):
        sandbox = await now(self.Sandbox.create(template, **options))
        return garden.adopt(sandbox, options.get("api_key"))


FLAVOURS = {
    "sync": Flavour("sync", sdk.Sandbox, sdk.Template, sdk.Volume, sdk.Secret),
    "async": Flavour("async", sdk.AsyncSandbox, sdk.AsyncTemplate, sdk.AsyncVolume, sdk.AsyncSecret),
}


def unique(prefix: str = "c") -> str:
    """A name nobody else uses."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def moment() -> datetime:
    return datetime.now(timezone.utc)


def until(probe: Callable[[], Any], *, within: float = 20.0, what: str = "condition") -> Any:
    """Poll until the probe is true and give its value; fail after the deadline."""
    deadline = time.monotonic() + within
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true within {within} s; last value {value!r}")
        time.sleep(0.02)


async def until_async(probe: Callable[[], Any], *, within: float = 20.0, what: str = "condition") -> Any:
    """``until`` for probes of either flavour."""
    deadline = time.monotonic() + within
    while True:
        value = await now(probe())
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true within {within} s; last value {value!r}")
        await asyncio.sleep(0.02)


def state_of(settings: Settings, sandbox_id: str, key: str | None = None) -> str:
    """State shown by GET, or ``gone``."""
    with settings.raw(key) as http:
        answer = http.get(f"/sandboxes/{sandbox_id}")
    if answer.status_code == 404:
        return "gone"
    assert answer.status_code == 200, answer.text
    return answer.json()["state"]


def assert_error(answer: httpx.Response, status: int | tuple[int, ...], *words: str) -> str:
    """An error as every SDK can read it: JSON, a number for a code, and words; gives the message."""
    statuses = (status,) if isinstance(status, int) else status
    assert answer.status_code in statuses, f"{answer.status_code}: {answer.text}"
    assert answer.headers["content-type"].startswith("application/json"), answer.headers
    body = answer.json()
    assert body["code"] == answer.status_code, body
    assert isinstance(body["message"], str) and body["message"], body
    for word in words:
        assert word.lower() in body["message"].lower(), f"{word!r} is not in {body['message']!r}"
    return body["message"]


@contextmanager
def refused(*statuses: int, error: type[Exception] = sdk.SandboxException):
    """Expect a refusal by the control API, with one of the statuses and words for people."""
    with pytest.raises(error) as caught:
        yield caught
    status = getattr(caught.value, "status_code", None)
    if status is not None:
        assert status in (statuses or REFUSALS), f"{status}: {caught.value}"
    else:
        codes = tuple(f"{status}: " for status in (statuses or REFUSALS))
        assert str(caught.value).startswith(codes), str(caught.value)
    assert len(str(caught.value)) > 10, "a refusal has a message"


async def attempt(call: Any) -> Any:
    """The answer, or None where the server says by contract that it can't; nothing is ignored."""
    try:
        return await now(call)
    except sdk.SandboxException as error:
        assert error.status_code in REFUSALS, f"{error.status_code}: {error}"
        assert len(str(error)) > 10, "a refusal has a message"
        return None


async def serve(sandbox, port: int, *, folder: str = "/tmp/www", files: dict[str, str] | None = None) -> None:
    """A web server on the sandbox's own 127.0.0.1, waited for."""
    for name, text in (files or {"index.html": "served"}).items():
        await now(sandbox.files.write(f"{folder}/{name}", text))
    await now(
        sandbox.commands.run(
            f"python3 -m http.server {port} --bind 127.0.0.1 --directory {folder}", background=True, timeout=0
        )
    )
    await wait_for_port(sandbox, port)


async def wait_for_port(sandbox, port: int) -> None:
    probe = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo open || true"

    async def is_open():
        return "open" in (await now(sandbox.commands.run(probe))).stdout

    await until_async(is_open, what=f"port {port} is open")
