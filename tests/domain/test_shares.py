"""Tests of fair shares between tenants."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.strategies import a_claim

from tidemill.domain.job import Claim
from tidemill.domain.lanes import FEWEST_LANES, MOST_LANES, Lane, LaneKey, Watermarks
from tidemill.domain.shares import Shares, group_of


class Backlog:
    """Jobs by lane, and a worker that claims them page by page."""

    def __init__(self, jobs: dict[LaneKey, int], weights: dict[str, float] | None = None) -> None:
        self.jobs, self.weights, self.marks = dict(jobs), weights or {}, Watermarks()
        self.pages = 0
        self.read()

    def read(self) -> None:
        self.marks.seen([Lane(*key[:3]) for key, number in self.jobs.items() if number])

    def claim(self, limit: int) -> Counter[str]:
        """Claim once; return how many jobs each tenant got."""
        got: Counter[str] = Counter()
        for page in self.marks.pages(limit, weights=self.weights):
            self.pages += 1
            assert 0 < len(page) <= MOST_LANES
            claims: list[Claim] = []
            for lane in page:
                number = min(lane.quota, limit - got.total() - len(claims), self.jobs[lane.key])
                self.jobs[lane.key] -= number
                claims += [a_claim(tenant=lane.tenant, queue=lane.queue, priority=lane.priority)] * number
            got.update(claim.tenant for claim in claims)
            self.marks.served(claims, self.weights)
            if got.total() >= limit:
                break
        return got


def lanes_of(tenant: str, queues: int, jobs: int, priority: int = 0) -> dict[LaneKey, int]:
    return {LaneKey(f"{tenant}-q{number}", tenant, priority): jobs for number in range(queues)}


@pytest.mark.parametrize(
    "noisy",
    [
        lanes_of("noisy", 1, 100_000),
        lanes_of("noisy", 1000, 100),
        lanes_of("noisy", 1, 100_000, priority=50),
        {LaneKey("q", f"noisy/{number}", 1): 100 for number in range(1000)},
    ],
    ids=["one queue", "a thousand queues", "a high priority", "a thousand tenants of one group"],
)
@pytest.mark.parametrize("limit", [1, 2, 10, 100])
def test_a_quiet_tenant_gets_half_of_the_claims(noisy: dict[LaneKey, int], limit: int) -> None:
    backlog = Backlog(noisy | lanes_of("quiet", 1, 1000))
    got = backlog.claim(limit) + backlog.claim(limit)
    assert got["quiet"] == limit
    assert backlog.pages <= 4


def test_a_quiet_tenant_with_one_job_in_each_queue_catches_up() -> None:
    backlog = Backlog(lanes_of("noisy", 1000, 100) | lanes_of("quiet", 10, 1))
    got: Counter[str] = Counter()
    for _ in range(3):
        got += backlog.claim(10)
    assert got["quiet"] == 10


def test_shares_follow_the_weights() -> None:
    backlog = Backlog(lanes_of("a", 3, 1000) | lanes_of("b", 1, 1000), {"a": 3.0})
    got: Counter[str] = Counter()
    for _ in range(10):
        got += backlog.claim(20)
    assert got == {"a": 150, "b": 50}


def test_the_tenants_of_a_group_share_its_share() -> None:
    backlog = Backlog(
        lanes_of("acme/eu", 5, 1000) | lanes_of("acme/us", 1, 1000) | lanes_of("other", 1, 1000)
    )
    got: Counter[str] = Counter()
    for _ in range(20):
        got += backlog.claim(8)
    assert got["other"] == 80
    assert abs(got["acme/eu"] - got["acme/us"]) <= 8


def test_groups_can_be_switched_off() -> None:
    marks = Watermarks()
    marks.seen([Lane("q", name, 0) for name in ("acme/eu", "acme/us", "other")])
    (first, *_) = marks.pages(9, by_prefix=False)
    assert {lane.tenant: lane.quota for lane in first} == {"acme/eu": 3, "acme/us": 3, "other": 3}


def test_a_tenant_that_was_idle_saves_up_no_turns() -> None:
    backlog = Backlog(lanes_of("a", 1, 1000))
    for _ in range(10):
        backlog.claim(10)
    backlog.jobs |= lanes_of("b", 1, 1000)
    backlog.read()
    assert backlog.claim(10) == {"a": 5, "b": 5}


def test_a_single_tenant_is_requested_in_one_page_by_priority() -> None:
    marks = Watermarks()
    marks.seen([Lane(f"q{number}", "only", number % 3) for number in range(20)])
    (page,) = marks.pages(50)
    assert all(one.priority >= other.priority for one, other in pairwise(page))
    assert {lane.quota for lane in page} == {2**31 - 1}


def test_unused_shares_go_to_other_tenants() -> None:
    backlog = Backlog(lanes_of("a", 1, 2) | lanes_of("b", 1, 1000))
    assert backlog.claim(10) == {"a": 2, "b": 8}


def test_all_jobs_of_many_short_lanes_are_claimed() -> None:
    backlog = Backlog(lanes_of("a", 300, 1) | lanes_of("b", 300, 1))
    assert backlog.claim(600).total() == 600


@given(
    st.dictionaries(
        st.builds(
            LaneKey,
            st.sampled_from(["q", "r", "s"]),
            st.sampled_from(["a", "b", "c/1", "c/2", "d"]),
            st.integers(0, 3),
            st.just(""),
        ),
        st.integers(1, 30),
        min_size=1,
    ),
    st.integers(1, 12),
)
def test_a_tenant_waits_for_a_bounded_number_of_claims(jobs: dict[LaneKey, int], limit: int) -> None:
    backlog = Backlog(jobs)
    waited: Counter[str] = Counter()
    groups = {group_of(key.tenant) for key in jobs}
    members = Counter(group_of(tenant) for tenant in {key.tenant for key in jobs})
    # A member was seen to be passed over once while another member of its group was served twice.
    bound = len(groups) * (max(members.values()) + 1) + 1
    while sum(backlog.jobs.values()):
        backlog.read()
        waiting = {key.tenant for key, number in backlog.jobs.items() if number}
        got = backlog.claim(limit)
        assert got.total() == min(limit, got.total() + sum(backlog.jobs.values()))
        for tenant in waiting:
            waited[tenant] = 0 if got[tenant] else waited[tenant] + 1
            assert waited[tenant] <= bound


@given(st.sets(st.text(max_size=4), min_size=1, max_size=200), st.integers(1, 500))
def test_a_claim_requests_a_bounded_number_of_lanes(tenants: set[str], limit: int) -> None:
    marks = Watermarks()
    marks.seen([Lane(queue, tenant, 0) for tenant in tenants for queue in "ab"])
    for page in marks.pages(limit):
        assert len(page) <= min(max(limit, FEWEST_LANES), MOST_LANES)


def test_a_name_without_a_prefix_is_its_own_group() -> None:
    assert [group_of(name) for name in ("acme", "acme/eu", "/eu", "acme/eu/1")] == [
        "acme",
        "acme",
        "/eu",
        "acme",
    ]


def test_shares_forget_tenants_that_are_gone() -> None:
    shares = Shares()
    shares.rounds({"a": [["x"]], "b": [["y"]]})
    shares.served({"a": 100}, {})
    shares.seen({"b"})
    order, _ = shares.rounds({"a": [["x"]], "b": [["y"]]})
    assert set(order) == {"a", "b"}
    assert shares.quotas(["a", "b"], 10, {}) == {"a": 5, "b": 5}
