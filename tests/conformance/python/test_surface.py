"""Every public method of the published packages has a test, or is named here with a reason."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import click
import code_interpreter
import opensandbox
import opensandbox.services as services
import opensandbox.sync.services as sync_services
import pytest
from code_interpreter.services import Codes
from code_interpreter.sync.services import CodesSync
from opensandbox_cli.main import cli
from surface import load_every_claim, public_methods, words_used

#: Classes whose methods talk to the server, or to the daemon in a sandbox.
CLASSES: list[type] = [
    opensandbox.Sandbox,
    opensandbox.SandboxManager,
    opensandbox.SandboxSync,
    opensandbox.SandboxManagerSync,
    opensandbox.SandboxPoolSync,
    opensandbox.SandboxPoolAsync,
    opensandbox.SandboxPoolManagerSync,
    opensandbox.SandboxPoolManagerAsync,
    code_interpreter.CodeInterpreter,
    code_interpreter.CodeInterpreterSync,
    Codes,
    CodesSync,
    *(getattr(services, name) for name in services.__all__),
    *(getattr(sync_services, name) for name in sync_services.__all__),
]

#: Exported names that are values or run in the client alone, never on the wire.
CLIENT_ONLY = {
    "AcquirePolicy",
    "AsyncPooledSandboxCreator",
    "InMemoryAsyncPoolStateStore",
    "InMemoryPoolStateStore",
    "PoolCreationSpec",
    "PoolDestroyOptions",
    "PoolDestroyResult",
    "PoolDestroyState",
    "PoolDestroyStrategy",
    "PooledSandboxCreateContext",
    "PooledSandboxCreateReason",
    "PooledSandboxCreator",
    "CodeContext",
    "SupportedLanguage",
}

#: Groups of the command line that only touch files on the caller's machine.
LOCAL_COMMANDS = ("osb config ", "osb skills ")

#: Methods that this server refuses by contract; each has a test of the documented refusal.
REFUSED: dict[str, tuple[str, ...]] = {
    "templates: 501 FSB::API_NOT_SUPPORTED": (
        *(f"{name}.create_from_template" for name in ("Sandbox", "SandboxSync")),
        *(
            f"{name}.{verb}"
            for name in ("SandboxManager", "SandboxManagerSync", "Sandboxes", "SandboxesSync")
            for verb in ("create_template", "get_template", "list_templates", "delete_template")
        ),
        *(f"{name}.create_sandbox_from_template" for name in ("Sandboxes", "SandboxesSync")),
        *(f"osb template {verb}" for verb in ("create", "get", "list", "delete")),
    ),
    "changing egress rules: refused, reading works": (
        *(
            f"{name}.{verb}_egress_rules"
            for name in ("Sandbox", "SandboxSync")
            for verb in ("patch", "delete")
        ),
        *(f"{name}.{verb}_rules" for name in ("Egress", "EgressSync") for verb in ("patch", "delete")),
        "osb egress patch",
    ),
    "credential vault: refused": (
        *(
            f"{name}{kind}.{verb}"
            for name in ("CredentialVault", "Egress")
            for kind in ("", "Sync")
            for verb in (
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
        *(
            f"osb credential-vault {verb}"
            for verb in (
                "create",
                "get",
                "patch",
                "delete",
                "credential list",
                "credential get",
                "binding list",
                "binding get",
            )
        ),
    ),
    "isolated sessions: 503, capabilities say available=false": (
        *(
            f"{name}.{verb}"
            for name in ("IsolationService", "IsolationServiceSync")
            for verb in ("create", "attach", "list", "run_once", "session")
        ),
        *(
            f"{name}.{verb}"
            for name in ("IsolationSession", "IsolationSessionSync")
            for verb in ("files", "run", "run_background", "run_status", "run_logs", "get", "delete")
        ),
    ),
}


def commands(node: click.Command, path: str = "osb") -> set[str]:
    """All leaves of the command line."""
    if isinstance(node, click.Group):
        return set().union(*(commands(leaf, f"{path} {name}") for name, leaf in node.commands.items()))
    return {path}


def everything_offered() -> set[str]:
    offered = {f"{cls.__name__}.{name}" for cls in CLASSES for name in public_methods(cls)}
    return offered | {name for name in commands(cli) if not name.startswith(LOCAL_COMMANDS)}


def test_every_public_method_has_a_test():
    missing = sorted(everything_offered() - set(load_every_claim()))
    assert not missing, f"no test covers {missing}"


def test_no_claim_is_out_of_date():
    unknown = sorted(set(load_every_claim()) - everything_offered())
    assert not unknown, f"the packages do not offer {unknown}"


def test_every_claim_is_used_in_its_test():
    empty = []
    for claim, tests in load_every_claim().items():
        words = claim.split()[1:] if claim.startswith("osb ") else [claim.split(".")[1]]
        if not any(set(words) <= words_used(test) for test in tests):
            empty.append(claim)
    assert not empty, f"claimed but not called: {empty}"


def test_refused_methods_exist_and_are_tested():
    refused = {name for group in REFUSED.values() for name in group}
    assert refused <= everything_offered(), sorted(refused - everything_offered())
    claims = load_every_claim()
    for name in refused:
        tests = claims.get(name, [])
        assert any(
            {"refused", "raises"} & (words_used(test) | set(test.__code__.co_names)) for test in tests
        ), f"{name} is listed as refused, but no test expects a refusal"


@pytest.mark.parametrize("package", [opensandbox, code_interpreter])
def test_no_exported_name_is_forgotten(package):
    known = {cls.__name__ for cls in CLASSES} | CLIENT_ONLY
    exported = {
        value.__name__
        for value in (getattr(package, name) for name in package.__all__)
        if isinstance(value, type)
    }
    assert exported <= known, f"new in {package.__name__}: {sorted(exported - known)}"


def test_installed_versions_are_the_pinned_ones():
    pinned = dict(
        re.findall(r"^([\w.-]+)==(\S+)$", (Path(__file__).parent / "requirements.txt").read_text(), re.M)
    )
    for name in ("opensandbox", "opensandbox-cli", "opensandbox-code-interpreter"):
        assert version(name) == pinned[name], f"install the pinned {name} {pinned[name]}"
