"""Laws of API keys: written once, revoked once, otherwise immutable."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from tidemill.domain.access import Key, Role
from tidemill.domain.permissions import Access, Grant
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import HOUR, T0, TICK, at

HASH = "5e" * 32


def _key(id: str = "ab12cd34", name: str = "ci", role: Role = Role.OPERATOR) -> Key:
    return Key(id, name, role, "acme", HASH, created_by="ada", expires_at=T0 + HOUR + TICK)


def _ids(store: Store) -> list[str]:
    keys = store.keys()
    return [key.id for key in keys]


def _revoked(store: Store) -> list[tuple[str, datetime | None]]:
    keys = store.keys()
    return [(key.id, key.revoked_at) for key in keys]


class KeyLaws:
    """Stored API keys."""

    def test_an_empty_store_has_no_keys(self, store: Store) -> None:
        assert store.keys() == []

    @pytest.mark.parametrize("role", list(Role))
    def test_every_field_of_a_key_is_stored(self, store: Store, role: Role) -> None:
        odd = Key("ab12cd34", "name “x” 🦊 '; --", role, "*", HASH, None, None, None)
        full = _key("00000000", role=role)
        assert store.put_keys([odd, full], now=T0) == frozenset()
        assert store.keys() == [
            Key("00000000", "ci", role, "acme", HASH, T0, "ada", T0 + HOUR + TICK, None),
            Key("ab12cd34", "name “x” 🦊 '; --", role, "*", HASH, T0, None, None, None),
        ]

    def test_the_grants_of_a_key_are_stored(self, store: Store) -> None:
        access = Access(
            (Grant.parse("jobs.*,-jobs.arguments task=report.* queue=a,b"),),
            (("acme", Role.ADMIN), ("bolt", Role.VIEWER)),
            "staging",
        )
        key = replace(_key(), max_priority=7, access=access)
        store.put_keys([key], now=T0)
        assert store.keys() == [replace(key, created_at=T0)]

    def test_keys_are_ordered_by_creation_and_id(self, store: Store) -> None:
        store.put_keys([_key("bb"), _key("aa")], now=at(1))
        store.put_keys([_key("cc")], now=T0)
        assert _ids(store) == ["cc", "aa", "bb"]

    def test_keys_can_be_filtered_by_id(self, store: Store) -> None:
        store.put_keys([_key("aa"), _key("bb"), _key("cc")], now=T0)
        assert [key.id for key in store.keys(["cc", "aa", "none"])] == ["aa", "cc"]
        assert store.keys([]) == []

    def test_an_existing_key_is_not_overwritten(self, store: Store) -> None:
        store.put_keys([_key("aa", "first")], now=T0)
        before = store.keys()
        assert store.put_keys([_key("aa", "second", Role.SUPER_ADMIN), _key("bb")], now=at(1)) == {"aa"}
        assert store.keys(["aa"]) == before
        assert _ids(store) == ["aa", "bb"]

    def test_the_store_sets_the_dates_of_a_new_key(self, store: Store) -> None:
        store.put_keys([Key("aa", "ci", Role.VIEWER, created_at=at(-9), revoked_at=at(-1))], now=T0)
        (key,) = store.keys()
        assert (key.created_at, key.revoked_at) == (T0, None)

    def test_a_key_is_revoked_once_and_stays_visible(self, store: Store) -> None:
        store.put_keys([_key("aa"), _key("bb")], now=T0)
        assert store.revoke_keys(["aa", "none"], now=at(1)) == {"aa"}
        assert store.revoke_keys(["aa"], now=at(2)) == frozenset()
        assert _revoked(store) == [("aa", at(1)), ("bb", None)]

    def test_a_revoked_key_cannot_be_written_again(self, store: Store) -> None:
        store.put_keys([_key("aa")], now=T0)
        store.revoke_keys(["aa"], now=at(1))
        assert store.put_keys([_key("aa")], now=at(2)) == {"aa"}
        assert store.keys()[0].revoked_at == at(1)

    def test_keys_are_rolled_back_with_their_transaction(self, store: Store) -> None:
        store.put_keys([_key("aa")], now=T0)

        def work() -> None:
            with store.transaction():
                store.put_keys([_key("bb")], now=T0)
                store.revoke_keys(["aa"], now=T0)
                raise LookupError

        with pytest.raises(LookupError):
            work()
        assert _revoked(store) == [("aa", None)]

    def test_an_empty_batch_of_keys_does_nothing(self, store: Store) -> None:
        assert store.put_keys([], now=T0) == frozenset()
        assert store.revoke_keys([], now=T0) == frozenset()
