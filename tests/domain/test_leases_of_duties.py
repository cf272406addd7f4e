"""Tests of how the leases of duties are divided among processes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.cluster import Lease, duty_lease_name, duty_of_lease, leases_to_ask_for
from tidemill.ids import new_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ME, OTHER, THIRD = (new_id() for _ in range(3))


def lease(name: str, holder: object, *, ends: timedelta = MINUTE) -> Lease:
    return Lease(name, holder, 1, NOW - MINUTE, NOW, NOW + ends)  # type: ignore[arg-type]


def test_the_name_of_a_lease_leads_back_to_its_duty() -> None:
    assert duty_of_lease(duty_lease_name("fire")) == "fire"
    assert [duty_of_lease(name) for name in ("duties", "app:duties:x", "archive")] == [None, None, None]


def test_a_process_asks_for_half_of_the_difference_to_the_one_with_the_most() -> None:
    held = [lease(f"duties:{name}", OTHER) for name in "abcdef"] + [lease("duties:x", THIRD)]
    assert leases_to_ask_for(held, ME, NOW) == ["duties:d", "duties:e", "duties:f"]
    assert leases_to_ask_for(held, THIRD, NOW) == ["duties:e", "duties:f"]
    assert leases_to_ask_for(held, OTHER, NOW) == []


def test_free_leases_and_those_of_other_kinds_do_not_count() -> None:
    held = [
        lease("app:a", OTHER),
        lease("archive", OTHER),
        lease("duties", OTHER),
        lease("duties:a", OTHER),
        lease("duties:b", OTHER, ends=-MINUTE),
        lease("duties:c", None),
    ]
    assert leases_to_ask_for(held, ME, NOW) == []


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(0, 11))
def test_asking_in_turn_ends_with_a_difference_of_at_most_one(loads: list[int], first: int) -> None:
    processes = [new_id() for _ in loads]
    holders = {
        f"duties:{process}-{number}": process
        for process, load in zip(processes, loads, strict=True)
        for number in range(load)
    }
    for turn in range(first, first + 40 * len(processes)):
        asking = processes[turn % len(processes)]
        for name in leases_to_ask_for([lease(*item) for item in holders.items()], asking, NOW):
            assert holders[name] != asking
            holders[name] = asking
    after = [list(holders.values()).count(process) for process in processes]
    assert max(after) - min(after) <= 1
    assert sum(after) == sum(loads)
