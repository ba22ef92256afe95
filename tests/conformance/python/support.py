"""Settings, polling and refusal checks shared by the conformance tests."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeVar

import httpx
import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfig
from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.sync.manager import SandboxManagerSync
from opensandbox.transport import RetryPolicy

T = TypeVar("T")

EXECD_PORT = 44772
UNKNOWN_ID = "nosuchsandbox0000000000000"
#: What the packages send when the caller says nothing.
DEFAULT_ENTRYPOINT = ["tail", "-f", "/dev/null"]


def required(name: str) -> str:
    """Value of an environment variable that the runner must give."""
    value = os.environ.get(name, "")
    if not value:
        pytest.fail(f"set {name}: see tests/conformance/README.md", pytrace=False)
    return value


@dataclass(frozen=True)
class Settings:
    """Where the server is and who talks to it."""

    url: str
    key: str
    other_key: str
    image: str
    #: What the server does with packets to the internet: ``allow`` or ``deny``.
    egress: str

    @classmethod
    def from_environment(cls) -> Settings:
        return cls(
            url=required("ATOLL_URL").rstrip("/"),
            key=required("ATOLL_API_KEY"),
            other_key=required("ATOLL_API_KEY_B"),
            image=os.environ.get("ATOLL_TEST_IMAGE") or "base",
            egress=os.environ.get("ATOLL_EGRESS") or "deny",
        )

    @property
    def domain(self) -> str:
        return self.url.split("://", 1)[1]

    def config(self, key: str | None = None, **options) -> ConnectionConfigSync:
        """Connection of the blocking SDK, as tenant A unless a key is given."""
        return ConnectionConfigSync(domain=self.domain, api_key=key or self.key, **options)

    def async_config(self, key: str | None = None, **options) -> ConnectionConfig:
        """Connection of the asyncio SDK, as tenant A unless a key is given."""
        return ConnectionConfig(domain=self.domain, api_key=key or self.key, **options)

    def no_retry(self, **options) -> ConnectionConfigSync:
        """Like ``config`` but a refusal with 503 comes back at once."""
        return self.config(retry_policy=RetryPolicy.disabled(), **options)

    def raw(self, key: str | None = None, **options) -> httpx.Client:
        """Plain HTTP client; ``key=""`` sends no API key."""
        value = self.key if key is None else key
        headers = {"OPEN-SANDBOX-API-KEY": value} if value else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, **options)


class Garden:
    """Makes sandboxes and removes each of them by its id."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._ids: list[tuple[str, str]] = []

    def create(self, image=None, *, key: str | None = None, config=None, **options) -> SandboxSync:
        """Create through the SDK and remember the id."""
        if "snapshot_id" not in options:
            image = image or self.settings.image
        config = config or self.settings.config(key)
        sandbox = SandboxSync.create(image, connection_config=config, **options)
        self.adopt(sandbox.id, config.get_api_key())
        return sandbox

    def adopt(self, sandbox_id: str, key: str | None = None) -> str:
        """Remove this sandbox too when the test is over."""
        self._ids.append((sandbox_id, key or self.settings.key))
        return sandbox_id

    def clear(self) -> None:
        """Kill what is left; a sandbox that is already gone is fine."""
        problems = []
        for sandbox_id, key in reversed(self._ids):
            with self.settings.raw(key) as http:
                answer = http.delete(f"/v1/sandboxes/{sandbox_id}")
            if answer.status_code not in (204, 404):
                problems.append(f"{sandbox_id}: {answer.status_code} {answer.text}")
        self._ids.clear()
        assert not problems, f"sandboxes could not be removed: {problems}"


def create_body(settings: Settings, **changes) -> dict:
    """A valid body of POST /v1/sandboxes with some members changed; None removes one."""
    body = {
        "image": {"uri": settings.image},
        "entrypoint": DEFAULT_ENTRYPOINT,
        "timeout": 300,
        "resourceLimits": {"cpu": "500m", "memory": "256Mi"},
    }
    body.update(changes)
    return {name: value for name, value in body.items() if value is not None}


def unique(prefix: str = "c") -> str:
    """A label value nobody else uses."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def now() -> datetime:
    return datetime.now(timezone.utc)


def until(probe: Callable[[], T], *, within: float = 20.0, what: str = "condition") -> T:
    """Poll until the probe is true and give its value; fail after the deadline."""
    deadline = time.monotonic() + within
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true within {within} s; last value {value!r}")
        time.sleep(0.02)


async def until_async(
    probe: Callable[[], Awaitable[T]], *, within: float = 20.0, what: str = "condition"
) -> T:
    """``until`` for coroutines."""
    deadline = time.monotonic() + within
    while True:
        value = await probe()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true within {within} s; last value {value!r}")
        await asyncio.sleep(0.02)


def holds(probe: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Watch a condition that must stay true for the whole time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert probe(), f"{what} stopped being true"
        time.sleep(0.05)


def error_body(error: SandboxApiException) -> dict:
    """JSON body of a refusal, also for statuses the SDK does not decode."""
    if error.response_body:
        try:
            body = json.loads(error.response_body)
        except ValueError:
            return {"code": "", "message": error.response_body.decode(errors="replace")}
        return body if isinstance(body, dict) else {"code": "", "message": str(body)}
    return {"code": error.error.code, "message": error.error.message}


@contextmanager
def refused(status: int | tuple[int, ...], code: str | tuple[str, ...] = ()):
    """Expect an API refusal: the status, an ending of the code, and a message for people."""
    statuses = (status,) if isinstance(status, int) else status
    endings = (code,) if isinstance(code, str) else code
    with pytest.raises(SandboxApiException) as caught:
        yield caught
    error = caught.value
    assert error.status_code in statuses, f"{error.status_code}: {error}"
    body = error_body(error)
    assert body.get("message"), f"no message in {error.response_body!r}"
    if endings:
        assert str(body.get("code")).endswith(endings), body


def assert_error(answer: httpx.Response, status: int | tuple[int, ...], code=()) -> dict:
    """The same check for an answer of the plain client; gives the body."""
    statuses = (status,) if isinstance(status, int) else status
    endings = (code,) if isinstance(code, str) else code
    assert answer.status_code in statuses, f"{answer.status_code}: {answer.text}"
    body = answer.json()
    assert isinstance(body.get("code"), str) and body["code"], body
    assert isinstance(body.get("message"), str) and body["message"], body
    assert answer.headers.get("X-Request-ID"), "every answer carries X-Request-ID"
    if endings:
        assert body["code"].endswith(endings), body
    return body


def state_of(settings: Settings, sandbox_id: str, key: str | None = None) -> str:
    """State shown by GET, or ``Gone`` for a sandbox that is not there."""
    with settings.raw(key) as http:
        answer = http.get(f"/v1/sandboxes/{sandbox_id}")
    if answer.status_code == 404:
        return "Gone"
    assert answer.status_code == 200, answer.text
    return answer.json()["status"]["state"]


def out(execution) -> str:
    """Standard output of a command that must have succeeded."""
    assert execution.error is None and execution.exit_code == 0, str(execution)
    return execution.text


def manager_of(settings: Settings, key: str | None = None) -> SandboxManagerSync:
    return SandboxManagerSync.create(settings.config(key))
