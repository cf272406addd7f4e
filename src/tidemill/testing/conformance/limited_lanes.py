"""Laws of lanes of limited jobs, and of labels that add a limit."""

from __future__ import annotations

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Finish
from tidemill.domain.lanes import Lane, LaneKey
from tidemill.domain.limits import gate_of
from tidemill.domain.states import JobState
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    HOUR,
    T0,
    WORKER,
    a_job,
    asks,
    at,
    bring,
    claim_all,
    finish_all,
    get_one,
    ids_of,
    put,
    put_one,
)
from tidemill.testing.conformance.limited_claims import at_once, claim_within, used
from tidemill.testing.conformance.payloads import every_odd_text

S = JobState


def lines(store: Store, **which: object) -> list[tuple[str, str, int, tuple[str, ...]]]:
    """Return the limited lanes as queue, tenant, priority and limits."""
    gates: list[Lane] = store.gates(**which)  # type: ignore[arg-type]
    assert all(lane.gate == gate_of(lane.limits) != "" for lane in gates)
    return [(lane.queue, lane.tenant, lane.priority, lane.limits) for lane in gates]


class GateLaws:
    """Law 19: jobs with limits are in separate lanes."""

    def test_an_empty_store_has_no_limited_lanes(self, store: Store) -> None:
        assert store.gates() == []

    def test_limited_jobs_are_in_separate_lanes(self, store: Store) -> None:
        put(store, a_job(limits=("x",)), a_job(), a_job(queue="b"), a_job(queue="c", limits=("y", "x")))
        assert lines(store) == [("c", "default", 0, ("y", "x")), ("default", "default", 0, ("x",))]
        assert sorted(lane.queue for lane in store.lanes()) == ["b", "default"]
        assert all(not lane.limits and not lane.gate for lane in store.lanes())

    def test_a_claim_from_a_plain_lane_takes_no_limited_jobs(self, store: Store) -> None:
        _, plain, other = put(store, a_job(limits=("x",)), a_job(), a_job())
        request = asks(store, WORKER, [Lane("default", "default", 0)], 1)
        (claim,) = store.claim(request, now=T0)
        assert claim.id == plain
        step = store.step([Finish(claim, COMPLETED)], request._replace(limit=10), now=T0)
        assert ids_of(step.claims) == [other]
        assert lines(store) == [("default", "default", 0, ("x",))]

    def test_jobs_with_the_same_limits_share_a_lane(self, store: Store) -> None:
        ids = put(store, *[a_job(task, limits=("x", "y")) for task in "abc"])
        (lane,) = store.gates()
        claims = claim_all(store)
        assert ids_of(claims) == ids
        assert lane.low == claims[0].seq

    def test_low_of_a_limited_lane_is_its_first_job(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(3)], a_job(limits=("y",)))
        first = claim_within(store, at_once("x", 1), at_once("y", 1))
        (lane,) = store.gates()
        (second, *_) = claim_all(store)
        assert lane.low == second.seq != first[0].seq

    def test_limited_lanes_are_ordered(self, store: Store) -> None:
        wanted = [
            (queue, tenant, priority, limits)
            for queue in ("a", "b")
            for tenant in ("s", "t", "ü")
            for priority in (5, 0, -5)
            for limits in (("x",), ("x", "y"), ("z",))
        ]
        wanted.sort(key=lambda line: (line[0], line[1], -line[2], gate_of(line[3])))
        for queue, tenant, priority, limits in reversed(wanted):
            put_one(store, queue=queue, tenant=tenant, priority=priority, limits=limits)
        put(store, *[a_job(queue=queue, tenant=tenant) for queue in "abc" for tenant in "rst"])
        assert lines(store) == wanted
        assert lines(store, limit=7) == wanted[:7]

    @pytest.mark.parametrize("size", [1, 2, 5, 100])
    def test_pages_of_limited_lanes_contain_each_lane_once(self, store: Store, size: int) -> None:
        put(
            store,
            *[
                a_job(queue="ab"[n % 2], tenant="st"[n // 2 % 2], priority=n % 3, limits=(f"k/{n % 5}",))
                for n in range(24)
            ],
            *[a_job(queue="ab"[n % 2], priority=n) for n in range(4)],
        )
        everything = store.gates()
        gates: list[Lane] = []
        after: LaneKey | None = None
        while page := store.gates(limit=size, after=after):
            assert len(page) <= size
            gates += page
            after = page[-1].key
        assert gates == everything
        assert len(gates) == len(set(lines(store)))

    def test_a_page_continues_after_a_lane_that_no_longer_exists(self, store: Store) -> None:
        put(
            store,
            *[a_job(queue=queue, priority=priority, limits=("m",)) for queue in "ac" for priority in (9, 1)],
        )
        gone = [
            (LaneKey("a", "default", 5, ""), 3),
            (LaneKey("a", "default", 9, gate_of(("a",))), 4),
            (LaneKey("a", "default", 9, gate_of(("z",))), 3),
            (LaneKey("a", "a", 0, ""), 4),
            (LaneKey("a", "z", 0, ""), 2),
            (LaneKey("b", "", 0, ""), 2),
            (LaneKey("c", "default", -9, ""), 0),
        ]
        for key, left in gone:
            assert store.gates(after=key) == store.gates()[4 - left :], key

    def test_limited_lanes_can_be_filtered_by_queue(self, store: Store) -> None:
        put(store, *[a_job(queue=queue, limits=("x",)) for queue in "abcd"])
        assert [line[0] for line in lines(store, queues=["d", "b", "none"])] == ["b", "d"]
        assert [line[0] for line in lines(store, queues=["d", "b"], limit=1)] == ["b"]
        after = LaneKey("b", "default", 0, gate_of(("x",)))
        assert [line[0] for line in lines(store, queues=["d", "b"], after=after)] == ["d"]
        assert store.gates([]) == []

    def test_a_limited_lane_ends_with_its_last_job(self, store: Store) -> None:
        put_one(store, limits=("x",))
        (claim,) = claim_all(store)
        assert store.gates() == []
        finish_all(store, [claim], AGAIN)
        assert len(store.gates()) == 1

    @every_odd_text
    def test_any_text_is_a_valid_limit_name(self, store: Store, text: str) -> None:
        put_one(store, limits=(text, "x"))
        assert lines(store) == [("default", "default", 0, (text, "x"))]
        assert store.gates(after=store.gates()[0].key) == []


class LabelLaws:
    """Pending and scheduled jobs can be given another limit."""

    def test_a_label_moves_pending_jobs_to_a_limited_lane(self, store: Store) -> None:
        a, b, c = put(store, a_job("t"), a_job("other"), a_job("t", limits=("x",)))
        assert store.label("t", "one", limit=10) == 2
        assert [get_one(store, id).limits for id in (a, b, c)] == [("one",), (), ("x", "one")]
        assert lines(store) == [("default", "default", 0, ("one",)), ("default", "default", 0, ("x", "one"))]
        assert len(store.lanes()) == 1

    def test_labelled_jobs_keep_their_order_among_others(self, store: Store) -> None:
        ids = put(store, *[a_job(task, limits=() if task == "t" else ("one",)) for task in "tutuutt"])
        assert store.label("t", "one", limit=10) == 4
        assert ids_of(claim_all(store)) == ids

    def test_a_labelled_job_keeps_its_place_at_the_end(self, store: Store) -> None:
        first, second = put(store, a_job("t"), a_job("t"))
        finish_all(store, claim_all(store, limit=1), AGAIN)
        store.label("t", "one", limit=10)
        assert ids_of(claim_all(store)) == [second, first]

    def test_a_labelled_scheduled_job_is_limited_when_due(self, store: Store) -> None:
        id = put_one(store, "t", run_at=at(5))
        assert store.label("t", "one", limit=10) == 1
        assert get_one(store, id).run_at == at(5)
        assert store.promote(10, now=at(5)).moved == 1
        assert lines(store) == [("default", "default", 0, ("one",))]

    def test_no_job_is_labelled_twice(self, store: Store) -> None:
        put(store, a_job("t"), a_job("t", limits=("one",)), a_job("t", limits=("x", "one")))
        assert store.label("t", "one", limit=10) == 1
        assert store.label("t", "one", limit=10) == 0

    def test_labels_are_applied_in_batches(self, store: Store) -> None:
        put(store, *[a_job("t") for _ in range(3)], *[a_job("t", delay=HOUR) for _ in range(3)])
        assert [store.label("t", "one", limit=n) for n in (0, 2, 2, 2, 2)] == [0, 2, 2, 2, 0]

    def test_held_waiting_and_ended_jobs_are_not_labelled(self, store: Store) -> None:
        for state in (S.RUNNING, S.CLAIMED, S.WAITING, S.REVIEW_NEEDED, S.COMPLETED, S.FAILED):
            bring(store, state)
        assert store.label("work", "one", limit=100) == 0

    def test_a_labelled_job_counts_against_its_limit(self, store: Store) -> None:
        put(store, a_job("t"), a_job("t", limits=("x",)))
        store.label("t", "one", limit=10)
        claims = claim_within(store, at_once("one", 1))
        assert len(claims) == 1
        assert used(store, "one") == [1]
        finish_all(store, claims)
        assert used(store, "one") == [0]

    @every_odd_text
    def test_a_label_uses_the_same_lane_as_enqueueing(self, store: Store, text: str) -> None:
        ids = put(store, a_job("t"), a_job("u", limits=(text,)), a_job("t"))
        assert store.label("t", text, limit=10) == 2
        assert store.label("t", text, limit=10) == 0
        assert lines(store) == [("default", "default", 0, (text,))]
        assert ids_of(claim_all(store)) == ids
