"""Rules of schedules that run after definitions or on events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import After, On
from tidemill.domain.reactions import Occurrence, Reactions, cycle_of, reactions, waiting_words
from tidemill.domain.triggers.base import Trigger, trigger_from_data
from tidemill.domain.triggers.reactive import ReactiveTrigger
from tidemill.errors import BadSchedule

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SCHEDULE = UUID(int=1)
_ZONE = ZoneInfo("Europe/Berlin")


def ended(source: str, hours: float, outcome: str = "success", number: int = 0) -> Occurrence:
    at = NOON + hours * HOUR
    return Occurrence(SCHEDULE, UUID(int=number or int(at.timestamp() * 10)), source, at, outcome)


def emitted(payload: str | None, hours: float = 0, match: str = "") -> Occurrence:
    return Occurrence(SCHEDULE, UUID(int=7), "paid", NOON + hours * HOUR, "", match, payload)


def judged(trigger: ReactiveTrigger, *occurrences: Occurrence, since: float = -100) -> Reactions:
    return reactions(trigger, occurrences, NOON + since * HOUR, NOON + 5 * HOUR, _ZONE)


def test_a_set_is_complete_when_every_definition_has_ended_once() -> None:
    a, b = ended("a", 0), ended("b", 1)
    found = judged(After("a", "b"), b, a)
    assert [(fire.at, set(fire.used)) for fire in found.fires] == [(b.occurred_at, {a, b})]
    assert found.held == () == found.dropped
    assert judged(After("a", "b"), a).held == (a,)


def test_a_newer_end_replaces_an_older_one_of_its_definition() -> None:
    old, new, other = ended("a", 0), ended("a", 1), ended("b", 2)
    found = judged(After("a", "b"), old, new, other)
    assert [set(fire.used) for fire in found.fires] == [{new, other}]
    assert found.dropped == (old,)


def test_each_end_of_a_single_definition_is_a_set() -> None:
    assert len(judged(After("a"), *(ended("a", hour) for hour in range(4))).fires) == 4


@pytest.mark.parametrize(("on", "outcome", "fires"), [
    ("success", "success", 1), ("success", "failure", 0), ("failure", "failure", 1), ("failure", "cancel", 0),
    ("end", "cancel", 1),
])  # fmt: skip
def test_only_the_wanted_ends_count(on: str, outcome: str, fires: int) -> None:
    found = judged(After("a", on=on), ended("a", 0, outcome))  # type: ignore[arg-type]
    assert len(found.fires) == fires
    assert len(found.dropped) == 1 - fires


def test_s25_a_stale_end_waits_for_no_other() -> None:
    a, b = ended("a", 0), ended("b", 3)
    found = judged(After("a", "b", fresh="2h"), a, b)
    assert found.fires == ()
    assert (found.dropped, found.held) == ((a,), (b,))
    assert len(judged(After("a", "b", fresh="3h"), a, b).fires) == 1
    # Nothing new came, and the held end grows too old.
    assert judged(After("a", "b", fresh="4h"), a).dropped == (a,)
    assert judged(After("a", "b", fresh=None), a).held == (a,)


def test_ends_of_different_local_days_do_not_meet() -> None:
    evening, night = ended("a", 10.5), ended("b", 11.5)  # 23:30 and 00:30 in Berlin
    assert judged(After("a", "b", same="day"), evening, night).fires == ()
    assert len(judged(After("a", "b", same="week"), evening, night).fires) == 1
    assert (
        len(reactions(After("a", "b", same="day"), [evening, night], None, NOON, ZoneInfo("UTC")).fires) == 1
    )


def test_s25_ends_before_the_rule_was_saved_do_not_count_unless_the_clock_was_set_back() -> None:
    early = ended("a", 0)
    assert judged(After("a"), early, since=1).dropped == (early,)
    assert len(judged(After("a"), early, since=500).fires) == 1


def test_an_event_fires_with_values_of_its_payload() -> None:
    trigger = On("paid", where={"country": "DE"}, args={"order": "$.order.id", "all": "$"})
    (fire,) = judged(trigger, emitted('{"country":"DE","order":{"id":7}}')).fires
    assert fire.arguments == {"order": 7, "all": {"country": "DE", "order": {"id": 7}}}
    assert judged(trigger, emitted('{"country":"FR"}')).fires == ()
    assert judged(trigger, emitted(None)).fires == ()
    assert judged(On("paid", match=42), emitted(None, match="41")).fires == ()
    assert len(judged(On("paid", match=42), emitted(None, match="42")).fires) == 1


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["success", "failure"])), max_size=30),
    st.data(),
)
def test_the_fires_do_not_depend_on_when_the_leader_looks(
    ends: list[tuple[str, str]], data: st.DataObject
) -> None:
    trigger = After("a", "b", "c", fresh=None)
    occurrences = [ended(name, index / 10, outcome, index + 1) for index, (name, outcome) in enumerate(ends)]
    whole = [fire.used for fire in judged(trigger, *occurrences).fires]
    stepwise: list[tuple[Occurrence, ...]] = []
    held: tuple[Occurrence, ...] = ()
    rest = occurrences
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        found = judged(trigger, *held, *rest[:count])
        used = [one for fire in found.fires for one in fire.used]
        assert sorted([*used, *found.dropped, *found.held]) == sorted([*held, *rest[:count]])
        stepwise += [fire.used for fire in found.fires]
        held, rest = found.held, rest[count:]
    assert stepwise == whole


@pytest.mark.parametrize(("trigger", "words"), [
    (After("a"), "After a completed"),
    (After("a", "b", on="failure"), "After a and b failed, within one day"),
    (After("a", "b", "c", fresh="36h", same="day"), "After a, b and c completed, all in one day, within 1 day and 12 hours"),
    (On("paid"), "On every event paid"),
    (On("paid", match=7, where={"country": "DE"}), 'On every event paid for 7 with country "DE"'),
])  # fmt: skip
def test_a_reactive_trigger_says_what_it_waits_for_and_travels_as_data(trigger: Trigger, words: str) -> None:
    assert trigger.explain() == words
    assert trigger_from_data(trigger.to_data()) == trigger
    assert trigger.preview(3, NOON) == []


@pytest.mark.parametrize(("make", "words"), [
    (After, "name at least one definition"),
    (lambda: After("a", "a"), "named twice"),
    (lambda: After(""), "is not a name"),
    (lambda: After("a", on="success!"), "expected one of success, failure, end"),  # type: ignore[arg-type]
    (lambda: After("a", same="month"), "expected one of day, week"),  # type: ignore[arg-type]
    (lambda: After("a", fresh=0), "not longer than zero"),
    (lambda: After(*(str(n) for n in range(51))), "more than 50"),
    (lambda: On(" "), "is not a name"),
    (lambda: On("a", args={"x": "id"}), "not a path"),
    (lambda: On("a", where={"x": object()}), "not plain data"),
])  # fmt: skip
def test_a_reactive_trigger_refuses_what_cannot_fire(make: object, words: str) -> None:
    with pytest.raises(BadSchedule, match=words):
        make()  # type: ignore[operator]


def test_the_words_name_the_present_and_the_missing_sources() -> None:
    words = waiting_words(After("a", "b", fresh="1h"), [ended("a", 0)], ["a"], NOON - HOUR)
    assert words == (
        "waits for b, which does not exist yet; the last fire was for the ends until 2026-01-05 11:00:00 UTC; "
        "a ended at 2026-01-05 12:00:00 UTC, fresh until 2026-01-05 13:00:00 UTC"
    )


def test_a_cycle_is_found_through_other_definitions() -> None:
    assert cycle_of({"a": ["b", "x"], "b": ["c"], "c": ["a"]}, "a") == ["a", "b", "c", "a"]
    assert cycle_of({"a": ["a"]}, "a") == ["a", "a"]
    assert cycle_of({"a": ["b"], "b": ["c"], "c": ["b"]}, "a") == []
