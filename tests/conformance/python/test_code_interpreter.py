"""The code interpreter package: this server's plain images have no kernels and say so."""

from __future__ import annotations

from datetime import timedelta

import pytest
from code_interpreter import CodeInterpreter, CodeInterpreterSync
from opensandbox.exceptions import SandboxApiException, SandboxReadyTimeoutException
from support import out
from surface import covers

QUICK = {"ready_timeout": timedelta(seconds=1), "health_check_polling_interval": timedelta(milliseconds=100)}


def says_no(error: SandboxApiException) -> None:
    assert error.status_code in (400, 404, 500, 501, 503), error
    said = str(error) + (error.response_body or b"").decode(errors="replace")
    assert "NOT_SUPPORTED" in said and "code" in said.lower(), said


@covers(
    "CodeInterpreterSync.create",
    "CodeInterpreterSync.is_healthy",
    "CodeInterpreterSync.check_ready",
    "CodeInterpreterSync.ping",
    "CodeInterpreterSync.close",
    "CodeInterpreterSync.codes",
    "CodeInterpreterSync.id",
    "CodeInterpreterSync.sandbox",
    "CodeInterpreterSync.files",
    "CodeInterpreterSync.commands",
    "CodeInterpreterSync.metrics",
    "CodesSync.ping",
    "CodesSync.create_context",
    "CodesSync.get_context",
    "CodesSync.list_contexts",
    "CodesSync.delete_context",
    "CodesSync.delete_contexts",
    "CodesSync.run",
    "CodesSync.interrupt",
)
def test_blocking_interpreter(box):
    with pytest.raises(SandboxReadyTimeoutException):
        CodeInterpreterSync.create(box, **QUICK)
    interpreter = CodeInterpreterSync.create(box, skip_health_check=True)
    assert interpreter.id == interpreter.sandbox.id == box.id
    assert interpreter.ping() is True and interpreter.codes.ping() is True
    assert interpreter.is_healthy() is False
    with pytest.raises(SandboxReadyTimeoutException):
        interpreter.check_ready(timedelta(seconds=1), timedelta(milliseconds=100))
    interpreter.files.write_file("/tmp/ci", "x")
    assert out(interpreter.commands.run("cat /tmp/ci")) == "x"
    assert interpreter.metrics.get_metrics(box.id).cpu_count > 0
    codes = interpreter.codes
    for call in (
        lambda: codes.create_context("python"),
        lambda: codes.get_context("c"),
        lambda: codes.list_contexts("python"),
        lambda: codes.delete_context("c"),
        lambda: codes.delete_contexts("python"),
        lambda: codes.run("1 + 1", language="python"),
        lambda: codes.interrupt("c"),
    ):
        with pytest.raises(SandboxApiException) as caught:
            call()
        says_no(caught.value)
    interpreter.close()


@covers(
    "CodeInterpreter.create",
    "CodeInterpreter.is_healthy",
    "CodeInterpreter.check_ready",
    "CodeInterpreter.ping",
    "CodeInterpreter.aclose",
    "CodeInterpreter.codes",
    "CodeInterpreter.id",
    "CodeInterpreter.sandbox",
    "CodeInterpreter.files",
    "CodeInterpreter.commands",
    "CodeInterpreter.metrics",
    "Codes.ping",
    "Codes.create_context",
    "Codes.get_context",
    "Codes.list_contexts",
    "Codes.delete_context",
    "Codes.delete_contexts",
    "Codes.run",
    "Codes.interrupt",
)
async def test_asyncio_interpreter(abox):
    with pytest.raises(SandboxReadyTimeoutException):
        await CodeInterpreter.create(abox, **QUICK)
    interpreter = await CodeInterpreter.create(abox, skip_health_check=True)
    assert interpreter.id == interpreter.sandbox.id == abox.id
    assert await interpreter.ping() is True and await interpreter.codes.ping() is True
    assert await interpreter.is_healthy() is False
    with pytest.raises(SandboxReadyTimeoutException):
        await interpreter.check_ready(timedelta(seconds=1), timedelta(milliseconds=100))
    await interpreter.files.write_file("/tmp/ci", "x")
    assert out(await interpreter.commands.run("cat /tmp/ci")) == "x"
    assert (await interpreter.metrics.get_metrics(abox.id)).cpu_count > 0
    codes = interpreter.codes
    for call in (
        lambda: codes.create_context("python"),
        lambda: codes.get_context("c"),
        lambda: codes.list_contexts("python"),
        lambda: codes.delete_context("c"),
        lambda: codes.delete_contexts("python"),
        lambda: codes.run("1 + 1", language="python"),
        lambda: codes.interrupt("c"),
    ):
        with pytest.raises(SandboxApiException) as caught:
            await call()
        says_no(caught.value)
    await interpreter.aclose()
