"""The published command line, run as a process for each command."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support import state_of, unique, until
from surface import covers


class Osb:
    """Runs ``osb`` with its own home directory and without colours."""

    def __init__(self, settings, home) -> None:
        self.settings, self.home = settings, home

    def start(self, *words: str) -> subprocess.Popen:
        return subprocess.Popen(
            self._line(*words),
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def _line(self, *words: str) -> list[str]:
        at = ["--api-key", self.settings.key, "--domain", self.settings.domain, "--no-color"]
        return [sys.executable, "-m", "opensandbox_cli", *at, *words]

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "COLUMNS": "200"}

    def _run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess:
        return subprocess.run(
            self._line(*words),
            env=self._environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def __call__(self, *words: str, stdin: str = "") -> str:
        """Standard output of a command that must succeed."""
        done = self._run(*words, stdin=stdin)
        assert done.returncode == 0, f"osb {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *words: str):
        return json.loads(self(*words, "-o", "json"))

    def refused(self, *words: str, says: str = "", stdin: str = "") -> str:
        """Output of a command that must fail."""
        done = self._run(*words, stdin=stdin)
        said = done.stdout + done.stderr
        assert done.returncode != 0, f"osb {' '.join(words)} succeeded: {said}"
        assert says in said, said
        return said


@pytest.fixture(scope="module")
def osb(settings, tmp_path_factory) -> Osb:
    return Osb(settings, tmp_path_factory.mktemp("osb-home"))


@covers(
    "osb sandbox create",
    "osb sandbox get",
    "osb sandbox list",
    "osb sandbox renew",
    "osb sandbox pause",
    "osb sandbox resume",
    "osb sandbox kill",
)
def test_sandbox_lifecycle(osb, garden, settings):
    label = unique()
    made = osb.json(
        "sandbox", "create", "--image", settings.image, "--timeout", "10m",
        "--metadata", f"cli={label}", "--env", "A=b c", "--resource", "cpu=500m", "--resource", "memory=256Mi",
    )  # fmt: skip
    sandbox_id = garden.adopt(made["id"])
    assert made["status"] == "created"
    shown = osb.json("sandbox", "get", sandbox_id)
    assert shown["status"]["state"] == "Running" and shown["metadata"] == {"cli": label}
    listed = osb.json("sandbox", "list", "--metadata", f"cli={label}", "--state", "running")
    assert [item["id"] for item in listed["items"]] == [sandbox_id]
    assert sandbox_id in osb("sandbox", "list", "--metadata", f"cli={label}")
    assert osb.json("sandbox", "renew", sandbox_id, "--timeout", "30m")["sandbox_id"] == sandbox_id
    osb("sandbox", "pause", sandbox_id)
    until(lambda: state_of(settings, sandbox_id) == "Paused", what="Paused")
    osb("sandbox", "resume", sandbox_id)
    assert state_of(settings, sandbox_id) == "Running"
    assert osb.json("sandbox", "kill", sandbox_id)[0]["status"] == "terminated"
    osb.refused("sandbox", "get", sandbox_id, says="SANDBOX_NOT_FOUND")


@covers("osb sandbox endpoint", "osb sandbox health", "osb sandbox metrics")
def test_sandbox_views(osb, box):
    endpoint = osb.json("sandbox", "endpoint", box.id, "--port", "8080")["endpoint"]
    assert "://" not in endpoint and endpoint.endswith("8080")
    assert osb.json("sandbox", "health", box.id) == {"sandbox_id": box.id, "healthy": True}
    assert osb.json("sandbox", "metrics", box.id)["cpu_count"] > 0
    watching = osb.start("sandbox", "metrics", box.id, "--watch", "-o", "json")
    try:
        samples = [json.loads(watching.stdout.readline()) for _ in range(2)]
    finally:
        watching.terminate()
        watching.communicate(timeout=20)
    assert samples[1]["timestamp"] > samples[0]["timestamp"]


def test_server_proxy_flag(osb, box):
    assert osb("--use-server-proxy", "command", "run", box.id, "--", "echo", "proxied") == "proxied\n"


@covers("osb command run", "osb command status", "osb command logs", "osb command interrupt")
def test_commands(osb, box):
    assert osb("command", "run", box.id, "--", "echo", "hello $HOME") == "hello $HOME\n"
    assert osb("command", "run", box.id, "--argv", "--", "printf", "%s", "$HOME") == "$HOME\n"
    assert osb("command", "run", box.id, "-w", "/usr", "--", "pwd") == "/usr\n"
    osb.refused("command", "run", box.id, "--", "sh", "-c", "exit 3", says="CommandExecError: 3")
    script = ("sh", "-c", "echo up; sleep 71")
    started = osb("command", "run", box.id, "--background", "-o", "json", "--", *script)
    execution = json.loads(started)["execution_id"]
    until(lambda: "up" in osb("command", "logs", box.id, execution, "-o", "raw"), what="the log line")
    assert osb.json("command", "logs", box.id, execution, "--cursor", "0")["cursor"] > 0
    assert osb.json("command", "status", box.id, execution)["running"] is True
    osb("command", "interrupt", box.id, execution)
    until(
        lambda: osb.json("command", "status", box.id, execution)["running"] is False,
        what="the command ends",
    )


@covers("osb command session create", "osb command session run", "osb command session delete")
def test_command_sessions(osb, box):
    session = osb.json("command", "session", "create", box.id, "--workdir", "/usr")["session_id"]
    assert osb("command", "session", "run", box.id, session, "--", "pwd") == "/usr\n"
    osb("command", "session", "run", box.id, session, "--", "cd", "/tmp")
    assert osb("command", "session", "run", box.id, session, "--", "pwd") == "/tmp\n"
    osb("command", "session", "delete", box.id, session)
    osb.refused("command", "session", "run", box.id, session, "--", "pwd")


@covers(
    "osb file write",
    "osb file cat",
    "osb file upload",
    "osb file download",
    "osb file info",
    "osb file mv",
    "osb file rm",
    "osb file chmod",
    "osb file replace",
)
def test_files(osb, box, tmp_path):
    at = f"/tmp/{unique('cli')}"
    osb("file", "write", box.id, f"{at}/a", "--content", "one two", "--mode", "640")
    assert osb("file", "cat", box.id, f"{at}/a") == "one two"
    osb("file", "write", box.id, f"{at}/piped", stdin="from stdin")
    assert osb("file", "cat", box.id, f"{at}/piped") == "from stdin"
    assert osb.json("file", "info", box.id, f"{at}/a")[0]["mode"] == 640
    blob = os.urandom(200_000)
    (tmp_path / "up").write_bytes(blob)
    osb("file", "upload", box.id, str(tmp_path / "up"), f"{at}/blob")
    osb("file", "download", box.id, f"{at}/blob", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == blob
    osb("file", "replace", box.id, f"{at}/a", "--old", "two", "--new", "three")
    osb("file", "chmod", box.id, f"{at}/a", "--mode", "600", "--owner", "nobody")
    osb("file", "mv", box.id, f"{at}/a", f"{at}/b")
    assert osb("file", "cat", box.id, f"{at}/b") == "one three"
    about = osb.json("file", "info", box.id, f"{at}/b")[0]
    assert (about["mode"], about["owner"]) == (600, "nobody")
    osb("file", "rm", box.id, f"{at}/b", f"{at}/blob")
    osb.refused("file", "cat", box.id, f"{at}/b", says="FILE_NOT_FOUND")


@covers("osb file mkdir", "osb file rmdir", "osb file search")
def test_directories(osb, box):
    at = f"/tmp/{unique('clidir')}"
    osb("file", "mkdir", box.id, f"{at}/x", f"{at}/y", "--mode", "750")
    box.files.write_file(f"{at}/x/found.py", "1")
    found = osb.json("file", "search", box.id, at, "--pattern", "*.py")
    assert [entry["path"] for entry in found] == [f"{at}/x/found.py"]
    osb("file", "rmdir", box.id, at)
    osb.refused("file", "info", box.id, at, says="FILE_NOT_FOUND")


@covers("osb snapshot create", "osb snapshot get", "osb snapshot list", "osb snapshot delete")
def test_snapshots(osb, garden):
    box, name = garden.create(), unique("snap")
    snapshot = osb.json("snapshot", "create", box.id, "--name", name)["id"]
    until(lambda: osb.json("snapshot", "get", snapshot)["status"]["state"] == "Ready", what="Ready")
    listed = osb.json("snapshot", "list", "--name", name, "--sandbox-id", box.id)
    assert [item["id"] for item in listed["items"]] == [snapshot]
    osb("snapshot", "delete", snapshot)
    osb.refused("snapshot", "get", snapshot, says="SNAPSHOT::NOT_FOUND")


@covers("osb diagnostics logs", "osb diagnostics events")
def test_diagnostics(osb, box):
    assert osb.json("diagnostics", "logs", box.id, "--scope", "container")["kind"] == "logs"
    assert osb("diagnostics", "events", box.id, "--scope", "runtime").strip()
    osb.refused("diagnostics", "logs", box.id, "--scope", "nonsense", says="DIAGNOSTICS_SCOPE_UNSUPPORTED")


@covers("osb devops logs", "osb devops inspect", "osb devops events", "osb devops summary")
def test_devops(osb, garden):
    mark = unique("boot")
    box = garden.create(entrypoint=["sh", "-c", f"echo {mark}; exec sleep infinity"])
    until(lambda: mark in osb("devops", "logs", box.id, "--tail", "20", "--since", "10m"), what="the log")
    assert box.id in osb("devops", "inspect", box.id)
    assert osb("devops", "events", box.id, "--limit", "5").strip()
    assert mark in osb("devops", "summary", box.id)
    osb.refused("devops", "inspect", "nosuchsandbox", says="not found")


@covers("osb egress get", "osb egress patch")
def test_egress(osb, box, settings):
    assert osb.json("egress", "get", box.id)["default_action"] == settings.egress
    osb.refused("egress", "patch", box.id, "--rule", "deny=example.com")


@covers(
    "osb credential-vault create",
    "osb credential-vault get",
    "osb credential-vault patch",
    "osb credential-vault delete",
    "osb credential-vault credential list",
    "osb credential-vault credential get",
    "osb credential-vault binding list",
    "osb credential-vault binding get",
)
def test_credential_vault_is_refused(osb, box, tmp_path):
    payload = tmp_path / "vault.json"
    payload.write_text(json.dumps({"credentials": [], "bindings": []}))
    changes = tmp_path / "patch.json"
    changes.write_text(json.dumps({"credentials": {"delete": ["x"]}}))
    osb.refused("credential-vault", "create", box.id, "--file", str(payload))
    osb.refused("credential-vault", "get", box.id)
    osb.refused("credential-vault", "patch", box.id, "--file", str(changes))
    osb.refused("credential-vault", "delete", box.id)
    osb.refused("credential-vault", "credential", "list", box.id)
    osb.refused("credential-vault", "credential", "get", box.id, "name")
    osb.refused("credential-vault", "binding", "list", box.id)
    osb.refused("credential-vault", "binding", "get", box.id, "name")


@covers("osb template create", "osb template get", "osb template list", "osb template delete")
def test_templates_are_refused(osb):
    says = "FSB::API_NOT_SUPPORTED"
    osb.refused("template", "create", "--image", "base", "--publish", "s3://b/p", says=says)
    osb.refused("template", "get", "tpl_none", says=says)
    osb.refused("template", "list", says=says)
    osb.refused("template", "delete", "tpl_none", says=says)


def test_wrong_key_is_told(osb, settings):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "opensandbox_cli",
            "--api-key",
            "wrong",
            "--domain",
            settings.domain,
            "--no-color",
            "sandbox",
            "list",
        ],
        env={"PATH": os.environ["PATH"], "HOME": str(osb.home)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0 and "INVALID_API_KEY" in done.stdout + done.stderr
