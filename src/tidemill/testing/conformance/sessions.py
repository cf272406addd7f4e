"""Laws of sign-in sessions: written once, ended once, deleted after their time."""

from __future__ import annotations

import pytest

from tidemill.domain.sessions import StoredSession
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import T0, at


def _session(id: str = "a", *, key_id: str | None = None, single_use: str | None = None) -> StoredSession:
    return StoredSession(id, "ann", at(60), key_id, single_use=single_use)


def _states(store: Store) -> list[tuple[str, bool]]:
    sessions = store.sessions()
    return [(session.id, session.ended_at is not None) for session in sessions]


class SessionLaws:
    """Stored sign-in sessions."""

    def test_every_field_of_a_session_is_stored(self, store: Store) -> None:
        full = StoredSession(
            "a",
            "name “x” 🦊 '; --",
            at(60),
            "ab12cd34",
            '{"role":"viewer"}',
            "https://id",
            "sub",
            "sid",
            "once",
        )
        assert store.put_sessions([full, _session("b")], now=T0) == frozenset()
        assert store.sessions() == [
            StoredSession(
                "a", full.who, at(60), "ab12cd34", '{"role":"viewer"}', "https://id", "sub", "sid", "once", T0
            ),
            StoredSession("b", "ann", at(60), created_at=T0),
        ]
        assert [session.id for session in store.sessions(["b", "none"])] == ["b"]
        assert store.sessions([]) == []

    def test_a_session_is_written_once(self, store: Store) -> None:
        store.put_sessions([_session(key_id="one")], now=T0)
        assert store.put_sessions([_session(key_id="two"), _session("b")], now=at(1)) == {"a"}
        assert [session.key_id for session in store.sessions()] == ["one", None]

    def test_a_single_use_code_opens_one_session_even_after_its_end(self, store: Store) -> None:
        first, second = _session("a", single_use="code"), _session("b", single_use="code")
        assert store.put_sessions([first, second], now=T0) == {"b"}
        store.end_sessions(["a"], now=at(1))
        assert store.put_sessions([second], now=at(2)) == {"b"}
        assert _states(store) == [("a", True)]

    def test_a_session_ends_once(self, store: Store) -> None:
        store.put_sessions([_session("a"), _session("b")], now=T0)
        assert store.end_sessions(["a", "none"], now=at(1)) == {"a"}
        assert store.end_sessions(["a"], now=at(2)) == frozenset()
        assert store.sessions(["a"])[0].ended_at == at(1)
        assert _states(store) == [("a", True), ("b", False)]
        assert store.put_sessions([_session("a")], now=at(3)) == {"a"}

    def test_a_new_session_deletes_expired_ones(self, store: Store) -> None:
        store.put_sessions([_session("a")], now=T0)
        store.put_sessions([StoredSession("b", "ann", at(90))], now=at(59))
        assert _states(store) == [("a", False), ("b", False)]
        store.put_sessions([StoredSession("c", "ann", at(90))], now=at(60))
        assert _states(store) == [("b", False), ("c", False)]

    def test_sessions_are_rolled_back_with_their_transaction(self, store: Store) -> None:
        store.put_sessions([_session("a")], now=T0)

        def work() -> None:
            with store.transaction():
                store.put_sessions([_session("b")], now=T0)
                store.end_sessions(["a"], now=T0)
                raise LookupError

        with pytest.raises(LookupError):
            work()
        assert _states(store) == [("a", False)]

    def test_an_empty_batch_of_sessions_does_nothing(self, store: Store) -> None:
        assert store.put_sessions([], now=T0) == frozenset()
        assert store.end_sessions([], now=T0) == frozenset()
