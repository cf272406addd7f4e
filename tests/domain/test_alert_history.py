"""The history of alerts: each opens once and recovers once."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.alert_history import StoredAlert, compare
from tidemill.domain.alerts import Alert, Severity

T0 = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = st.tuples(st.sampled_from(["queue_depth", "orphans"]), st.sampled_from(["", "a", "b"]))


def raised(keys: set[tuple[str, str]]) -> list[Alert]:
    return [Alert(code, Severity.WARNING, "text", 1, 0, subject or None) for code, subject in sorted(keys)]


@given(st.lists(st.sets(KEYS), max_size=8))
def test_open_alerts_are_those_of_the_last_evaluation(rounds: list[set[tuple[str, str]]]) -> None:
    ids = count(1)
    stored: dict[UUID, StoredAlert] = {}
    opened = recovered = 0
    before: set[tuple[str, str]] = set()
    for keys in rounds:
        changes = compare(stored.values(), raised(keys), lambda: UUID(int=next(ids)))
        for new in changes.opened:
            stored[new.id] = StoredAlert(*new, T0, T0)
        for old in changes.recovered:
            del stored[old.id]
        assert {(alert.code, alert.subject) for alert in stored.values()} == keys
        assert {alert.id for alert in changes.seen} <= set(stored)
        opened, recovered = opened + len(changes.opened), recovered + len(changes.recovered)
        assert len(changes.opened) == len(keys - before)
        assert len(changes.recovered) == len(before - keys)
        before = keys
    assert opened - recovered == len(before)


def test_an_alert_that_is_raised_twice_opens_once() -> None:
    twice = raised({("orphans", "")}) * 2
    changes = compare([], twice, lambda: UUID(int=1))
    assert len(changes.opened) == 1
