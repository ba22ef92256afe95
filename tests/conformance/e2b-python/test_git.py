"""The git helpers, against repositories inside the sandbox."""

from __future__ import annotations

import pytest
from e2b_code_interpreter import CommandExitException, GitUpstreamException, InvalidArgumentException
from support import now, unique
from surface import covers


@pytest.fixture
def path() -> str:
    return f"/home/user/{unique('repo')}"


@covers(
    "Sandbox.git",
    "Git.init",
    "Git.configure_user",
    "Git.set_config",
    "Git.get_config",
    "Git.status",
    "Git.add",
    "Git.commit",
    "Git.branches",
    "Git.create_branch",
    "Git.checkout_branch",
    "Git.delete_branch",
    "Git.reset",
    "Git.restore",
)
async def test_a_repository(box, path):
    git = box.git
    await now(git.init(path, initial_branch="main"))
    await now(git.configure_user("Me", "me@example.com", scope="local", path=path))
    await now(git.set_config("core.abbrev", "12", scope="local", path=path))
    assert await now(git.get_config("core.abbrev", scope="local", path=path)) == "12"
    assert await now(git.get_config("no.such", scope="local", path=path)) is None
    await now(box.files.write(f"{path}/a", "one\n"))
    status = await now(git.status(path))
    assert status.current_branch == "main" and status.has_untracked and not status.is_clean
    await now(git.add(path))
    assert (await now(git.status(path))).has_staged
    await now(git.commit(path, "first"))
    assert (await now(git.status(path))).is_clean
    await now(git.create_branch(path, "topic"))
    branches = await now(git.branches(path))
    assert set(branches.branches) == {"main", "topic"} and branches.current_branch == "topic"
    await now(git.checkout_branch(path, "main"))
    await now(git.delete_branch(path, "topic"))
    assert (await now(git.branches(path))).branches == ["main"]
    await now(box.files.write(f"{path}/a", "two\n"))
    await now(git.restore(path, ["a"]))
    assert await now(box.files.read(f"{path}/a")) == "one\n"
    await now(box.files.write(f"{path}/b", "new\n"))
    await now(git.add(path, files=["b"]))
    await now(git.reset(path, mode="hard"))
    assert (await now(git.status(path))).is_clean
    with pytest.raises(CommandExitException):
        await now(git.commit(path, "nothing changed"))


@covers("Git.clone", "Git.remote_add", "Git.remote_get", "Git.push", "Git.pull", "Git.dangerously_authenticate")
async def test_remotes(box, path):
    git, bare, clone = box.git, f"{path}.git", f"{path}-clone"
    await now(git.init(bare, bare=True, initial_branch="main"))
    await now(git.init(path, initial_branch="main"))
    await now(git.configure_user("Me", "me@example.com", scope="local", path=path))
    await now(git.commit(path, "first", allow_empty=True))
    with pytest.raises((GitUpstreamException, CommandExitException, InvalidArgumentException)):
        await now(git.pull(path))
    await now(git.remote_add(path, "origin", f"file://{bare}"))
    assert await now(git.remote_get(path, "origin")) == f"file://{bare}"
    assert await now(git.remote_get(path, "other")) is None
    await now(git.push(path, remote="origin", branch="main"))
    await now(git.clone(f"file://{bare}", clone, branch="main", depth=1))
    await now(box.files.write(f"{path}/later", "x"))
    await now(git.add(path))
    await now(git.commit(path, "second"))
    await now(git.push(path, remote="origin", branch="main"))
    await now(git.pull(clone, remote="origin", branch="main"))
    assert await now(box.files.exists(f"{clone}/later")) is True
    status = await now(git.status(clone))
    assert (status.ahead, status.behind, status.upstream) == (0, 0, "origin/main")
    await now(git.dangerously_authenticate("me", "pass", host="git.example"))
    assert "me:pass@git.example" in await now(box.files.read(".git-credentials"))
