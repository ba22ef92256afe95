"""The manager class of the blocking SDK: listing, filters, pages and remote control."""

from __future__ import annotations

from datetime import timedelta

import pytest
from opensandbox import SandboxManagerSync
from opensandbox.models.sandboxes import SandboxFilter
from opensandbox.models.templates import CreateTemplateRequest, TemplateFilter
from support import UNKNOWN_ID, now, refused, state_of, unique, until
from surface import covers


@pytest.fixture(scope="module")
def fleet(module_garden):
    """Three sandboxes with one label in common, oldest first."""
    label = unique("fleet")
    made = [module_garden.create(metadata={"fleet": label, "n": str(n)}).id for n in range(3)]
    return label, made


@covers("SandboxManagerSync.create", "SandboxManagerSync.close", "SandboxManagerSync.connection_config")
def test_manager_is_made_from_a_configuration(settings):
    manager = SandboxManagerSync.create(settings.config())
    assert manager.connection_config.get_domain() == settings.domain
    manager.close()


@covers("SandboxManagerSync.list_sandbox_infos")
def test_list_pages_newest_first(fleet, manager):
    label, ids = fleet

    def page(number):
        found = manager.list_sandbox_infos(SandboxFilter(metadata={"fleet": label}, page=number, page_size=2))
        return [info.id for info in found.sandbox_infos], found.pagination

    first, about = page(1)
    assert first == [ids[2], ids[1]]
    assert (about.page, about.page_size, about.total_items, about.total_pages) == (1, 2, 3, 2)
    assert about.has_next_page is True
    second, about = page(2)
    assert second == [ids[0]] and about.has_next_page is False
    third, about = page(3)
    assert third == [] and about.total_items == 3 and about.has_next_page is False


def test_an_empty_list_has_no_pages(manager):
    found = manager.list_sandbox_infos(SandboxFilter(metadata={"fleet": unique("nobody")}))
    assert found.sandbox_infos == []
    assert (found.pagination.page, found.pagination.page_size) == (1, 20)
    assert (found.pagination.total_items, found.pagination.total_pages) == (0, 0)


def test_states_are_alternatives_whatever_their_case(fleet, manager, settings):
    label, ids = fleet
    manager.pause_sandbox(ids[0])
    until(lambda: state_of(settings, ids[0]) == "Paused", what="Paused")

    def found(*states):
        listed = manager.list_sandbox_infos(SandboxFilter(states=list(states), metadata={"fleet": label}))
        return {info.id for info in listed.sandbox_infos}

    assert found("Paused") == {ids[0]}
    assert found("running") == {ids[1], ids[2]}
    assert found("PAUSED", "Running") == set(ids)
    assert found("Failed") == set()
    manager.resume_sandbox(ids[0])
    until(lambda: state_of(settings, ids[0]) == "Running", what="Running")


def test_all_metadata_pairs_must_match(fleet, manager):
    label, ids = fleet

    def found(**pairs):
        listed = manager.list_sandbox_infos(SandboxFilter(metadata={"fleet": label, **pairs}))
        return [info.id for info in listed.sandbox_infos]

    assert found(n="1") == [ids[1]]
    assert found(n="9") == []
    assert found(other="") == []


def test_separators_inside_a_filter_value_stay_in_the_value(fleet, manager):
    """A value is decoded once more as a form, never split a second time."""
    label, _ = fleet
    for pairs in (
        {"fleet": f"{label}&n=1"},
        {"fleet": f"{label} "},
        {"fleet": f"{label}=1"},
        {"p j": "a&b", "t": "x=y"},
        {"fleet": f"{label}%26n%3D1"},
        {"fleet": f"{label}+"},
    ):
        assert manager.list_sandbox_infos(SandboxFilter(metadata=pairs)).sandbox_infos == []


@covers(
    "SandboxManagerSync.get_sandbox_info",
    "SandboxManagerSync.patch_sandbox_metadata",
    "SandboxManagerSync.renew_sandbox",
    "SandboxManagerSync.pause_sandbox",
    "SandboxManagerSync.resume_sandbox",
    "SandboxManagerSync.kill_sandbox",
)
def test_remote_control_by_id(garden, manager, settings):
    sandbox_id = garden.create(metadata={"a": "1"}).id
    info = manager.get_sandbox_info(sandbox_id)
    assert info.id == sandbox_id and info.metadata == {"a": "1"}
    assert manager.patch_sandbox_metadata(sandbox_id, {"a": None, "b": "2"}).metadata == {"b": "2"}
    wanted = now() + timedelta(hours=1)
    renewed = manager.renew_sandbox(sandbox_id, timedelta(hours=1))
    assert abs(renewed.expires_at - wanted) < timedelta(seconds=5)
    manager.pause_sandbox(sandbox_id)
    until(lambda: state_of(settings, sandbox_id) == "Paused", what="Paused")
    manager.resume_sandbox(sandbox_id)
    until(lambda: state_of(settings, sandbox_id) == "Running", what="Running")
    manager.kill_sandbox(sandbox_id)
    until(lambda: state_of(settings, sandbox_id) == "Gone", what="gone")


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.get_sandbox_info(UNKNOWN_ID),
        lambda m: m.patch_sandbox_metadata(UNKNOWN_ID, {"a": "1"}),
        lambda m: m.renew_sandbox(UNKNOWN_ID, timedelta(hours=1)),
        lambda m: m.pause_sandbox(UNKNOWN_ID),
        lambda m: m.resume_sandbox(UNKNOWN_ID),
        lambda m: m.kill_sandbox(UNKNOWN_ID),
        lambda m: m.create_snapshot(UNKNOWN_ID),
        lambda m: m.get_diagnostic_logs(UNKNOWN_ID, "container"),
        lambda m: m.get_diagnostic_events(UNKNOWN_ID, "runtime"),
    ],
    ids=["get", "patch", "renew", "pause", "resume", "kill", "snapshot", "logs", "events"],
)
def test_unknown_id_is_not_found(manager, call):
    with refused(404, "SANDBOX_NOT_FOUND"):
        call(manager)


@covers(
    "SandboxManagerSync.create_template",
    "SandboxManagerSync.get_template",
    "SandboxManagerSync.list_templates",
    "SandboxManagerSync.delete_template",
)
def test_templates_are_refused(manager):
    request = CreateTemplateRequest(image="base", publish="s3://bucket/prefix")
    for call in (
        lambda: manager.create_template(request),
        lambda: manager.get_template("tpl_none"),
        lambda: manager.list_templates(TemplateFilter(page=1, page_size=5, metadata={"a": "b"})),
        lambda: manager.delete_template("tpl_none"),
    ):
        with refused(501, "FSB::API_NOT_SUPPORTED"):
            call()
