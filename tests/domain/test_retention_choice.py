"""Tests of the choice between retention policies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.retention import (
    DEFAULT_POLICIES,
    ArchivePolicy,
    Position,
    Selection,
    Selector,
)
from tidemill.domain.retention_choice import explain, governed_by, governing, ranked, source_store
from tidemill.domain.retention_settings import Retention, check_overrides, in_effect, read_retention
from tidemill.domain.states import ENDED, JobState
from tidemill.errors import BadSettings

T0 = datetime(2026, 1, 1, tzinfo=UTC)
ID = UUID("0197a000-0000-7000-8000-0000000000aa")
DAY = timedelta(days=1)

names = st.sampled_from(["a", "b.x", "b.y", "c"])
patterns = st.sampled_from(["a", "b.x", "b.*", "*", "*.y", "c"])
tenants = st.sampled_from(["t", "u"])
states = st.sampled_from(sorted(ENDED))
a_policy = st.builds(
    ArchivePolicy,
    st.uuids().map(str),
    states=st.frozensets(states, min_size=1),
    tasks=st.frozensets(patterns, max_size=2),
    tenants=st.frozensets(tenants, max_size=1),
    from_tier=st.sampled_from([None, None, "warm"]),
    delete_from_source=st.booleans(),
)


@given(st.lists(a_policy, max_size=6), states, names, tenants, st.sampled_from([None, "warm"]))
def test_exactly_the_governing_policy_selects_a_job(
    policies: list[ArchivePolicy], state: JobState, task: str, tenant: str, tier: str | None
) -> None:
    moving = [policy for policy in policies if policy.delete_from_source and policy.from_tier == tier]
    selected = [
        policy
        for policy in moving
        if governed_by(policy, policies).contains(state, task, tenant, Position(T0, ID))
    ]
    chosen = governing(policies, tier=tier, state=state, task=task, tenant=tenant)
    assert selected == ([] if chosen is None else [chosen])
    assert (chosen is None) == (not any(policy.selector.matches(state, task, tenant) for policy in moving))


@given(st.lists(a_policy, max_size=6), states, names, tenants)
def test_an_explanation_names_every_policy_once_and_agrees_with_the_choice(
    policies: list[ArchivePolicy], state: JobState, task: str, tenant: str
) -> None:
    found = explain(policies, id=ID, tier=None, state=state, task=task, tenant=tenant, ended_at=T0)
    chosen = governing(policies, tier=None, state=state, task=task, tenant=tenant)
    assert [item.policy for item in found.considered] == [policy.name for policy in ranked(policies)]
    assert found.policy == (None if chosen is None else chosen.name)
    copying = {policy.name for policy in policies if not policy.delete_from_source}
    assert {item.policy for item in found.considered if item.applies} - copying == {found.policy} - {None}
    assert found.lines(T0)


def test_tenants_count_more_than_tasks_and_tasks_more_than_states() -> None:
    by_state = ArchivePolicy("by state", states=["failed"])
    by_pattern = ArchivePolicy("by pattern", tasks=["report.*"])
    by_name = ArchivePolicy("by name", tasks=["report.daily"])
    by_tenant = ArchivePolicy("by tenant", tenants=["acme"])
    everything = ArchivePolicy("everything")
    given = [everything, by_state, by_pattern, by_name, by_tenant]
    assert ranked(given) == [by_tenant, by_name, by_pattern, by_state, everything]


def test_a_policy_for_all_ended_jobs_replaces_the_defaults() -> None:
    week = ArchivePolicy("week", max_age="7d")
    policies = Retention(policies=[week]).effective()
    for state in sorted(ENDED):
        assert governing(policies, tier=None, state=state, task="a", tenant="t") is week


def test_equally_specific_policies_win_in_their_order() -> None:
    first, second = ArchivePolicy("first"), ArchivePolicy("second")
    found = explain(
        [first, second], id=ID, tier=None, state=JobState.FAILED, task="a", tenant="t", ended_at=T0
    )
    assert found.policy == "first"
    assert [item.reason for item in found.considered] == [
        "applies: is for all ended jobs",
        "first is as specific and comes first",
    ]


def test_a_copying_policy_does_not_keep_a_job_from_moving() -> None:
    copy = ArchivePolicy("copy", tasks=["a"], max_age=0, delete_from_source=False)
    found = explain(
        [copy, *DEFAULT_POLICIES],
        id=ID,
        tier=None,
        state=JobState.COMPLETED,
        task="a",
        tenant="t",
        ended_at=T0,
    )
    assert found.policy == "completed"
    assert found.considered[0].reason == "applies too: it copies the job and leaves it"


def test_the_compliance_example_is_explained() -> None:
    year = ArchivePolicy(
        "compliance", tasks=["compliance.*"], max_age="365d", tier="compliance", comment="law requires a year"
    )
    policies = Retention(policies=[year]).effective()
    found = explain(
        policies,
        id=ID,
        tier=None,
        state=JobState.COMPLETED,
        task="compliance.report",
        tenant="t",
        ended_at=T0,
    )
    assert found.due_at == T0 + 365 * DAY
    assert found.lines(T0 + 31 * DAY) == [
        f"compliance.report job {ID} of tenant t is completed in tier live; it ended 2026-01-01 00:00:00 UTC",
        "  * compliance     applies: matches a task pattern (law requires a year)",
        "  - completed      compliance is more specific: it matches a task pattern, this one is the default for its states",
        "  - failed         is for state failed, timed_out, not completed",
        "  - cancelled      is for state cancelled, not completed",
        "  - dead_lettered  is for state dead_lettered, not completed",
        "it moves to tier compliance of store archive on 2027-01-01 00:00:00 UTC, in 334 days",
    ]


def test_each_fate_has_its_words() -> None:
    def fate(
        policy: ArchivePolicy | None, *, ended_at: datetime | None = T0, beyond: Position | None = None
    ) -> str:
        found = explain(
            [] if policy is None else [policy],
            id=ID, tier=None, state=JobState.COMPLETED if ended_at else JobState.RUNNING, task="a", tenant="t",
            ended_at=ended_at, beyond=beyond,
        )  # fmt: skip
        return found.lines(T0 + DAY)[-1]

    both = ArchivePolicy("p", max_age="3d", max_count=10)
    assert fate(None) == "it stays in tier live: no policy moves it"
    assert fate(both, ended_at=None) == "it stays: retention begins when the job has ended"
    assert fate(both) == (
        "it moves to tier archive of store archive on 2026-01-04 00:00:00 UTC, in 2 days, "
        "or earlier once 10 newer jobs of this policy have ended"
    )
    assert fate(both, beyond=Position(T0, ID)) == (
        "it moves to tier archive of store archive with the next run, because 10 newer jobs of this policy have ended"
    )
    assert fate(ArchivePolicy("p", max_age=None, max_count=0, to=None)) == (
        "it is deleted once 0 newer jobs of this policy have ended"
    )
    assert fate(ArchivePolicy("p", max_age="1h", to=None)) == (
        "it is deleted with the next run; it is due since 2026-01-01 01:00:00 UTC"
    )


def test_a_policy_of_the_app_replaces_the_default_of_its_name() -> None:
    longer = ArchivePolicy("completed", states=["completed"], max_age="90d")
    assert [policy.name for policy in Retention(policies=[longer]).effective()] == [
        "completed", "failed", "cancelled", "dead_lettered",
    ]  # fmt: skip
    assert Retention(policies=[longer]).effective()[0].max_age == 90 * DAY
    assert Retention(use_defaults=False, policies=[longer]).effective() == (longer,)
    assert Retention(use_defaults=False).effective() == ()


def test_a_tier_is_read_from_the_store_that_its_first_policy_fills() -> None:
    warm = ArchivePolicy("warm", tier="warm", to="fast")
    cold = ArchivePolicy("cold", from_tier="warm", tier="cold", to="slow")
    assert source_store(cold, [warm, cold]) == "fast"
    assert source_store(cold, [cold]) == "archive"


def test_settings_of_the_store_override_those_of_the_app() -> None:
    app = Retention(interval="15m")
    assert in_effect(app, {})[:2] == (True, timedelta(minutes=15))
    assert in_effect(app, {"retention.enabled": False, "retention.interval": 60})[:2] == (
        False,
        timedelta(minutes=1),
    )
    for unusable in (True, "1h", 0, -5, None):
        assert in_effect(app, {"retention.interval": unusable, "retention.enabled": "no"})[:2] == (
            True,
            timedelta(minutes=15),
        )
    unusable_changes: list[object] = [
        [],
        {"completed": 3},
        {"completed": {"max_age": "soon"}},
        {"none": {"batch": 1}},
    ]
    for changes in unusable_changes:
        assert in_effect(app, {"retention.policies": changes}).policies == app.effective()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ArchivePolicy("p", tasks="report"), "tasks is 'report'; give a list of names"),
        (lambda: ArchivePolicy("p", states=["sleeping"]), "'sleeping' is not a valid JobState"),
        (lambda: ArchivePolicy("p", states=[]), "only ended jobs can be archived"),
        (lambda: ArchivePolicy("p", max_age=None), "give max_age, max_count or both"),
        (lambda: ArchivePolicy("p", max_count=-1), "max_count must be 0 or more"),
        (lambda: ArchivePolicy("p", to=None, delete_from_source=False), "to=None deletes jobs"),
        (lambda: ArchivePolicy("p", from_tier="warm", tier="warm"), "reads from tier 'warm' and writes to it"),
        (lambda: Retention(interval=0), "interval must be one second or more"),
        (lambda: Retention(pace=0), "pace is 0; give a share"),
        (lambda: read_retention("all", []), "retention is 'all'"),  # type: ignore[arg-type]
        (lambda: read_retention([ArchivePolicy("p", to="s3")], ["default"]), "there is no store named 's3'"),
    ],
)  # fmt: skip
def test_unusable_settings_are_refused(make: object, message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        make()  # type: ignore[operator]


def test_a_selection_has_an_exclusive_start_and_an_inclusive_end() -> None:
    last = Position(T0, ID)
    chosen = Selection(Selector(), after=Position(T0 - DAY, ID), until=last)
    assert chosen.contains(JobState.FAILED, "a", "t", last)
    assert not chosen.contains(JobState.FAILED, "a", "t", Position(T0 - DAY, ID))
    assert not chosen.contains(JobState.FAILED, "a", "t", Position(T0, UUID(int=ID.int + 1)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (3, "retention.policies is 3; give an object"),
        ({"failed": 3}, "failed: cannot change 3; give an object with some of max_age, max_count"),
        ({"failed": {"tier": "x"}}, "failed: cannot change 'tier'"),
        ({"failed": {"max_age": "soon"}}, "'soon' is not a duration"),
        ({"failed": {"batch": "x"}}, "retention.policies: failed: "),
    ],
)
def test_unusable_changes_of_policies_are_refused(changes: object, words: str) -> None:
    with pytest.raises(BadSettings, match=words):
        check_overrides(Retention(), changes)
