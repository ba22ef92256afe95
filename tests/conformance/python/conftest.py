"""Fixtures: the settings, a garden of sandboxes per test, one shared sandbox per module."""

from __future__ import annotations

import os

import pytest
import pytest_asyncio
from opensandbox import Sandbox, SandboxSync
from support import Garden, Settings, manager_of, required

# The SDK would otherwise fall back on these.
for name in ("OPEN_SANDBOX_API_KEY", "OPEN_SANDBOX_DOMAIN"):
    os.environ.pop(name, None)


@pytest.fixture(scope="session")
def settings() -> Settings:
    return Settings.from_environment()


@pytest.fixture
def garden(settings: Settings):
    """Sandboxes of one test."""
    made = Garden(settings)
    yield made
    made.clear()


@pytest.fixture(scope="module")
def module_garden(settings: Settings):
    """Sandboxes that a module's tests share."""
    made = Garden(settings)
    yield made
    made.clear()


@pytest.fixture(scope="module")
def box(module_garden: Garden) -> SandboxSync:
    """One sandbox shared by the blocking tests of a module."""
    sandbox = module_garden.create()
    yield sandbox
    sandbox.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def abox(settings: Settings, module_garden: Garden) -> Sandbox:
    """One sandbox shared by the asyncio tests of a module."""
    sandbox = await Sandbox.create(settings.image, connection_config=settings.async_config())
    module_garden.adopt(sandbox.id)
    yield sandbox
    await sandbox.close()


@pytest.fixture
def manager(settings: Settings):
    with manager_of(settings) as made:
        yield made


@pytest.fixture
def http(settings: Settings):
    """Plain client of tenant A."""
    with settings.raw() as client:
        yield client


@pytest.fixture(scope="session")
def host_volume_dir() -> str:
    return required("ATOLL_HOST_VOLUME_DIR")
