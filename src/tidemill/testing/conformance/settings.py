"""Laws of settings, pauses, and the combined query of workers."""

from __future__ import annotations

import pytest

from tidemill.domain.breaker import Breaker
from tidemill.domain.limits import LimitKind, Rule
from tidemill.domain.records import Pause, PauseKind, Setting
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import HOUR, SECOND, T0, at

VALUES: list[object] = [
    None,
    True,
    0,
    -1,
    2.5,
    "",
    "text “x” 🦊 %s :now \\ '",
    [],
    {},
    {"a": [1, None, {"b": "c"}], "ü": False},
    2**53 + 1,
]


class SettingLaws:
    """Settings are overwritten, read by key, and dropped."""

    def test_an_empty_store_has_no_settings(self, store: Store) -> None:
        assert store.settings() == []

    @pytest.mark.parametrize("value", VALUES, ids=repr)
    def test_every_kind_of_setting_is_stored(self, store: Store, value: object) -> None:
        store.put_settings([Setting("key", value, "a description", None, "ada")], now=T0)
        assert store.settings() == [Setting("key", value, "a description", T0, "ada")]
        assert type(store.settings()[0].value) is type(value)

    def test_settings_are_ordered_by_key(self, store: Store) -> None:
        store.put_settings([Setting(key, 1) for key in ("c", "a", "b")], now=T0)
        assert [setting.key for setting in store.settings()] == ["a", "b", "c"]

    def test_a_setting_is_overwritten(self, store: Store) -> None:
        store.put_settings([Setting("a", 1, "old", None, "ada"), Setting("b", 1)], now=T0)
        store.put_settings([Setting("a", 2, "new", None, "bob")], now=at(1))
        assert store.settings() == [Setting("a", 2, "new", at(1), "bob"), Setting("b", 1, None, T0, None)]

    def test_a_missing_description_keeps_the_stored_one(self, store: Store) -> None:
        store.put_settings([Setting("a", 1, "a description")], now=T0)
        store.put_settings([Setting("a", 2, None)], now=at(1))
        assert store.settings() == [Setting("a", 2, "a description", at(1), None)]

    def test_dropping_returns_the_dropped_keys(self, store: Store) -> None:
        store.put_settings([Setting("a", 1), Setting("b", 2)], now=T0)
        assert store.drop_settings(["a", "none"]) == {"a"}
        assert [setting.key for setting in store.settings()] == ["b"]
        assert store.drop_settings(["a"]) == frozenset()

    def test_dropping_a_setting_drops_its_description(self, store: Store) -> None:
        store.put_settings([Setting("a", 1, "old")], now=T0)
        store.drop_settings(["a"])
        store.put_settings([Setting("a", 2)], now=T0)
        assert store.settings() == [Setting("a", 2, None, T0, None)]


class PauseLaws:
    """A pause lasts until it is resumed; the first pause keeps its reason and author."""

    def test_an_empty_store_has_no_pauses(self, store: Store) -> None:
        assert store.pauses() == []

    @pytest.mark.parametrize("kind", list(PauseKind))
    def test_each_kind_can_be_paused_and_resumed(self, store: Store, kind: PauseKind) -> None:
        pause = Pause(kind, "name “x” 🦊", "maintenance; --", "ada")
        written = Pause(kind, "name “x” 🦊", "maintenance; --", "ada", T0)
        assert store.pause([pause], now=T0) == [written]
        assert store.pauses() == [written]
        assert store.resume([(kind, "name “x” 🦊")]) == [written]
        assert store.pauses() == []
        assert store.resume([(kind, "name “x” 🦊")]) == []

    def test_a_repeated_pause_keeps_the_first_one(self, store: Store) -> None:
        first = store.pause([Pause(PauseKind.QUEUE, "mail", "one", "ada")], now=T0)
        again = [Pause(PauseKind.QUEUE, "mail", "two", "bob"), Pause(PauseKind.QUEUE, "new", "two", "bob")]
        assert [pause.name for pause in store.pause(again, now=at(1))] == ["new"]
        assert store.pauses()[:1] == first

    def test_pauses_are_ordered_by_kind_and_name(self, store: Store) -> None:
        pairs = [(kind, name) for kind in reversed(PauseKind) for name in ("b", "a")]
        store.pause([Pause(kind, name) for kind, name in pairs], now=T0)
        assert [(pause.kind, pause.name) for pause in store.pauses()] == sorted(pairs)

    def test_resuming_one_keeps_the_other_pauses(self, store: Store) -> None:
        store.pause([Pause(PauseKind.QUEUE, name) for name in ("a", "b", "c")], now=T0)
        assert [pause.name for pause in store.resume([(PauseKind.QUEUE, "b")])] == ["b"]
        assert [pause.name for pause in store.pauses()] == ["a", "c"]

    def test_pauses_of_different_kinds_are_independent(self, store: Store) -> None:
        store.pause([Pause(PauseKind.QUEUE, "x"), Pause(PauseKind.TASK, "x")], now=T0)
        assert [pause.kind for pause in store.resume([(PauseKind.TASK, "x"), (PauseKind.TENANT, "x")])] == [
            PauseKind.TASK
        ]
        assert [pause.kind for pause in store.pauses()] == [PauseKind.QUEUE]


class OrdersLaws:
    """One query returns what three queries return."""

    def test_an_empty_store_has_no_orders(self, store: Store) -> None:
        assert store.orders() == ([], [], [])

    def test_orders_returns_pauses_settings_and_rules(self, store: Store) -> None:
        store.pause(
            [Pause(kind, name, "why “x”", "ada") for kind in PauseKind for name in ("b", "B", "ü")], now=at(1)
        )
        store.put_settings(
            [Setting(f"{n} %s", value, "what", updated_by="bob") for n, value in enumerate(VALUES)], now=at(2)
        )
        breaker = Breaker("api", 0.1, 7, HOUR, 90 * SECOND, 3)
        store.put_rules(
            [
                Rule("z", max=3, pinned=True, changed_by="ada"),
                Rule("A", LimitKind.RATE, 10, 40 * HOUR, 2**40),
                Rule("b", LimitKind.BREAKER, breaker=breaker),
                Rule("none"),
            ],
            now=at(3),
        )
        orders = store.orders()
        assert sorted(orders.pauses, key=lambda pause: (pause.kind, pause.name)) == store.pauses()
        assert sorted(orders.settings, key=lambda setting: setting.key) == store.settings()
        assert sorted(orders.rules, key=lambda rule: rule.name) == store.rules()
        assert [len(rows) for rows in orders] == [3 * len(PauseKind), len(VALUES), 4]
