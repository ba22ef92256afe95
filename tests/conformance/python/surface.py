"""Registry that ties each public method of the published packages to a test.

A test says what it exercises with ``@covers("SandboxSync.renew")`` or, for the
command line, ``@covers("osb sandbox list")``. ``test_surface.py`` compares the
registry with what the installed packages offer.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent

#: claim -> the test functions that make it
CLAIMS: dict[str, list[Callable]] = {}


def covers(*claims: str):
    """Register the decorated test as the proof of these public methods."""

    def register(test: Callable) -> Callable:
        for claim in claims:
            CLAIMS.setdefault(claim, []).append(test)
        return test

    return register


def load_every_claim() -> dict[str, list[Callable]]:
    """Import all test modules, so that claims exist whatever subset pytest runs."""
    for path in sorted(HERE.glob("test_*.py")):
        importlib.import_module(path.stem)
    return CLAIMS


def public_methods(cls: type) -> set[str]:
    """Public methods and properties of a class, without what pydantic or object bring."""
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
