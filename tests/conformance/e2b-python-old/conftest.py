"""An SDK of 2025, which speaks the first version of the API: `POST /sandboxes` and its defaults."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable

import httpx
import pytest


def required(name: str) -> str:
    """Value of an environment variable that the runner must give."""
    value = os.environ.get(name, "")
    if not value:
        pytest.fail(f"set {name}: see tests/conformance/README.md", pytrace=False)
    return value


@pytest.fixture
def http():
    """Plain client of the control API."""
    headers = {"X-API-Key": required("E2B_API_KEY")}
    with httpx.Client(base_url=required("E2B_API_URL"), headers=headers, timeout=30) as client:
        yield client


@pytest.fixture
def adopt(http):
    """Kills, by its id, each sandbox handed to it when the test is over."""
    ids: list[str] = []

    def remember(sandbox):
        ids.append(sandbox.sandbox_id)
        return sandbox

    yield remember
    left = {i: answer.text for i in ids if (answer := http.delete(f"/sandboxes/{i}")).status_code not in (204, 404)}
    assert not left, f"could not be removed: {left}"


@pytest.fixture
def until() -> Callable:
    """Polls until the probe is true; fails after the deadline."""

    def wait(probe, *, within: float = 20.0, what: str = "condition"):
        deadline = time.monotonic() + within
        while not (value := probe()):
            assert time.monotonic() < deadline, f"{what} did not come true within {within} s"
            time.sleep(0.02)
        return value

    return wait


@pytest.fixture
def label() -> str:
    return f"old-{uuid.uuid4().hex[:12]}"
