"""Commands of the blocking SDK: streams, exit codes, background work and sessions."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from opensandbox.exceptions import InvalidArgumentException, SandboxApiException
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.execd_sync import ExecutionHandlersSync
from support import out, refused, unique, until
from surface import covers


def texts(messages) -> list[str]:
    return [message.text for message in messages]


def ids_of(box, name: str) -> tuple[int, int]:
    uid, gid = out(box.commands.run(f"id -u {name}; id -g {name}")).split()
    return int(uid), int(gid)


@covers("SandboxSync.commands", "CommandsSync.run")
def test_handlers_see_every_kind_of_event(box):
    seen: dict[str, list] = {"init": [], "out": [], "err": [], "done": [], "error": []}
    handlers = ExecutionHandlersSync(
        on_init=seen["init"].append,
        on_stdout=seen["out"].append,
        on_stderr=seen["err"].append,
        on_execution_complete=seen["done"].append,
        on_error=seen["error"].append,
    )
    ran = box.commands.run("echo one; echo two >&2; echo three", handlers=handlers)
    assert texts(seen["out"]) == texts(ran.logs.stdout) == ["one", "three"]
    assert texts(seen["err"]) == texts(ran.logs.stderr) == ["two"]
    assert seen["err"][0].is_error is True and seen["out"][0].is_error is False
    assert [event.id for event in seen["init"]] == [ran.id] and ran.id
    assert len(seen["done"]) == 1 and seen["error"] == []
    assert ran.complete.execution_time_in_millis >= 0
    assert abs(ran.complete.timestamp - time.time() * 1000) < 60_000
    assert ran.exit_code == 0 and ran.error is None


def test_output_streams_while_the_command_runs(box):
    gate = f"/tmp/{unique('gate')}"
    box.commands.run(f"mkfifo {gate}")

    def on_stdout(message):
        if message.text == "first":
            box.commands.run(f"echo go > {gate}")

    ran = box.commands.run(
        f"echo first; read answer < {gate}; echo $answer",
        handlers=ExecutionHandlersSync(on_stdout=on_stdout),
        opts=RunCommandOpts(timeout=timedelta(seconds=20)),
    )
    assert texts(ran.logs.stdout) == ["first", "go"]


def test_skip_accumulation_only_feeds_the_handlers(box):
    seen = []
    handlers = ExecutionHandlersSync(on_stdout=seen.append, skip_accumulation=True)
    ran = box.commands.run("echo kept", handlers=handlers)
    assert texts(seen) == ["kept"] and ran.logs.stdout == [] and ran.exit_code == 0


@pytest.mark.parametrize("code", [1, 2, 42, 127, 255])
def test_exit_codes(box, code):
    ran = box.commands.run(f"echo before; exit {code}")
    assert ran.exit_code == code and texts(ran.logs.stdout) == ["before"]
    assert ran.error.name == "CommandExecError" and ran.error.value == str(code)
    assert ran.complete is None, "error and completion exclude each other"


def test_death_by_signal_is_an_error(box):
    ran = box.commands.run("kill -KILL $$")
    assert ran.error is not None and ran.complete is None and ran.exit_code != 0


@pytest.mark.parametrize(
    ("script", "lines"),
    [
        ("printf 'no newline'", "no newline"),
        (r"printf 'a\r\nb\r\n'", "a\nb"),
        (r"printf 'x\xe2\x80\xa8y\xc2\x85z'", "x\u2028y\u0085z"),
        ("printf 'h\\xc3\\xa9 \\xf0\\x9f\\x8f\\x9d'", "hé 🏝"),
        ('printf \'{"type":"error"}\\n\'', '{"type":"error"}'),
        ("printf 'data: x\\n'", "data: x"),
    ],
    ids=["partial", "crlf", "separators", "unicode", "json", "sse"],
)
def test_text_arrives_unharmed(box, script, lines):
    assert out(box.commands.run(script)) == lines


def test_blank_lines_are_kept(box):
    ran = box.commands.run(r"printf 'a\n\nb\n'")
    assert [text.rstrip("\n") for text in texts(ran.logs.stdout)] == ["a", "", "b"]


def test_much_output_is_complete(box):
    ran = box.commands.run("seq 1 50000; seq 1 2000 >&2")
    assert texts(ran.logs.stdout) == [str(n) for n in range(1, 50001)]
    assert texts(ran.logs.stderr) == [str(n) for n in range(1, 2001)]
    long_line = box.commands.run("head -c 300000 /dev/zero | tr '\\0' x")
    assert "".join(texts(long_line.logs.stdout)) == "x" * 300000


def test_stdin_is_closed(box):
    assert out(box.commands.run("cat; echo done")) == "done"


def test_directory_environment_and_user(box):
    opts = RunCommandOpts(working_directory="/usr", envs={"A": "1 2", "B": "$A"})
    assert out(box.commands.run('pwd; echo "$A|$B"', opts=opts)) == "/usr\n1 2|$A"
    uid, gid = ids_of(box, "nobody")
    assert out(box.commands.run("id -u; id -g", opts=RunCommandOpts(uid=uid, gid=gid))) == f"{uid}\n{gid}"
    assert out(box.commands.run("id -u", opts=RunCommandOpts(uid=uid))) == str(uid)
    with refused(400):
        box.commands.run("pwd", opts=RunCommandOpts(working_directory="/no/such/place"))
    with refused(400):
        box.commands.run("pwd", opts=RunCommandOpts(working_directory="/etc/passwd"))


def test_argv_reaches_the_program_without_a_shell(box):
    ran = box.commands.run(["printf", "%s|", "$HOME", "a b", "", "'q'", "*"])
    assert out(ran) == "$HOME|a b||'q'|*|"
    try:
        code = box.commands.run(["/no/such/program"]).exit_code
    except SandboxApiException as refusal:
        code = refusal.status_code
    assert code not in (0, None), "a program that is not there cannot succeed"


def test_timeout_ends_the_whole_group_and_keeps_the_output(box):
    began = time.monotonic()
    ran = box.commands.run(
        "echo $$ > /tmp/slow.pids; sleep 61 & echo $! >> /tmp/slow.pids; echo printed; wait; echo never",
        opts=RunCommandOpts(timeout=timedelta(seconds=1)),
    )
    assert time.monotonic() - began < 15
    assert ran.error is not None and ran.complete is None and ran.exit_code != 0
    assert texts(ran.logs.stdout) == ["printed"]
    gone = "for pid in $(cat /tmp/slow.pids); do kill -0 $pid && exit 1; done; exit 0"
    until(lambda: box.commands.run(gone).exit_code == 0, what="no process is left")


@covers(
    "CommandsSync.get_command_status",
    "CommandsSync.get_background_command_logs",
)
def test_background_command_status_and_logs(box):
    gate = f"/tmp/{unique('gate')}"
    script = f"echo one; echo err >&2; while [ ! -e {gate} ]; do sleep 0.05; done; echo two; exit 5"
    began = time.monotonic()
    started = box.commands.run(script, opts=RunCommandOpts(background=True))
    assert time.monotonic() - began < 5
    assert started.id and started.exit_code is None and started.error is None

    status = box.commands.get_command_status(started.id)
    assert status.id == started.id and status.content == script
    assert status.running is True and status.exit_code is None and status.finished_at is None
    assert status.started_at is not None

    def first_part():
        logs = box.commands.get_background_command_logs(started.id)
        return logs if {"one", "err"} <= set(logs.content.split()) else None

    first = until(first_part, what="the first lines")
    assert sorted(first.content.split()) == ["err", "one"] and first.cursor > 0
    nothing = box.commands.get_background_command_logs(started.id, cursor=first.cursor)
    assert nothing.content == "" and nothing.cursor in (first.cursor, None)

    box.commands.run(f"touch {gate}")
    done = until(
        lambda: (lambda s: None if s.running else s)(box.commands.get_command_status(started.id)),
        what="the end of the command",
    )
    assert done.exit_code == 5 and done.finished_at >= done.started_at
    rest = box.commands.get_background_command_logs(started.id, cursor=first.cursor)
    assert rest.content.split() == ["two"] and rest.cursor > first.cursor


@covers("CommandsSync.interrupt")
def test_interrupt_ends_background_and_foreground_commands(box):
    sleeping = box.commands.run("sleep 62", opts=RunCommandOpts(background=True))
    box.commands.interrupt(sleeping.id)
    ended = until(
        lambda: (lambda s: None if s.running else s)(box.commands.get_command_status(sleeping.id)),
        what="the interrupted command ends",
    )
    assert ended.exit_code != 0

    seen = {}

    def on_init(event):
        seen["id"] = event.id

    def on_stdout(_):
        box.commands.interrupt(seen["id"])

    began = time.monotonic()
    ran = box.commands.run(
        "echo ready; sleep 63; echo never",
        handlers=ExecutionHandlersSync(on_init=on_init, on_stdout=on_stdout),
        opts=RunCommandOpts(timeout=timedelta(seconds=40)),
    )
    assert time.monotonic() - began < 15
    assert texts(ran.logs.stdout) == ["ready"] and ran.error is not None


def test_interrupt_that_is_ignored_turns_into_a_kill(box):
    stubborn = box.commands.run(
        "trap '' TERM INT; echo up; while :; do sleep 0.1; done", opts=RunCommandOpts(background=True)
    )
    until(
        lambda: box.commands.get_background_command_logs(stubborn.id).content.strip() == "up",
        what="the trap is set",
    )
    box.commands.interrupt(stubborn.id)
    until(
        lambda: box.commands.get_command_status(stubborn.id).running is False,
        what="a stubborn command is killed",
    )


def test_unknown_commands_are_refused(box):
    nobody = "0" * 32
    with refused(404):
        box.commands.get_command_status(nobody)
    with refused((400, 404)):
        box.commands.get_background_command_logs(nobody)
    with refused((400, 404, 500)):
        box.commands.interrupt(nobody)
    with pytest.raises(InvalidArgumentException):
        box.commands.run("  ")


@covers("CommandsSync.set_env")
def test_set_env_reaches_later_commands_and_sessions(box):
    values = {
        "PLAIN": "value",
        "SPACED": 'two words $HOME "quoted" \\n #x',
        "QUOTED": 'it\'s "here"',
        "MULTI": "a\nb",
    }
    for key, value in values.items():
        box.commands.set_env(key, value)
    for key, value in values.items():
        assert out(box.commands.run(f'printf %s "${key}"')) == value
    box.commands.set_env("PLAIN", "later wins")
    assert out(box.commands.run("echo $PLAIN")) == "later wins"
    session = box.commands.create_session()
    assert out(box.commands.run_in_session(session, "echo $PLAIN")) == "later wins"
    box.commands.delete_session(session)
    assert out(box.commands.run("echo $PLAIN", opts=RunCommandOpts(envs={"PLAIN": "mine"}))) == "mine"
    with pytest.raises(InvalidArgumentException):
        box.commands.set_env("not-a-name", "x")


@covers("CommandsSync.create_session", "CommandsSync.run_in_session", "CommandsSync.delete_session")
def test_session_keeps_its_state(box):
    session = box.commands.create_session(working_directory="/tmp")
    run = lambda text, **more: box.commands.run_in_session(session, text, **more)  # noqa: E731
    assert out(run("pwd")) == "/tmp"
    run("export COLOR=blue; count=1; cd /usr; greet() { echo hi $1; }")
    assert out(run("echo $COLOR $count; pwd; greet you")) == "blue 1\n/usr\nhi you"
    failed = run("echo failing; (exit 7)")
    assert failed.exit_code == 7 and failed.complete is None
    assert texts(failed.logs.stdout) == ["failing"]
    assert out(run("echo $COLOR")) == "blue", "a failed run must not end the session"
    assert out(run("pwd", working_directory="/etc")) == "/etc"
    seen = []
    run("echo streamed", handlers=ExecutionHandlersSync(on_stdout=seen.append))
    assert texts(seen) == ["streamed"]
    began = time.monotonic()
    assert run("sleep 64", timeout=timedelta(seconds=1)).error is not None
    assert time.monotonic() - began < 15
    box.commands.delete_session(session)
    with refused((400, 404)):
        run("pwd")
    with refused((400, 404)):
        box.commands.delete_session(session)


def test_sessions_are_separate(box):
    one, two = box.commands.create_session(), box.commands.create_session()
    assert one != two
    box.commands.run_in_session(one, "mine=1")
    assert out(box.commands.run_in_session(two, 'echo "[$mine]"')) == "[]"
    for session in (one, two):
        box.commands.delete_session(session)
