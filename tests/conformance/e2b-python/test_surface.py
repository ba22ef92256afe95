"""Every public method of the published packages has a test, or is named here with a reason."""

from __future__ import annotations

import re
from enum import Enum
from importlib.metadata import version
from pathlib import Path

import e2b
import e2b_code_interpreter as sdk
import pytest
from surface import PAIRS, SINGLES, load_every_claim, offered, words_used

#: Exported classes that are values, errors, or run in the client alone, never on the wire by themselves.
CLIENT_ONLY = {
    # Bound copies of the classes above; used in `test_a_bound_client_needs_no_environment`.
    "E2B",
    "ApiClient",
    "ConnectionConfig",
    "VolumeConnectionConfig",
    "TemplateBase",
    "ReadyCmd",
    "LogEntry",
    "LogEntryStart",
    "LogEntryEnd",
    "ProcessInfo",
    "PtySize",
    "CommandResult",
    "Execution",
    "ExecutionError",
    "Result",
    "Logs",
    "Context",
    "MIMEType",
    "OutputMessage",
}


def test_every_public_method_has_a_test():
    missing = sorted(offered() - set(load_every_claim()))
    assert not missing, f"no test covers {missing}"


def test_no_claim_is_out_of_date():
    unknown = sorted(set(load_every_claim()) - offered())
    assert not unknown, f"the packages do not offer {unknown}"


def test_every_claim_is_used_in_its_test():
    empty = [
        claim
        for claim, tests in load_every_claim().items()
        if not any(claim.rsplit(".", 1)[1] in words_used(test) for test in tests)
    ]
    assert not empty, f"claimed but not called: {empty}"


@pytest.mark.parametrize("package", [e2b, sdk])
def test_no_exported_class_is_forgotten(package):
    known = {cls for pair in PAIRS.values() for cls in pair} | set(SINGLES.values())
    known |= {parent for cls in known for parent in cls.__mro__}
    exported = {
        name
        for name, value in vars(package).items()
        if isinstance(value, type) and not name.startswith("_") and value not in known
    }
    left = {name for name in exported - CLIENT_ONLY if not is_value(getattr(package, name))}
    assert not left, f"new in {package.__name__}: {sorted(left)}"


def is_value(cls: type) -> bool:
    """Typed dictionaries, data classes, enumerations, errors and other names of `str` make no calls."""
    plain = issubclass(cls, (dict, Enum, BaseException)) or cls.__module__ == "builtins"
    return plain or hasattr(cls, "__dataclass_fields__")


def test_installed_versions_are_the_pinned_ones():
    pinned = dict(
        re.findall(r"^([\w.-]+)==(\S+)$", (Path(__file__).parent / "requirements.txt").read_text(), re.M)
    )
    for name in ("e2b", "e2b-code-interpreter", "opensandbox"):
        assert version(name) == pinned[name], f"install the pinned {name} {pinned[name]}"
