"""Egress settings: enforced, or refused with words; never ignored."""

from __future__ import annotations

import pytest
from e2b_code_interpreter import SandboxNotFoundException
from support import UNKNOWN_ID, assert_error, attempt, now, refused
from surface import covers

#: A connection to the documentation's network, which no test machine answers.
DIAL = "timeout 2 bash -c 'exec 3<>/dev/tcp/192.0.2.1/80' 2>/dev/null && echo through || echo stopped"


@covers("Sandbox.update_network")
async def test_rules_that_can_not_be_enforced_are_refused(flavour, box):
    for update in (
        {"rules": {"api.example": [{"transform": {"headers": {"X-Key": "v"}}}]}},
        {"egress_proxy": {"address": "proxy.example:1080"}},
        {"allow_out": ["*.example"], "deny_out": ["0.0.0.0/0"]},
    ):
        with refused():
            await now(box.update_network(update))
        with refused():
            await now(flavour.Sandbox.update_network(box.sandbox_id, update))
    assert (await now(box.commands.run("echo alive"))).stdout == "alive\n"
    with pytest.raises(SandboxNotFoundException):
        await now(flavour.Sandbox.update_network(UNKNOWN_ID, {"deny_out": ["0.0.0.0/0"]}))


async def test_no_internet(flavour, garden):
    """Taken or refused; when taken it is true, and told."""
    box = await attempt(flavour.Sandbox.create("base", allow_internet_access=False))
    if box:
        garden.adopt(box)
        assert (await now(box.get_info())).allow_internet_access is False
        assert (await now(box.commands.run(DIAL))).stdout == "stopped\n"


async def test_denied_addresses(flavour, garden, box):
    """The same for a list, at creation and later."""
    network = {"deny_out": ["0.0.0.0/0"]}
    made = await attempt(flavour.Sandbox.create("base", network=network))
    if made:
        garden.adopt(made)
        assert (await now(made.get_info())).network["deny_out"] == ["0.0.0.0/0"]
        assert (await now(made.commands.run(DIAL))).stdout == "stopped\n"
    await attempt(box.update_network(network))
    assert (await now(box.commands.run(DIAL))).stdout == "stopped\n", "there is no uplink at all here"


@pytest.mark.parametrize(
    "network",
    [
        {"denyOut": ["example.com"]},
        {"allowOut": ["example.com"]},
        {"denyOut": ["300.1.1.1"]},
        {"denyOut": "0.0.0.0/0"},
        {"dnsServers": ["not an address"]},
        {"httpsPorts": [70000]},
    ],
    ids=str,
)
def test_bad_networks(http, garden, network):
    answer = http.post("/v2/sandboxes", json={"templateID": "base", "network": network})
    if answer.status_code == 201:
        garden.adopt(answer.json()["sandboxID"])
    assert_error(answer, (400, 422))
