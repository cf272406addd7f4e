"""Laws of statistics: counts of ended jobs and series."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import ErrorInfo, Move
from tidemill.domain.rollups import NO_TIMES, Bucket, Distribution, JobTimes, bucket_of, since_of
from tidemill.domain.states import ENDED, JobState
from tidemill.domain.stats import FAILURES, EndedGroup, Group, SeriesStep
from tidemill.errors import BadFilter
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    ENDS,
    HOUR,
    OTHER,
    SECOND,
    T0,
    WORKER,
    at,
    bring,
    claim_one,
    finish_all,
    put_one,
)

S = JobState
MINUTE = timedelta(minutes=1)


def end(
    store: Store,
    state: JobState = S.COMPLETED,
    *,
    due: datetime = T0,
    waits: float = 0,
    takes: float = 0,
    worker: UUID = WORKER,
    error: ErrorInfo | None = None,
    **fields: Any,
) -> UUID:
    """Run a job that was due then, waited and ran for these seconds, and ended."""
    id = put_one(store, now=due, **fields)
    started = due + timedelta(seconds=waits)
    claim = claim_one(store, id, now=started, worker=worker)
    finish_all(store, [claim], ENDS[state], now=started + timedelta(seconds=takes), error=error)
    return id


def times(*jobs: tuple[float, float]) -> JobTimes:
    """Return the times of jobs that waited and ran for these seconds."""
    waits, runs = zip(*jobs, strict=True)
    return JobTimes(_spread(runs), _spread(waits))


def _spread(seconds: Iterable[float]) -> Distribution:
    micros = [round(second * 1_000_000) for second in seconds]
    return Distribution.of(Bucket(bucket_of(micro), 1, micro) for micro in micros)


def by(store: Store, group: Group, **how: Any) -> dict[str | None, EndedGroup]:
    """Return what ended in the hour before ``now``, by name."""
    how.setdefault("tenant", ALL_TENANTS)
    how.setdefault("now", at(61))
    return {row.name: row for row in store.ended_by(group, HOUR, **how).rows}


class TallyLaws:
    """Counts of ended jobs."""

    def test_jobs_ended_in_the_window_are_counted_by_state(self, store: Store) -> None:
        end(store, due=T0 - 2 * HOUR)
        end(store, S.FAILED, due=T0 - 2 * HOUR)
        for state, number in {S.COMPLETED: 4, S.DEAD_LETTERED: 2, S.CANCELLED: 1}.items():
            for _ in range(number):
                end(store, state, tenant="a")
        end(store, S.TIMED_OUT, tenant="b")
        bring(store, S.PENDING)
        everyone = {"completed": 4, "dead_lettered": 2, "cancelled": 1, "timed_out": 1}
        for tenant, expected in ((ALL_TENANTS, everyone), ("b", {"timed_out": 1}), ("nobody", {})):
            rows = by(store, Group.STATE, tenant=tenant, now=at(60))
            assert {name: row.total for name, row in rows.items()} == expected

    def test_without_ended_jobs_there_are_no_groups(self, store: Store) -> None:
        for state in sorted(set(S) - ENDED):
            bring(store, state)
        groups = store.ended_by(Group.TASK, HOUR, tenant=ALL_TENANTS, now=at(60))
        assert (groups.rows, groups.since_at) == ([], since_of(at(60), HOUR))

    def test_ended_jobs_are_counted_with_their_times(self, store: Store) -> None:
        end(store, waits=2, takes=10, tenant="a")
        end(store, S.FAILED, waits=4, takes=30, tenant="b")
        end(store, S.CANCELLED, tenant="b")
        end(store, task="other")
        assert by(store, Group.TASK)["work"] == EndedGroup(
            name="work", total=3, completed=1, failed=1, cancelled=1, retried=0, attempts=3, most_attempts=1, ran=3,
            run_time=40 * SECOND, longest=30 * SECOND, lag=6 * SECOND, longest_lag=4 * SECOND, tenants=2,
            last_at=at(34),
        )  # fmt: skip

    @pytest.mark.parametrize("state", sorted(ENDED))
    def test_every_final_state_is_counted_in_its_column(self, store: Store, state: JobState) -> None:
        end(store, state)
        row = by(store, Group.STATE)[state.value]
        assert (row.completed, row.failed, row.cancelled) == (
            int(state is S.COMPLETED),
            int(state in FAILURES),
            int(state is S.CANCELLED),
        )

    def test_attempts_are_counted_and_the_last_one_is_timed(self, store: Store) -> None:
        id = put_one(store)
        finish_all(store, [claim_one(store, id)], AGAIN, now=at(10))
        finish_all(store, [claim_one(store, id, now=at(15))], COMPLETED, now=at(18))
        end(store)
        row = by(store, Group.TASK)["work"]
        assert (row.retried, row.attempts, row.most_attempts) == (1, 3, 2)
        assert (row.longest, row.longest_lag) == (3 * SECOND, 5 * SECOND)

    def test_a_job_that_never_ran_has_no_times_and_no_worker(self, store: Store) -> None:
        end(store)
        job = bring(store, S.PENDING)
        store.move([_cancel(job.id, job.tenant)], now=at(5))
        row = by(store, Group.WORKER)[None]
        assert (row.total, row.ran, row.run_time, row.longest, row.lag) == (
            1,
            0,
            0 * SECOND,
            0 * SECOND,
            0 * SECOND,
        )
        assert by(store, Group.WORKER)[str(WORKER)].total == 1

    @pytest.mark.parametrize("group", sorted(Group))
    def test_jobs_are_counted_by_every_group(self, store: Store, group: Group) -> None:
        end(store, task="a", tenant="a", queue="a", worker=WORKER)
        end(store, S.FAILED, task="b", tenant="b", queue="b", worker=OTHER)
        names: Any = {Group.WORKER: [WORKER, OTHER], Group.STATE: [S.COMPLETED, S.FAILED]}.get(
            group, ["a", "b"]
        )
        rows = by(store, group)
        assert {name: (row.completed, row.failed) for name, row in rows.items()} == {
            str(names[0]): (1, 0),
            str(names[1]): (0, 1),
        }

    def test_a_window_starts_with_a_full_minute(self, store: Store) -> None:
        end(store, takes=1)
        minute = T0.replace(second=0, microsecond=0)
        for now, total in ((minute + HOUR + MINUTE - SECOND, 1), (minute + HOUR + MINUTE, 0)):
            groups = store.ended_by(Group.TASK, HOUR, tenant=ALL_TENANTS, now=now)
            assert groups.since_at == now.replace(second=0) - HOUR
            assert sum(row.total for row in groups.rows) == total

    def test_a_tenant_sees_only_its_own_groups(self, store: Store) -> None:
        end(store, tenant="a")
        end(store, S.FAILED, tenant="b")
        for failures in (False, True):
            rows = by(store, Group.TENANT, tenant="b", failures=failures)
            assert {name: row.total for name, row in rows.items()} == {"b": 1}
        assert by(store, Group.TENANT, tenant="c") == {}

    def test_the_most_frequent_names_come_first_up_to_the_limit(self, store: Store) -> None:
        for task in ("b", "a", "c", "c"):
            end(store, task=task)
        for limit, names in ((2**40, ["c", "a", "b"]), (5, ["c", "a", "b"]), (2, ["c", "a"]), (0, [])):
            groups = store.ended_by(Group.TASK, HOUR, tenant=ALL_TENANTS, limit=limit, now=at(9))
            assert [row.name for row in groups.rows] == names

    def test_failures_are_counted_without_other_ends(self, store: Store) -> None:
        for state in sorted(ENDED):
            end(store, state, takes=1)
        rows = by(store, Group.STATE, failures=True)
        assert set(rows) == {state.value for state in FAILURES}

    @pytest.mark.parametrize("tenant", [ALL_TENANTS, "a", "b"])
    def test_standing_equals_count(self, store: Store, tenant: str) -> None:
        assert store.standing(tenant=tenant) == {}
        for state in S:
            bring(store, state, tenant="a")
        bring(store, S.COMPLETED, tenant="b")
        assert store.standing(tenant=tenant) == store.count(JobFilter(tenant))


class SeriesLaws:
    """Ended jobs in time steps."""

    def slots(self, store: Store, **how: Any) -> list[SeriesStep]:
        how.setdefault("tenant", ALL_TENANTS)
        series = store.series(3 * MINUTE, MINUTE, now=at(60), **how)
        assert series.step == MINUTE
        return series.slots

    def test_steps_are_aligned_and_without_gaps(self, store: Store) -> None:
        first = T0.replace(second=0, microsecond=0) - MINUTE
        empty = [(first + n * MINUTE, 0, NO_TIMES) for n in range(3)]
        assert [(slot.at, slot.total, slot.times) for slot in self.slots(store)] == empty
        assert store.series(3 * MINUTE, MINUTE, tenant=ALL_TENANTS, now=at(60)).since_at == first

    def test_ended_jobs_are_counted_in_their_step(self, store: Store) -> None:
        end(store, waits=1, takes=2)
        end(store, S.FAILED, waits=3, takes=4)
        end(store, S.DEAD_LETTERED, takes=50)
        end(store, S.CANCELLED, takes=50)
        end(store, takes=200)  # after the last step
        end(store, due=at(-600))  # before the first
        _, second, third = self.slots(store)
        assert second[1:5] == (2, 1, 1, 0)
        assert second.times == times((1, 2), (3, 4))
        assert third[1:5] == (2, 0, 1, 1)

    def test_a_step_includes_its_first_instant_only(self, store: Store) -> None:
        minute = T0.replace(second=0, microsecond=0)
        end(store, due=minute)
        end(store, due=minute - timedelta(microseconds=1))
        assert [slot.total for slot in self.slots(store)] == [1, 1, 0]

    def test_a_tenant_sees_only_its_own_series(self, store: Store) -> None:
        end(store, tenant="a", takes=1)
        end(store, S.FAILED, tenant="b", takes=2)
        assert self.slots(store, tenant="b")[1][1:] == (1, 0, 1, 0, times((0, 2)))
        assert self.slots(store, tenant="a")[1][1:] == (1, 1, 0, 0, times((0, 1)))

    def test_the_series_of_a_queue_or_a_task_counts_only_its_jobs(self, store: Store) -> None:
        end(store, task="t", queue="a", takes=1)
        end(store, S.FAILED, task="t", queue="b", takes=2)
        end(store, S.FAILED, task="u", queue="b", tenant="x", takes=4)
        store.fold_ends()
        end(store, task="t", queue="a", takes=8)
        for how, expected in (
            ({"queue": "a"}, (2, 2, 0, 0, times((0, 1), (0, 8)))),
            ({"queue": "b"}, (2, 0, 2, 0, times((0, 2), (0, 4)))),
            ({"task": "t"}, (3, 2, 1, 0, times((0, 1), (0, 2), (0, 8)))),
            ({"task": "t", "queue": "b"}, (1, 0, 1, 0, times((0, 2)))),
            ({"task": "u", "tenant": "x"}, (1, 0, 1, 0, times((0, 4)))),
            ({"task": "u", "tenant": "y"}, (0, 0, 0, 0, NO_TIMES)),
        ):
            assert self.slots(store, **how)[1][1:] == expected

    def test_the_ends_of_each_worker_are_counted_per_step(self, store: Store) -> None:
        end(store, worker=WORKER, tenant="a")
        end(store, S.FAILED, worker=WORKER, tenant="b")
        store.fold_ends()
        end(store, worker=OTHER, tenant="a")
        series = store.series_by(Group.WORKER, 3 * MINUTE, MINUTE, tenant=ALL_TENANTS, now=at(60))
        cells = {name: rows[1] for name, rows in series.groups.items()}
        assert cells == {str(WORKER): (2, 1), str(OTHER): (1, 0)}
        one = store.series_by(Group.WORKER, 3 * MINUTE, MINUTE, tenant="b", now=at(60))
        assert list(one.groups) == [str(WORKER)]

    def test_a_step_is_a_multiple_of_what_the_window_keeps(self, store: Store) -> None:
        end(store)
        series = store.series(24 * HOUR, 10 * MINUTE, tenant=ALL_TENANTS, now=at(60))
        assert (series.step, len(series.slots)) == (15 * MINUTE, 96)
        assert [slot.at.minute for slot in series.slots if slot.total] == [30]

    @pytest.mark.parametrize("step", [timedelta(0), -MINUTE, timedelta(milliseconds=1)])
    def test_invalid_steps_are_refused(self, store: Store, step: timedelta) -> None:
        with pytest.raises(BadFilter):
            store.series(HOUR, step, tenant=ALL_TENANTS, now=T0)


def _cancel(id: UUID, tenant: str) -> Move:
    return Move(id, tenant, frozenset({S.PENDING}), S.CANCELLED, "no longer wanted")
