"""Where a sandbox comes from and what is mounted: registries, volumes, refused options."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from opensandbox import SandboxSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import (
    OSSFS,
    PVC,
    CredentialProxyConfig,
    Host,
    LifecycleHook,
    NetworkPolicy,
    NetworkRule,
    PeriodicLifecycleHook,
    SandboxImageAuth,
    SandboxImageSpec,
    SandboxLifecycle,
    Volume,
)
from support import create_body, out, refused, required, state_of, unique, until
from surface import covers


@pytest.fixture(scope="session")
def private_image() -> tuple[str, str, str]:
    return (
        required("ATOLL_REGISTRY_IMAGE"),
        required("ATOLL_REGISTRY_USER"),
        required("ATOLL_REGISTRY_PASSWORD"),
    )


def failure_of(settings, http, garden, image: dict) -> str:
    """Message of a creation that must fail, whether at once or in the sandbox's state."""
    answer = http.post("/v1/sandboxes", json=create_body(settings, image=image))
    if answer.status_code != 202:
        assert answer.status_code == 500, answer.text
        return answer.json()["message"]
    sandbox_id = garden.adopt(answer.json()["id"])
    until(lambda: state_of(settings, sandbox_id) == "Failed", what="the sandbox fails", within=40)
    return http.get(f"/v1/sandboxes/{sandbox_id}").json()["status"]["message"]


def test_private_image_with_the_right_password(garden, private_image):
    image, user, password = private_image
    auth = SandboxImageAuth(username=user, password=password)
    box = garden.create(SandboxImageSpec(image, auth=auth), ready_timeout=timedelta(seconds=60))
    assert out(box.commands.run("echo pulled")) == "pulled"
    info = box.get_info()
    assert info.image.image == image and info.image.auth is None
    assert password not in box.commands.run("env; cat /proc/1/environ 2>/dev/null").text


def test_wrong_password_names_image_and_reason(garden, http, settings, private_image):
    """Also right after somebody else pulled the image: a cache is no permission."""
    image, user, password = private_image
    for auth in ({"username": user, "password": "wrong-" + password}, None):
        wanted = {"uri": image, "auth": auth} if auth else {"uri": image}
        message = failure_of(settings, http, garden, wanted)
        assert image in message, message
        assert password not in message
        lowered = message.lower()
        assert any(word in lowered for word in ("401", "403", "auth", "denied", "credential")), message


def test_unreachable_registry_names_image_and_reason(garden, http, settings):
    image = "127.0.0.1:1/nobody/nothing:latest"
    message = failure_of(settings, http, garden, {"uri": image})
    assert image in message and len(message) > len(image) + 10, message


@pytest.fixture
def shared_dir(host_volume_dir):
    """A directory of this machine, open to every user, with one file in a folder."""
    made = Path(host_volume_dir) / unique("volume")
    (made / "inner").mkdir(parents=True)
    for path in (made, made / "inner"):
        os.chmod(path, 0o777)
    (made / "inner" / "marker.txt").write_text("from the host")
    yield made
    shutil.rmtree(made)


def test_host_volume(garden, shared_dir):
    host = Host(path=str(shared_dir))
    box = garden.create(
        volumes=[
            Volume(name="data", host=host, mountPath="/mnt/data"),
            Volume(name="fixed", host=host, mountPath="/mnt/fixed", readOnly=True),
            Volume(name="part", host=host, mountPath="/mnt/part", subPath="inner"),
        ]
    )
    for path in ("/mnt/data/inner", "/mnt/fixed/inner", "/mnt/part"):
        assert out(box.commands.run(f"cat {path}/marker.txt")) == "from the host"
    box.files.write_file("/mnt/data/made", "from the sandbox")
    assert (shared_dir / "made").read_text() == "from the sandbox"
    assert box.commands.run("echo x > /mnt/fixed/no").exit_code != 0
    assert not (shared_dir / "no").exists()
    box.kill()
    assert (shared_dir / "made").read_text() == "from the sandbox", "host data outlives the sandbox"


def test_host_volume_escape_is_refused(garden, host_volume_dir):
    escape = Path(host_volume_dir) / unique("escape")
    escape.symlink_to("/etc")
    try:
        for path in ("/etc", "/", f"{host_volume_dir}/../..", str(escape)):
            with refused((400, 422)) as caught:
                garden.create(volumes=[Volume(name="v", host=Host(path=path), mountPath="/mnt/v")])
            assert caught.value.status_code == 422 or caught.value.error.code in (
                "VOLUME::HOST_PATH_NOT_ALLOWED",
                "VOLUME::INVALID_HOST_PATH",
            )
    finally:
        escape.unlink()


def test_named_volume_lasts_or_is_refused_by_name(garden, settings):
    """Named volumes are a runtime's choice; silence is not: data lasts or the code says no."""
    volume = Volume(name="named", pvc=PVC(claimName=unique("claim")), mountPath="/mnt/named")
    try:
        first = garden.create(volumes=[volume])
    except SandboxApiException as refusal:
        assert refusal.status_code == 400 and refusal.error.code == "VOLUME::UNSUPPORTED_BACKEND"
        return
    first.files.write_file("/mnt/named/kept", "yes")
    first.kill()
    until(lambda: state_of(settings, first.id) == "Gone", what="gone")
    assert garden.create(volumes=[volume]).files.read_file("/mnt/named/kept") == "yes"


def test_bucket_volume_is_refused(garden):
    ossfs = OSSFS(bucket="some-bucket", endpoint="127.0.0.1:1", accessKeyId="id", accessKeySecret="s3cret")
    with refused(400, "VOLUME::UNSUPPORTED_BACKEND") as caught:
        garden.create(volumes=[Volume(name="b", ossfs=ossfs, mountPath="/mnt/b")])
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (
            {
                "network_policy": NetworkPolicy(
                    defaultAction="deny", egress=[NetworkRule(action="allow", target="a.example")]
                )
            },
            "network",
        ),
        ({"secure_access": True}, "secure"),
        ({"lifecycle": SandboxLifecycle(preStart=LifecycleHook(command=["true"]))}, "lifecycle"),
        (
            {
                "lifecycle": SandboxLifecycle(
                    periodic=[PeriodicLifecycleHook(name="p", schedule="* * * * *", command=["true"])]
                )
            },
            "lifecycle",
        ),
    ],
    ids=["networkPolicy", "secureAccess", "preStart", "periodic"],
)
def test_options_that_are_not_supported_are_refused_not_ignored(garden, options, word):
    with refused(400) as caught:
        garden.create(**options)
    error = caught.value.error
    assert word in (error.code + error.message).lower(), error


def test_credential_proxy_is_refused(garden):
    proxy = CredentialProxyConfig(enabled=True)
    with refused((400, 422)):
        garden.create(credential_proxy=proxy)
    with refused(400):
        garden.create(credential_proxy=proxy, network_policy=NetworkPolicy(defaultAction="deny"))


def test_server_side_pools_are_refused(garden):
    with refused(400, "SANDBOX::UNSUPPORTED_POOL_REF"):
        garden.create(extensions={"poolRef": "*"})


@covers("SandboxSync.create_from_template")
def test_template_sandboxes_are_refused(settings):
    with refused(501, "FSB::API_NOT_SUPPORTED"):
        SandboxSync.create_from_template(
            "tpl_none", timeout=timedelta(minutes=5), connection_config=settings.config()
        )
