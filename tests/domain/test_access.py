"""Tests of roles and API keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.access import (
    ID_BYTES,
    SECRET_BYTES,
    Identity,
    Key,
    Role,
    identify,
    key_id,
    read_secret,
    secret_hash,
    secret_text,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)
TEXT = secret_text("ab12cd34", bytes(range(32)))


def a_key(text: str = TEXT, **rest: object) -> Key:
    parts = read_secret(text)
    assert parts is not None
    key = Key(parts.id, "ci", Role.OPERATOR, "acme", secret_hash(parts.secret), NOW, "ada")
    return replace(key, **rest)  # type: ignore[arg-type]


def test_each_role_includes_the_roles_before_it() -> None:
    order = [Role.VIEWER, Role.OPERATOR, Role.ADMIN, Role.SUPER_ADMIN]
    for (have, role), (need, other) in product(enumerate(order), repeat=2):
        assert role.allows(other) is (have >= need)


@given(
    st.binary(min_size=ID_BYTES, max_size=ID_BYTES), st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES)
)
def test_a_secret_round_trips_and_needs_no_quoting(id_bytes: bytes, secret_bytes: bytes) -> None:
    text = secret_text(key_id(id_bytes), secret_bytes)
    parts = read_secret(text)
    assert parts is not None
    assert parts.id == id_bytes.hex()
    assert text == f"tm_{parts.id}.{parts.secret}"
    assert text.replace("_", "").replace("-", "").replace(".", "").isalnum()


@given(st.text() | st.from_regex(r"tm_[0-9a-f]{0,9}\.?[\w-]{0,50}"))
def test_an_invalid_key_identifies_no_one(text: str) -> None:
    if text != TEXT:
        assert identify(a_key(), text, NOW) is None


def test_the_right_secret_identifies_its_bearer() -> None:
    assert identify(a_key(), TEXT, NOW) == Identity("key:ab12cd34 (ci)", Role.OPERATOR, "acme")


@pytest.mark.parametrize("place", range(len("tm_ab12cd34."), len(TEXT)))
def test_a_secret_that_differs_in_one_character_is_refused(place: int) -> None:
    other = TEXT[:place] + ("x" if TEXT[place] != "x" else "y") + TEXT[place + 1 :]
    assert identify(a_key(), other, NOW) is None


def test_a_secret_is_refused_for_another_or_missing_key() -> None:
    other = secret_text("ab12cd35", bytes(range(32)))
    assert identify(a_key(), other, NOW) is None
    assert identify(None, TEXT, NOW) is None
    assert identify(Key("ab12cd34", "bare", Role.VIEWER), TEXT, NOW) is None


def test_an_expired_or_revoked_key_is_refused() -> None:
    assert identify(a_key(expires_at=NOW + TICK), TEXT, NOW) is not None
    assert identify(a_key(expires_at=NOW), TEXT, NOW) is None
    assert identify(a_key(revoked_at=NOW + TICK), TEXT, NOW) is None


def test_the_repr_of_a_key_hides_its_hash() -> None:
    key = a_key()
    assert key.hash not in repr(key)
    assert secret_hash("x") != secret_hash("y")


def test_an_identity_sees_its_tenant_or_all_of_them() -> None:
    assert Identity("a", Role.VIEWER, "acme").sees("acme")
    assert not Identity("a", Role.VIEWER, "acme").sees("bolt")
    assert Identity("a", Role.VIEWER, "*").sees("bolt")
