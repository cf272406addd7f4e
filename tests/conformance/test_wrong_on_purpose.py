"""Tests that the suite and the model detect stores that break one law."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import NamedTuple, cast
from uuid import UUID

import pytest
from tests.conformance.actions import WEIGHTED, Actions
from tests.conformance.conftest import SharedPostgres
from tests.conformance.model import DrawnAction
from tests.conformance.test_model import LEAST_STEPS, OpenStore, run_actions
from tests.grounds import new_file

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish
from tidemill.domain.schedules import Advance
from tidemill.domain.states import JobState
from tidemill.errors import StoreError
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import open_store
from tidemill.stores.sql.named_queries import NamedQuery, load
from tidemill.testing.conformance import StoreConformance
from tidemill.testing.conformance.fences import FENCED
from tidemill.testing.conformance.kit import LATER
from tidemill.testing.conformance.living_leases import expired

Law = Callable[[StoreConformance, Store], None]

STALE_FINISHES: list[Law] = [
    lambda laws, store: laws.test_a_stale_token_writes_nothing_after_a_reclaim(
        store, FENCED["complete"], True
    ),
    lambda laws, store: laws.test_a_stale_token_writes_nothing_after_a_reclaim(store, FENCED["retry"], False),
    lambda laws, store: laws.test_a_wrong_token_writes_nothing(store, FENCED["suspend"], 1),
    lambda laws, store: laws.test_a_token_is_invalid_after_the_job_was_reopened(store),
    lambda laws, store: laws.test_a_batch_finishes_held_jobs_and_returns_lost_ones(store),
]


def foreign(verb: str) -> Law:
    """Return the law that another worker writes nothing by this verb."""
    return lambda laws, store: laws.test_another_worker_with_the_right_token_writes_nothing(
        store, FENCED[verb], True
    )


STRANGERS: list[Law] = [
    lambda laws, store: laws.test_a_tenant_sees_only_its_own_jobs(store, JobState.PENDING),
    lambda laws, store: laws.test_a_tenant_sees_only_its_own_jobs(store, JobState.COMPLETED),
]

STALE_ADVANCES: list[Law] = [
    lambda laws, store: laws.test_a_schedule_does_not_advance_from_another_revision(store, 1),
    lambda laws, store: laws.test_a_schedule_advances_once_from_one_state(store),
    lambda laws, store: laws.test_one_of_two_concurrent_advances_wins(store),
]


class Wrong(NamedTuple):
    """A piece of a query to remove, and the laws that then break."""

    query: str
    piece: str
    laws: Sequence[Law]


TOKEN = r" and (?:\w+\.)?token = (?:\w+\.|:)token"
HOLDER = r" and (?:\w+\.)?worker (?:=|is not distinct from) (?:\w+\.|:)worker"
TENANT = r"\n\s+and \(?tenant = :tenant\)?(?: is true)? -- when tenant"
STOPPED = r"\n\s+and state <> 'stopped'"
LIVING = r" and w\.expires_at > (?:coalesce\([^)]*\(\)\)|:now)"
REVISION = r"(?: and)? (?:\w+\.)?revision = (?:\w+\.|:)revision(?= and)"
LAST_FIRE = r" and s\.last_fire_at is (?:not distinct from )?(?:x\.|:)expected_fire_at"
OWNER = r"d\.enabled and (?=d\.deleted_at)"
CONFLICT = r"\non conflict \(schedule_id, fire_at, scope_key\) do nothing"
ASKED = r"coalesce\(x\.on_cancel, (?=x\.to_state\) end)|(?<=x\.to_state)\)(?= end)"
END = r" and (?:\w+\.)?finished_at = (?:\w+\.|:)finished_at"

WINDOW = r" and s\.begun_at > [^\n]+"
USED = r"used = (?:max|greatest)\([^)]+\), "
GATE = r" and gate = (?:l\.gate|:lane_gate)"
PINNED = r"\(excluded\.pinned or not l\.pinned\)\n\s+and|l\.pinned and not :pinned\n\s+or"

WRONGS = {
    "a claim that ignores the limit set": Wrong(
        "claim",
        GATE,
        [lambda laws, store: laws.test_a_claim_from_a_plain_lane_takes_no_limited_jobs(store)],
    ),
    "a counter that counts nothing": Wrong(
        "count_uses",
        USED,
        [
            lambda laws, store: laws.test_more_limits_are_counted_and_written_to_the_held_job(store),
            lambda laws, store: laws.test_jobs_without_limits_can_be_given_a_limit(store),
        ],
    ),
    "a rate whose window never ends": Wrong(
        "starts",
        WINDOW,
        [
            lambda laws, store: laws.test_a_window_opens_at_the_predicted_time(store),
            lambda laws, store: laws.test_starts_of_a_rate_can_be_queried(store),
        ],
    ),
    "rules that ignore pins": Wrong(
        "put_rules",
        PINNED,
        [
            lambda laws, store: laws.test_only_a_pinned_rule_changes_a_pinned_rule(store),
        ],
    ),
    "a finish that ignores the token": Wrong("finish", TOKEN, STALE_FINISHES),
    "a finish that ignores the worker": Wrong(
        "finish",
        HOLDER,
        [
            *map(foreign, ("complete", "retry", "postpone", "suspend", "review", "step without a claim")),
            lambda laws, store: laws.test_each_finish_of_a_batch_is_checked_against_its_worker(store),
        ],
    ),
    "a start that ignores the worker": Wrong("start", HOLDER, [foreign("start")]),
    "a report that ignores the worker": Wrong("report", HOLDER, [foreign("report")]),
    "a log that ignores the worker": Wrong("log", HOLDER, [foreign("log")]),
    "a finish that ignores a cancel request": Wrong(
        "finish",
        ASKED,
        [
            lambda laws, store: laws.test_a_batch_cancels_only_jobs_with_a_cancel_request(store),
            lambda laws, store: laws.test_a_job_cancelled_at_its_finish_releases_its_key(store, LATER),
            lambda laws, store: laws.test_a_step_with_a_handoff_applies_cancel_requests(store),
        ],
    ),
    "a get that ignores the tenant": Wrong("get", TENANT, STRANGERS),
    "a heartbeat that revives a stopped worker": Wrong(
        "beat",
        STOPPED,
        [lambda laws, store: laws.test_a_worker_declared_gone_is_not_revived(store)],
    ),
    "a claim that ignores the lease": Wrong(
        "claim",
        LIVING,
        [lambda laws, store: laws.test_a_worker_without_a_lease_claims_nothing(store, expired)],
    ),
    "an advance that ignores the revision": Wrong(
        "advance",
        REVISION,
        [
            lambda laws, store: laws.test_a_schedule_does_not_advance_from_another_revision(store, 1),
            lambda laws, store: laws.test_a_schedule_that_was_disabled_and_enabled_does_not_advance(store),
        ],
    ),
    "an advance that ignores the last fire": Wrong(
        "advance",
        LAST_FIRE,
        [
            lambda laws, store: laws.test_a_schedule_advances_once_from_one_state(store),
            lambda laws, store: laws.test_one_of_two_concurrent_advances_wins(store),
            lambda laws, store: laws.test_batches_in_opposite_order_advance_each_schedule_once(store),
        ],
    ),
    "an advance that ignores a disabled definition": Wrong(
        "advance",
        OWNER,
        [lambda laws, store: laws.test_a_schedule_of_a_disabled_definition_does_not_advance(store)],
    ),
    "a forget that ignores the end": Wrong(
        "forget",
        END,
        [lambda laws, store: laws.test_a_job_reopened_and_cancelled_unclaimed_is_not_forgotten(store)],
    ),
}


UNCOUNTED = Wrong(
    "claim_counted",
    r"used = u\.used \+ (?:1|t\.jobs), ",
    [
        lambda laws, store: laws.test_held_jobs_use_up_the_limit(store),
        lambda laws, store: laws.test_a_handoff_claims_as_many_as_were_finished(store),
    ],
)
UNRETURNED = Wrong(
    "step_handoff",
    r"used = greatest\(u\.used - (?:1|b\.jobs), 0\), ",
    [lambda laws, store: laws.test_unused_handoff_slots_are_released(store)],
)
"""Counters that PostgreSQL updates in separate statements."""

UNFENCED = [
    Wrong("step", HOLDER, [foreign("step of a failure")]),
    Wrong("step_done", HOLDER, [foreign("step")]),
    Wrong(
        "step_handoff",
        HOLDER,
        [lambda laws, store: laws.test_a_finish_by_another_worker_hands_off_nothing(store)],
    ),
]
"""Steps that PostgreSQL executes in one statement."""


class IgnoresTokens(MemoryStore):
    """A memory store that accepts any token."""

    def finish(self, finishes: Sequence[Finish], *, now: datetime | None = None) -> frozenset[UUID]:
        jobs = self.get([finish.claim.id for finish in finishes], tenant=ALL_TENANTS)
        tokens = {job.id: job.token for job in jobs}
        claims = [f.claim._replace(token=tokens.get(f.claim.id, f.claim.token)) for f in finishes]
        return super().finish([f._replace(claim=c) for f, c in zip(finishes, claims, strict=True)], now=now)


class AdvancesFromAnywhere(MemoryStore):
    """A memory store that advances a schedule from any state."""

    def advance(self, advances: Sequence[Advance]) -> frozenset[UUID]:
        rows = {row.id: row for row in self.schedules(tenant=ALL_TENANTS)}
        return super().advance(
            [
                item._replace(revision=rows[item.id].revision, expected_fire_at=rows[item.id].last_fire_at)
                for item in advances
            ]
        )


def remove_piece(monkeypatch: pytest.MonkeyPatch, dialect: str, query: str, piece: str) -> None:
    """Remove a piece from a query, which must contain it."""
    queries = cast("dict[str, NamedQuery]", load(dialect))
    body, count = re.subn(piece, "", queries[query].body)
    assert count, f"{dialect}: {query} does not contain {piece}"
    monkeypatch.setitem(queries, query, replace(queries[query], body=body))


def check_detected(wrong: Wrong, dialect: str, fresh: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the laws hold with the complete query, and break without the piece."""
    for law in wrong.laws:
        with fresh() as store:
            law(StoreConformance(), store)
    remove_piece(monkeypatch, dialect, wrong.query, wrong.piece)
    for law in wrong.laws:
        with fresh() as store, pytest.raises(AssertionError):
            law(StoreConformance(), store)


def check_the_model_detects(fresh: OpenStore, oracle: bool) -> None:
    """Check that some sequence of actions on a wrong store breaks the accounts or differs from the oracle."""
    rng = random.Random(7)

    def runs() -> None:
        for _ in range(300):
            sequence = [
                DrawnAction(rng.choice(WEIGHTED), *(rng.randrange(8) for _ in "abc"))
                for _ in range(LEAST_STEPS)
            ]
            with fresh() as store:
                run_actions(Actions(store, MemoryStore() if oracle else None), sequence)

    with pytest.raises(AssertionError):
        runs()


@pytest.fixture
def open_sqlite(tmp_path: Path) -> OpenStore:
    """Return a function that opens new SQLite stores, which read the current queries."""
    names = map(str, count())

    @contextmanager
    def fresh() -> Iterator[Store]:
        store = open_store(new_file(tmp_path, f"{next(names)}.db"))
        try:
            yield store
        finally:
            store.close()

    return fresh


@pytest.fixture
def open_postgres(shared_postgres: SharedPostgres) -> OpenStore:
    """Return a function that opens stores on the emptied PostgreSQL database, which read the current queries."""

    @contextmanager
    def fresh() -> Iterator[Store]:
        shared_postgres.fresh()
        store = shared_postgres.another()
        try:
            yield store
        finally:
            store.close()

    return fresh


@pytest.mark.parametrize("number", range(len(STALE_FINISHES)))
def test_a_memory_store_that_ignores_tokens_is_detected(number: int) -> None:
    law = STALE_FINISHES[number]
    law(StoreConformance(), MemoryStore())
    with pytest.raises(AssertionError):
        law(StoreConformance(), IgnoresTokens())


@pytest.mark.parametrize("number", range(len(STALE_ADVANCES)))
def test_a_memory_store_that_advances_from_anywhere_is_detected(number: int) -> None:
    law = STALE_ADVANCES[number]
    law(StoreConformance(), MemoryStore())
    with pytest.raises(AssertionError):
        law(StoreConformance(), AdvancesFromAnywhere())


def test_sqlite_without_the_fire_conflict_clause_is_detected(
    open_sqlite: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_piece(monkeypatch, "sqlite", "note_fires", CONFLICT)
    with open_sqlite() as store, pytest.raises(StoreError):
        StoreConformance().test_an_existing_fire_is_not_new_and_is_unchanged(store)


def test_postgres_without_the_fire_conflict_clause_is_detected(
    open_postgres: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_piece(monkeypatch, "postgres", "note_fires", CONFLICT)
    with open_postgres() as store, pytest.raises(StoreError):
        StoreConformance().test_an_existing_fire_is_not_new_and_is_unchanged(store)


@pytest.mark.parametrize("name", WRONGS)
def test_sqlite_without_a_guard_is_detected(
    open_sqlite: OpenStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    check_detected(WRONGS[name], "sqlite", open_sqlite, monkeypatch)


@pytest.mark.parametrize("name", WRONGS)
def test_postgres_without_a_guard_is_detected(
    open_postgres: OpenStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    check_detected(WRONGS[name], "postgres", open_postgres, monkeypatch)


def test_the_accounts_detect_a_memory_store_that_ignores_tokens() -> None:
    check_the_model_detects(lambda: nullcontext(IgnoresTokens()), oracle=False)


def test_the_model_detects_sqlite_without_tokens(
    open_sqlite: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_piece(monkeypatch, "sqlite", "finish", TOKEN)
    check_the_model_detects(open_sqlite, oracle=True)


def test_the_model_detects_postgres_without_tokens(
    open_postgres: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_piece(monkeypatch, "postgres", "finish", TOKEN)
    check_the_model_detects(open_postgres, oracle=True)


def test_the_model_detects_sqlite_without_cancel_requests(
    open_sqlite: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_piece(monkeypatch, "sqlite", "finish", ASKED)
    check_the_model_detects(open_sqlite, oracle=False)


def test_the_model_detects_sqlite_without_counters(
    open_sqlite: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_piece(monkeypatch, "sqlite", "count_uses", USED)
    check_the_model_detects(open_sqlite, oracle=False)


def test_no_law_overrides_another() -> None:
    names = [name for part in StoreConformance.__mro__ for name in vars(part) if name.startswith("test_")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("wrong", UNFENCED, ids=lambda wrong: wrong.query)
def test_a_postgres_step_that_ignores_the_worker_is_detected(
    wrong: Wrong, open_postgres: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_detected(wrong, "postgres", open_postgres, monkeypatch)


@pytest.mark.parametrize("wrong", [UNCOUNTED, UNRETURNED], ids=lambda wrong: wrong.query)
def test_a_postgres_statement_without_counters_is_detected(
    wrong: Wrong, open_postgres: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_detected(wrong, "postgres", open_postgres, monkeypatch)
