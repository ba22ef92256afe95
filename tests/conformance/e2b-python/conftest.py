"""Fixtures: settings, gardens, the flavours of the SDK, one shared sandbox per module."""

from __future__ import annotations

import pytest
import pytest_asyncio
from support import FLAVOURS, Flavour, Garden, Settings


@pytest.fixture(scope="session")
def settings() -> Settings:
    return Settings.from_environment()


@pytest.fixture
def garden(settings: Settings):
    """What one test makes."""
    made = Garden(settings)
    yield made
    made.clear()


@pytest.fixture(scope="module")
def module_garden(settings: Settings):
    """What the tests of a module share."""
    made = Garden(settings)
    yield made
    made.clear()


@pytest.fixture(scope="module", params=list(FLAVOURS))
def flavour(request) -> Flavour:
    """Each test that takes it runs twice: with the blocking and with the asyncio SDK."""
    return FLAVOURS[request.param]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(flavour: Flavour, module_garden: Garden):
    """One sandbox per flavour, shared by the tests of a module."""
    return await flavour.create(module_garden)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def async_box(module_garden: Garden):
    """One sandbox of the asyncio SDK, shared by the tests of a module."""
    return await FLAVOURS["async"].create(module_garden)


@pytest.fixture(scope="module")
def plain(module_garden: Garden):
    """One sandbox of the blocking SDK, shared by the tests of a module."""
    return module_garden.create()


@pytest.fixture
def http(settings: Settings):
    """Plain client of tenant A's control API."""
    with settings.raw() as client:
        yield client
