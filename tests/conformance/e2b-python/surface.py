"""Registry that ties each public method of the published packages to a test.

A test says what it exercises with ``@covers("Commands.run")``. Most tests run with
both flavours of the SDK and then cover ``AsyncCommands.run`` as well; a test of only one
says so with ``only="sync"`` or ``only="async"``. ``test_surface.py`` compares the
registry with what the installed packages offer.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path

import e2b
import e2b_code_interpreter as sdk
from e2b.sandbox_async.commands.command import Commands as AsyncCommands
from e2b.sandbox_async.commands.pty import Pty as AsyncPty
from e2b.sandbox_async.filesystem.filesystem import Filesystem as AsyncFilesystem
from e2b.sandbox_async.git import Git as AsyncGit
from e2b.sandbox_sync.commands.command import Commands
from e2b.sandbox_sync.commands.pty import Pty
from e2b.sandbox_sync.filesystem.filesystem import Filesystem
from e2b.template.main import TemplateBuilder

HERE = Path(__file__).parent

#: What talks to the server or to the daemon in a sandbox: name in claims -> (blocking, asyncio).
PAIRS: dict[str, tuple[type, type]] = {
    "Sandbox": (sdk.Sandbox, sdk.AsyncSandbox),
    "SandboxPaginator": (e2b.SandboxPaginator, e2b.AsyncSandboxPaginator),
    "SnapshotPaginator": (e2b.SnapshotPaginator, e2b.AsyncSnapshotPaginator),
    "Commands": (Commands, AsyncCommands),
    "CommandHandle": (e2b.CommandHandle, e2b.AsyncCommandHandle),
    "Filesystem": (Filesystem, AsyncFilesystem),
    "WatchHandle": (e2b.WatchHandle, e2b.AsyncWatchHandle),
    "Pty": (Pty, AsyncPty),
    "Git": (e2b.Git, AsyncGit),
    "Template": (e2b.Template, e2b.AsyncTemplate),
    "Volume": (e2b.Volume, e2b.AsyncVolume),
    "Secret": (e2b.Secret, e2b.AsyncSecret),
    "SecretPaginator": (e2b.SecretPaginator, e2b.AsyncSecretPaginator),
}

#: Classes without a twin.
SINGLES: dict[str, type] = {
    "TemplateBuilder": TemplateBuilder,
    "AsyncCommandInputHandle": e2b.AsyncCommandInputHandle,
}

#: claim -> the test functions that make it
CLAIMS: dict[str, list[Callable]] = {}


def covers(*claims: str, only: str = ""):
    """Register the decorated test as the proof of these public methods."""

    def register(test: Callable) -> Callable:
        for claim in claims:
            owner, _, name = claim.partition(".")
            if owner not in PAIRS:
                CLAIMS.setdefault(claim, []).append(test)
                continue
            blocking, asyncio_twin = PAIRS[owner]
            if only != "async" and hasattr(blocking, name):
                CLAIMS.setdefault(claim, []).append(test)
            if only != "sync" and hasattr(asyncio_twin, name):
                CLAIMS.setdefault(f"Async{claim}", []).append(test)
            if not hasattr(blocking, name) and not hasattr(asyncio_twin, name):
                CLAIMS.setdefault(claim, []).append(test)
        return test

    return register


def load_every_claim() -> dict[str, list[Callable]]:
    """Import all test modules, so that claims exist whatever subset pytest runs."""
    for path in sorted(HERE.glob("test_*.py")):
        importlib.import_module(path.stem)
    return CLAIMS


def offered() -> set[str]:
    """Every public method and property of the classes above."""
    names = {f"{owner}.{name}" for owner, cls in SINGLES.items() for name in public_methods(cls)}
    for owner, (blocking, asyncio_twin) in PAIRS.items():
        names |= {f"{owner}.{name}" for name in public_methods(blocking)}
        names |= {f"Async{owner}.{name}" for name in public_methods(asyncio_twin)}
    return names


def public_methods(cls: type) -> set[str]:
    """Public methods and properties of a class, without what object brings."""
    inherited = set(dir(object))
    names = set()
    for name in dir(cls):
        if name.startswith("_") or name in inherited:
            continue
        member = inspect.getattr_static(cls, name)
        if callable(getattr(cls, name, None)) or isinstance(member, property):
            names.add(name)
    return names


def words_used(test: Callable) -> set[str]:
    """Attribute names and string constants in a test, its ``covers`` claims left out."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(test)))
    function = tree.body[0]
    function.decorator_list = [
        node
        for node in function.decorator_list
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "covers")
    ]
    words = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.add(node.value)
    return words
