"""One sandbox, two protocols: made through one SDK, seen and used through the other."""

from __future__ import annotations

from datetime import timedelta

import pytest
from e2b_code_interpreter import Sandbox, SandboxNotFoundException
from opensandbox import SandboxSync
from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import SandboxFilter
from opensandbox.sync.manager import SandboxManagerSync
from support import state_of, unique, until


@pytest.fixture
def config(settings) -> ConnectionConfigSync:
    return ConnectionConfigSync(domain=settings.authority, api_key=settings.key)


def out(execution) -> str:
    assert execution.error is None and execution.exit_code == 0, str(execution)
    return execution.text


def test_made_by_e2b_used_by_opensandbox(garden, config, settings):
    label = unique("doors")
    made = garden.create(metadata={"case": label}, envs={"WORD": "shared"})
    made.files.write("/home/user/f", "written through E2B")
    with SandboxManagerSync.create(config) as manager:
        listed = manager.list_sandbox_infos(SandboxFilter(metadata={"case": label})).sandbox_infos
        assert [info.id for info in listed] == [made.sandbox_id]
        assert listed[0].status.state == "Running"
    seen = SandboxSync.connect(made.sandbox_id, connection_config=config)
    assert seen.files.read_file("/home/user/f") == "written through E2B"
    assert out(seen.commands.run("echo $WORD")) == "shared"
    seen.files.write_file("/home/user/g", "written through OpenSandbox")
    assert made.files.read("/home/user/g") == "written through OpenSandbox"
    seen.pause()
    until(lambda: state_of(settings, made.sandbox_id) == "paused", what="paused for both")
    assert not made.is_running()
    made.connect()
    assert seen.get_info().status.state == "Running"
    seen.renew(timedelta(seconds=1200))
    left = made.get_info().end_at - made.get_info().started_at
    assert left > timedelta(seconds=1100)
    seen.kill()
    until(lambda: state_of(settings, made.sandbox_id) == "gone", what="gone for both")
    with pytest.raises(SandboxNotFoundException):
        made.get_info()
    seen.close()


def test_made_by_opensandbox_used_by_e2b(garden, config):
    label = unique("doors")
    made = SandboxSync.create("base", connection_config=config, metadata={"case": label}, env={"WORD": "shared"})
    garden.adopt(made.id)
    seen = Sandbox.connect(made.id)
    assert seen.get_info().metadata == {"case": label} and seen.is_running()
    made.files.write_file("/tmp/f", "written through OpenSandbox")
    assert seen.files.read("/tmp/f") == "written through OpenSandbox"
    # It runs as whoever its image says, since its maker named nobody.
    assert seen.commands.run("echo $WORD; whoami").stdout == "shared\nroot\n"
    assert seen.commands.run("whoami", user="user").stdout == "user\n"
    assert out(made.commands.run("echo both")) == "both"
    assert made.id in [info.sandbox_id for info in Sandbox.list().next_items()]
    seen.pause()
    assert made.get_info().status.state == "Paused"
    again = SandboxSync.resume(made.id, connection_config=config)
    assert seen.is_running()
    seen.kill()
    with pytest.raises(SandboxApiException) as caught:
        again.get_info()
    assert caught.value.status_code == 404
    again.close()
    made.close()


def test_a_pool_serves_both_doors(garden, config):
    """The same template names; what one door claims the other can't."""
    ours = garden.create("demo")
    seen = SandboxSync.connect(ours.sandbox_id, connection_config=config)
    assert out(seen.commands.run("echo claimed")) == "claimed"
    seen.close()
