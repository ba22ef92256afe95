"""Warm pools: the documented examples of OpenKruise Agents, word for word, and what they promise.

The server declares the pools `demo` (three sandboxes) and `some-template` (one), both of `base`.
That a claim can put another image in the place of the pool's is tested end to end in
tests/e2e/tests/claims.rs: the one other image that this suite's server could pull needs
credentials, and a claim has no place for them.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from e2b_code_interpreter import (
    AsyncSandbox,
    RateLimitException,
    Sandbox,
    SandboxException,
    SandboxQuery,
    Volume,
)
from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.models.sandboxes import SandboxFilter
from opensandbox.sync.manager import SandboxManagerSync
from support import assert_error, refused, required, state_of, unique, until

PREFIX = "e2b.agents.kruise.io/"


def listed(metadata: dict) -> list[str]:
    return [info.sandbox_id for info in Sandbox.list(query=SandboxQuery(metadata=metadata)).next_items()]


def test_the_first_example(garden, settings, capsys):
    with Sandbox.create(template="demo") as sbx:
        garden.adopt(sbx)
        print(sbx.get_info())
        assert sbx.commands.run("echo claimed").stdout == "claimed\n"
        info = sbx.get_info()
    assert sbx.sandbox_id in capsys.readouterr().out
    assert info.name == "demo" and info.state == "running"
    assert timedelta(seconds=295) < info.end_at - info.started_at < timedelta(seconds=305)
    assert state_of(settings, sbx.sandbox_id) == "gone", "a claimed sandbox is deleted, not given back"


def test_the_example_of_a_claim_timeout(garden):
    sbx = garden.adopt(
        Sandbox.create(template="demo", request_timeout=60.0, metadata={
            "e2b.agents.kruise.io/claim-timeout-seconds": "60"
        })
    )
    assert sbx.get_info().metadata == {}, "options are not kept as metadata"


def test_the_example_of_creating_without_stock(garden):
    sbx = garden.adopt(
        Sandbox.create(template="demo", metadata={
            "e2b.agents.kruise.io/create-on-no-stock": "true"
        })
    )
    assert sbx.commands.run("echo made").stdout == "made\n"


def test_the_example_of_a_timeout(garden):
    sbx = garden.adopt(Sandbox.create(template="demo", timeout=600))  # timeout in seconds
    info = sbx.get_info()
    assert timedelta(seconds=595) < info.end_at - info.started_at < timedelta(seconds=605)


def test_the_example_of_metadata(garden):
    alice = unique("alice")
    sbx = garden.adopt(Sandbox.create(template="demo", metadata={"userId": alice}))
    paginator = Sandbox.list(query=SandboxQuery(metadata={"userId": alice}))
    items = paginator.next_items()
    print(items)
    assert [item.sandbox_id for item in items] == [sbx.sandbox_id]
    assert items[0].metadata == {"userId": alice}


def test_the_example_of_another_image(garden):
    """`base` stands in for the example's `new-image:latest`, which nobody can pull."""
    sbx = garden.adopt(
        Sandbox.create(template="some-template", metadata={
            "e2b.agents.kruise.io/image": "base"
        })
    )
    assert sbx.commands.run("echo replaced").stdout == "replaced\n"
    assert sbx.get_info().metadata == {}


def seen_by_opensandbox(settings, metadata: dict) -> list:
    """What the other door knows of sandboxes with this metadata."""
    config = ConnectionConfigSync(domain=settings.authority, api_key=settings.key)
    with SandboxManagerSync.create(config) as manager:
        return manager.list_sandbox_infos(SandboxFilter(metadata=metadata)).sandbox_infos


NOWHERE = "127.0.0.1:1/new-image:latest"


def test_another_image_of_a_registry_that_is_not_there(settings):
    label = {"case": unique("nowhere")}
    with pytest.raises(SandboxException, match="new-image"):
        Sandbox.create(template="some-template", metadata={**label, f"{PREFIX}image": NOWHERE})
    until(lambda: not seen_by_opensandbox(settings, label), what="what could not be made is removed")


def test_the_example_of_a_volume(garden):
    volume = Volume.create("oss-pv-test")
    garden.remove_later(f"/volumes/{volume.volume_id}")
    volume.write_file("/hello", "from the volume")
    sbx = garden.adopt(
        Sandbox.create(template="some-template", timeout=300, metadata={
            "e2b.agents.kruise.io/csi-volume-name": "oss-pv-test",
            "e2b.agents.kruise.io/csi-mount-point": "/data"
        })
    )
    assert sbx.files.read("/data/hello") == "from the volume"
    sbx.files.write("/data/back", "from the sandbox")
    assert volume.read_file("/back") == "from the sandbox"
    assert sbx.get_info().volume_mounts == [{"name": "oss-pv-test", "path": "/data"}]
    assert sbx.get_info().metadata == {}


def test_the_example_of_skipping_the_runtime(garden, settings):
    sbx = garden.adopt(
        Sandbox.create(template="demo", metadata={
            "e2b.agents.kruise.io/skip-init-runtime": "true"
        })
    )
    assert state_of(settings, sbx.sandbox_id) == "running"


def test_the_example_of_keeping_failures(garden):
    sbx = garden.adopt(
        Sandbox.create(template="some-template", timeout=300, metadata={
            "e2b.agents.kruise.io/reserve-failed-sandbox": "true"
        })
    )
    assert sbx.is_running()
    assert sbx.commands.run("echo fine").stdout == "fine\n"


@pytest.mark.parametrize("option", [("reserve-failed-sandbox", "true"), ("reserve-failed-sandbox-for", "10m")])
def test_a_failure_is_kept_to_be_looked_at(option, garden, settings):
    """The claim fails all the same; what is left of it can be seen through the other door."""
    name, value = option
    label = {"case": unique("failed")}
    with pytest.raises(SandboxException, match="new-image") as caught:
        Sandbox.create(
            template="some-template",
            metadata={**label, f"{PREFIX}image": NOWHERE, f"{PREFIX}{name}": value},
        )
    kept = seen_by_opensandbox(settings, label)
    assert [info.status.state for info in kept] == ["Failed"]
    garden.adopt(kept[0].id)
    assert kept[0].id in str(caught.value), "the error says which one to look at"
    assert "new-image" in kept[0].status.message


def test_the_options_can_be_mixed_with_metadata(garden):
    label = unique()
    sbx = garden.adopt(
        Sandbox.create(
            template="demo",
            envs={"WORD": "claimed env"},
            metadata={"case": label, f"{PREFIX}claim-timeout-seconds": "30", f"{PREFIX}never-timeout": "true"},
        )
    )
    assert sbx.get_info().metadata == {"case": label} and listed({"case": label}) == [sbx.sandbox_id]
    assert sbx.commands.run("echo $WORD").stdout == "claimed env\n", "a warm sandbox gets its environment too"


@pytest.mark.parametrize(
    "options",
    [
        {"claim-timeout-seconds": "soon"},
        {"claim-timeout-seconds": "-1"},
        {"csi-volume-name": "oss-pv-test-alone"},
        {"csi-mount-point": "/data"},
        {"no-such-option": "true"},
    ],
    ids=str,
)
def test_bad_options_are_named(options, http, garden):
    body = {"templateID": "demo", "metadata": {f"{PREFIX}{name}": value for name, value in options.items()}}
    answer = http.post("/v2/sandboxes", json=body)
    if answer.status_code == 201:
        garden.adopt(answer.json()["sandboxID"])
    message = assert_error(answer, 400)
    assert next(iter(options)) in message or "csi-" in message


async def test_more_claims_than_stock(garden):
    """Five at once from a pool of three: each gets its own, at once or after a refill."""
    boxes = await asyncio.gather(*(AsyncSandbox.create(template="demo") for _ in range(5)))
    for box in boxes:
        garden.adopt(box)
    assert len({box.sandbox_id for box in boxes}) == 5
    for n, box in enumerate(boxes):
        await box.files.write("/tmp/mine", str(n))
    assert [await box.files.read("/tmp/mine") for box in boxes] == [str(n) for n in range(5)]


async def test_no_creation_waits_for_the_refill(garden):
    """Whoever forbids creation and has time gets the next one; e2e tests see who has none refused."""
    options = {f"{PREFIX}create-on-no-stock": "false", f"{PREFIX}claim-timeout-seconds": "60"}
    boxes = await asyncio.gather(
        *(AsyncSandbox.create(template="some-template", request_timeout=90, metadata=options) for _ in range(3)),
    )
    for box in boxes:
        garden.adopt(box)
    assert len({box.sandbox_id for box in boxes}) == 3


def test_stock_is_nobodys(settings, garden):
    """What waits in a pool is not listed, not counted and not reachable."""
    garden.adopt(Sandbox.create(template="demo"))
    everything, paginator = [], Sandbox.list(api_key=settings.other_key)
    while paginator.has_next:
        everything += paginator.next_items()
    assert [info for info in everything if info.name == "demo"] == [], "this tenant has claimed nothing"
    for _ in range(2):
        mine = garden.adopt(Sandbox.create(template="demo"))
        assert mine.files.list("/home/user") is not None
        assert not mine.files.exists("/tmp/mine"), "nothing of an earlier owner"


def test_each_claim_has_its_own_token_and_clock(garden, settings):
    boxes = [garden.adopt(Sandbox.create(template="demo", timeout=60 * n)) for n in (1, 2)]
    assert len({box._envd_access_token for box in boxes}) == 2
    assert (boxes[1].get_info().end_at - boxes[0].get_info().end_at).total_seconds() == pytest.approx(60, abs=10)
    boxes[0].set_timeout(0)
    until(lambda: state_of(settings, boxes[0].sandbox_id) == "gone", what="the end of the first")
    assert boxes[1].is_running()


def test_the_pools_name_belongs_to_every_tenant(garden, settings):
    other = garden.adopt(Sandbox.create(template="demo", api_key=settings.other_key), settings.other_key)
    assert state_of(settings, other.sandbox_id) == "gone", "the claim is its owner's alone"
    assert other.commands.run("echo theirs").stdout == "theirs\n"


def test_a_warm_claim_is_quick(garden):
    """Not a measurement: a bound that only a cold start on a bad day would miss."""
    garden.adopt(Sandbox.create(template="demo"))
    began = time.monotonic()
    sbx = garden.adopt(Sandbox.create(template="demo"))
    sbx.commands.run("true")
    assert time.monotonic() - began < 3


def test_the_kruise_prefix_serves_the_same_api(garden, settings):
    """`/kruise/api/…` is the control API once more, for servers behind one certificate."""
    with settings.raw() as http:
        answer = http.post("/kruise/api/sandboxes", json={"templateID": "demo", "timeout": 60})
        assert answer.status_code == 201, answer.text
        sandbox_id = garden.adopt(answer.json()["sandboxID"])
        assert http.get(f"/kruise/api/sandboxes/{sandbox_id}").json()["sandboxID"] == sandbox_id
        assert sandbox_id in [item["sandboxID"] for item in http.get("/kruise/api/v2/sandboxes").json()]
        assert http.delete(f"/kruise/api/sandboxes/{sandbox_id}").status_code == 204
        assert_error(http.get(f"/kruise/api/sandboxes/{sandbox_id}"), 404)


def test_claims_count_against_the_quota():
    """A small server of its own: two sandboxes for each tenant."""
    small, key = required("ATOLL_SMALL_URL"), required("ATOLL_SMALL_API_KEY")
    options = {"api_url": small, "api_key": key, "sandbox_url": small}
    boxes = [Sandbox.create("base", **options) for _ in range(2)]
    try:
        with pytest.raises(RateLimitException, match=r"\b2\b"):
            Sandbox.create("base", **options)
        boxes.pop().kill()
        boxes.append(Sandbox.create("base", **options))
    finally:
        for box in boxes:
            box.kill()


def test_a_template_that_is_no_pool_ignores_no_option():
    with refused(404):
        Sandbox.create(template=unique("nopool"), metadata={f"{PREFIX}create-on-no-stock": "false"})
