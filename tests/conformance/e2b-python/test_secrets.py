"""Secrets: written, listed, never shown."""

from __future__ import annotations

from datetime import timedelta

import pytest
from e2b_code_interpreter import InvalidArgumentException, SecretException, SecretNotFoundException
from support import assert_error, moment, now, refused, unique
from surface import covers


@covers(
    "Secret.create",
    "Secret.update",
    "Secret.get_info",
    "Secret.exists",
    "Secret.destroy",
    "Secret.fill",
    "Secret.iam_token",
)
async def test_life_of_a_secret(flavour, garden, settings):
    Secret, name, value = flavour.Secret, unique("secret"), unique("value")
    made = await now(Secret.create(name, value, metadata={"team": "a"}))
    garden.remove_later(f"/secrets/{made.secret_id}")
    assert (made.name, made.metadata) == (name, {"team": "a"}) and made.version >= 1
    assert abs(made.created_at - moment()) < timedelta(seconds=60)
    for reference in (name, made.secret_id):
        assert (await now(Secret.get_info(reference))).secret_id == made.secret_id
        assert await now(Secret.exists(reference)) is True
    with refused(400, 409, error=SecretException):
        await now(Secret.create(name, "again"))
    changed = await now(Secret.update(name, unique("value"), metadata={"team": "b"}))
    assert changed.version == made.version + 1 and changed.metadata == {"team": "b"}
    assert changed.updated_at >= made.updated_at and changed.created_at == made.created_at
    with settings.raw() as http:
        for path in (f"/secrets/{name}", "/secrets"):
            assert value not in http.get(path).text
    assert Secret.fill(name) == f"${{e2b.secrets.{name}}}"
    assert Secret.iam_token(audience="a", token_type="JWT-SVID") == {"audience": "a", "token_type": "JWT-SVID"}
    assert await now(Secret.destroy(name)) is True
    assert await now(Secret.destroy(name)) is False
    assert await now(Secret.exists(name)) is False
    for call in (lambda: Secret.get_info(name), lambda: Secret.update(name, "x")):
        with pytest.raises(SecretNotFoundException):
            await now(call())


@covers("Secret.list", "SecretPaginator.next_items", "SecretPaginator.has_next", "SecretPaginator.next_token")
async def test_pages_of_secrets(flavour, garden):
    ids = set()
    for _ in range(3):
        made = await now(flavour.Secret.create(unique("secret"), "x"))
        garden.remove_later(f"/secrets/{made.secret_id}")
        ids.add(made.secret_id)
    found, paginator = [], flavour.Secret.list(limit=1)
    while paginator.has_next:
        page = await now(paginator.next_items())
        assert len(page) <= 1
        found += [secret.secret_id for secret in page]
    assert paginator.next_token is None and ids <= set(found) and len(found) == len(set(found))


async def test_another_tenant_sees_nothing(flavour, garden, settings):
    name = unique("secret")
    made = await now(flavour.Secret.create(name, "x"))
    garden.remove_later(f"/secrets/{made.secret_id}")
    key = settings.other_key
    assert await now(flavour.Secret.exists(name, api_key=key)) is False
    assert await now(flavour.Secret.destroy(made.secret_id, api_key=key)) is False
    assert await now(flavour.Secret.exists(name)) is True


async def test_bad_secrets(flavour, http):
    with pytest.raises(InvalidArgumentException):
        flavour.Secret.fill("{}")
    for body in ({}, {"name": "x"}, {"name": "", "value": "x"}, {"name": 7, "value": "x"}, {"name": "{a}", "value": "x"}):
        assert_error(http.post("/secrets", json=body), (400, 422))
    assert_error(http.post("/secrets", json={"name": unique(), "value": "x" * (8 << 20)}), (400, 413, 422))
    assert_error(http.get("/secrets?limit=0"), (400, 422))
    assert_error(http.get("/secrets?nextToken=garbage"), 400)
