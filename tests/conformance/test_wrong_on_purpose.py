"""The suite can fail: stores that break one law are found out by the laws named here, and by the model."""

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
from tests.conformance.conftest import Shared
from tests.conformance.rules import WEIGHTED, Rules
from tests.conformance.test_model import LEAST_STEPS, OpenStore, live
from tests.conformance.world import Act
from tests.grounds import new_file

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish
from tidemill.domain.states import JobState
from tidemill.domain.timetable import Advance
from tidemill.errors import StoreError
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import open_store
from tidemill.stores.sql.queries import Query, load
from tidemill.testing.conformance import StoreConformance
from tidemill.testing.conformance.fencing import FENCED
from tidemill.testing.conformance.kit import LATER

Law = Callable[[StoreConformance, Store], None]

STALE_FINISHES: list[Law] = [
    lambda laws, store: laws.test_a_stale_token_writes_nothing_after_a_reclaim(
        store, FENCED["complete"], True
    ),
    lambda laws, store: laws.test_a_stale_token_writes_nothing_after_a_reclaim(store, FENCED["retry"], False),
    lambda laws, store: laws.test_a_token_that_is_not_the_current_one_writes_nothing(
        store, FENCED["suspend"], 1
    ),
    lambda laws, store: laws.test_the_token_of_the_last_life_does_not_hold_in_the_next(store),
    lambda laws, store: laws.test_a_batch_writes_what_holds_and_names_what_is_lost(store),
]
STRANGERS: list[Law] = [
    lambda laws, store: laws.test_a_tenant_sees_its_own_jobs_only(store, JobState.PENDING),
    lambda laws, store: laws.test_a_tenant_sees_its_own_jobs_only(store, JobState.COMPLETED),
]

STALE_ADVANCES: list[Law] = [
    lambda laws, store: laws.test_a_schedule_does_not_advance_from_another_revision(store, 1),
    lambda laws, store: laws.test_a_schedule_does_not_advance_twice_from_one_place(store),
    lambda laws, store: laws.test_of_two_schedulers_that_advance_one_schedule_exactly_one_wins(store),
]


class Wrong(NamedTuple):
    """A piece of a query that is taken out, and the laws that must then be seen broken."""

    query: str
    piece: str
    laws: Sequence[Law]


TOKEN = r" and (?:\w+\.)?token = (?:\w+\.|:)token"
TENANT = r"\n\s+and \(?tenant = :tenant\)?(?: is true)? -- when tenant"
EXPIRY = r" and expires_at > [^\n]+"
REVISION = r"(?: and)? (?:\w+\.)?revision = (?:\w+\.|:)revision(?= and)"
LAST_FIRE = r" and s\.last_fire_at is (?:not distinct from )?(?:x\.|:)expected_fire_at"
OWNER = r"d\.enabled and (?=d\.deleted_at)"
CONFLICT = r"\non conflict \(schedule_id, fire_at, scope_key\) do nothing"
ASKED = r"\s+or r\.cancel_reason is not null and x\.to_state in \([^)]+\)"
END = r" and (?:\w+\.)?finished_at = (?:\w+\.|:)finished_at"

WINDOW = r" and s\.begun_at > [^\n]+"
USED = r"used = (?:max|greatest)\([^)]+\), "
GATE = r" and gate = (?:l\.gate|:lane_gate)"
PINNED = r"\(excluded\.pinned or not l\.pinned\)\n\s+and|l\.pinned and not :pinned\n\s+or"

WRONGS = {
    "a claim that does not look at the gate": Wrong(
        "claim",
        GATE,
        [lambda laws, store: laws.test_a_claim_from_a_lane_leaves_those_behind_its_gates(store)],
    ),
    "a count that counts nothing": Wrong(
        "count_uses",
        USED,
        [
            lambda laws, store: laws.test_more_limits_are_counted_and_written_to_the_held_job(store),
            lambda laws, store: laws.test_jobs_without_limits_can_be_counted_too(store),
        ],
    ),
    "a rate that never forgets": Wrong(
        "starts",
        WINDOW,
        [
            lambda laws, store: laws.test_a_window_opens_when_it_is_said_to(store),
            lambda laws, store: laws.test_what_began_can_be_asked_for(store),
        ],
    ),
    "rules that do not look at pins": Wrong(
        "put_rules",
        PINNED,
        [
            lambda laws, store: laws.test_a_rule_that_was_pinned_is_changed_by_one_that_is_pinned_only(store),
        ],
    ),
    "a finish that does not ask for the token": Wrong("finish", TOKEN, STALE_FINISHES),
    "a finish that forgets a cancel": Wrong(
        "finish",
        ASKED,
        [
            lambda laws, store: laws.test_of_one_batch_only_those_are_cancelled_that_were_asked_to_stop(
                store
            ),
            lambda laws, store: laws.test_a_job_that_is_cancelled_so_lets_its_key_go(store, LATER),
            lambda laws, store: laws.test_a_step_in_which_jobs_take_over_cancels_too(store),
        ],
    ),
    "a get that does not ask for the tenant": Wrong("get", TENANT, STRANGERS),
    "a beat that revives the dead": Wrong(
        "beat",
        EXPIRY,
        [lambda laws, store: laws.test_an_expired_worker_is_not_revived(store)],
    ),
    "an advance that does not ask for the revision": Wrong(
        "advance",
        REVISION,
        [
            lambda laws, store: laws.test_a_schedule_does_not_advance_from_another_revision(store, 1),
            lambda laws, store: laws.test_a_schedule_that_was_disabled_and_enabled_meanwhile_does_not_advance(
                store
            ),
        ],
    ),
    "an advance that does not ask for the last fire": Wrong(
        "advance",
        LAST_FIRE,
        [
            lambda laws, store: laws.test_a_schedule_does_not_advance_twice_from_one_place(store),
            lambda laws, store: laws.test_of_two_schedulers_that_advance_one_schedule_exactly_one_wins(store),
            lambda laws, store: laws.test_batches_in_opposite_order_advance_each_schedule_once(store),
        ],
    ),
    "an advance that does not ask whether the definition is enabled": Wrong(
        "advance",
        OWNER,
        [lambda laws, store: laws.test_a_schedule_of_a_disabled_definition_does_not_advance(store)],
    ),
    "a forget that does not look at the end": Wrong(
        "forget",
        END,
        [
            lambda laws, store: laws.test_a_job_that_was_reopened_and_cancelled_unclaimed_is_not_forgotten(
                store
            )
        ],
    ),
}


UNCOUNTED = Wrong(
    "claim_counted",
    r"used = u\.used \+ (?:1|t\.jobs), ",
    [
        lambda laws, store: laws.test_what_is_held_leaves_less_room(store),
        lambda laws, store: laws.test_as_many_take_over_as_have_ended(store),
    ],
)
UNRETURNED = Wrong(
    "step_inherited",
    r"used = greatest\(u\.used - (?:1|b\.jobs), 0\), ",
    [lambda laws, store: laws.test_what_nobody_takes_over_is_given_back(store)],
)
"""What PostgreSQL counts in statements of its own."""


class Forgetful(MemoryStore):
    """A memory store that takes any token for the current one."""

    def finish(self, finishes: Sequence[Finish], *, now: datetime | None = None) -> frozenset[UUID]:
        jobs = self.get([finish.claim.id for finish in finishes], tenant=ALL_TENANTS)
        tokens = {job.id: job.token for job in jobs}
        claims = [f.claim._replace(token=tokens.get(f.claim.id, f.claim.token)) for f in finishes]
        return super().finish([f._replace(claim=c) for f, c in zip(finishes, claims, strict=True)], now=now)


class Hasty(MemoryStore):
    """A memory store that advances a schedule from anywhere."""

    def advance(self, advances: Sequence[Advance]) -> frozenset[UUID]:
        rows = {row.id: row for row in self.schedules(tenant=ALL_TENANTS)}
        return super().advance(
            [
                item._replace(revision=rows[item.id].revision, expected_fire_at=rows[item.id].last_fire_at)
                for item in advances
            ]
        )


def take_out(monkeypatch: pytest.MonkeyPatch, dialect: str, query: str, piece: str) -> None:
    """Load the query without this piece from now on; the piece must be in it."""
    queries = cast("dict[str, Query]", load(dialect))
    body, found = re.subn(piece, "", queries[query].body)
    assert found, f"{dialect}: {query} holds no {piece}"
    monkeypatch.setitem(queries, query, replace(queries[query], body=body))


def found_out(wrong: Wrong, dialect: str, fresh: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws hold as long as the query is whole, and are seen broken once the piece is missing."""
    for law in wrong.laws:
        with fresh() as store:
            law(StoreConformance(), store)
    take_out(monkeypatch, dialect, wrong.query, wrong.piece)
    for law in wrong.laws:
        with fresh() as store, pytest.raises(AssertionError):
            law(StoreConformance(), store)


def the_model_finds_out(fresh: OpenStore, oracle: bool) -> None:
    """Some life on a wrong store breaks the accounts or differs from the oracle's."""
    dice = random.Random(7)

    def lives() -> None:
        for _ in range(300):
            life = [
                Act(dice.choice(WEIGHTED), *(dice.randrange(8) for _ in "abc")) for _ in range(LEAST_STEPS)
            ]
            with fresh() as store:
                live(Rules(store, MemoryStore() if oracle else None), life)

    with pytest.raises(AssertionError):
        lives()


@pytest.fixture
def sqlite(tmp_path: Path) -> OpenStore:
    """Opens new SQLite stores, which read their queries then."""
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
def postgres_again(shared_postgres: Shared) -> OpenStore:
    """Opens further stores on the emptied PostgreSQL database, which read their queries then."""

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
def test_a_memory_store_that_ignores_the_token_is_found_out(number: int) -> None:
    law = STALE_FINISHES[number]
    law(StoreConformance(), MemoryStore())
    with pytest.raises(AssertionError):
        law(StoreConformance(), Forgetful())


@pytest.mark.parametrize("number", range(len(STALE_ADVANCES)))
def test_a_memory_store_that_advances_from_anywhere_is_found_out(number: int) -> None:
    law = STALE_ADVANCES[number]
    law(StoreConformance(), MemoryStore())
    with pytest.raises(AssertionError):
        law(StoreConformance(), Hasty())


def test_a_sqlite_store_that_does_not_expect_a_known_fire_is_found_out(
    sqlite: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "sqlite", "note_fires", CONFLICT)
    with sqlite() as store, pytest.raises(StoreError):
        StoreConformance().test_a_fire_that_is_there_is_not_new_and_stays_as_it_was(store)


def test_a_postgresql_store_that_does_not_expect_a_known_fire_is_found_out(
    postgres_again: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "postgres", "note_fires", CONFLICT)
    with postgres_again() as store, pytest.raises(StoreError):
        StoreConformance().test_a_fire_that_is_there_is_not_new_and_stays_as_it_was(store)


@pytest.mark.parametrize("name", WRONGS)
def test_a_sqlite_store_with_a_piece_of_a_query_missing_is_found_out(
    sqlite: OpenStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    found_out(WRONGS[name], "sqlite", sqlite, monkeypatch)


@pytest.mark.parametrize("name", WRONGS)
def test_a_postgresql_store_with_a_piece_of_a_query_missing_is_found_out(
    postgres_again: OpenStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    found_out(WRONGS[name], "postgres", postgres_again, monkeypatch)


def test_the_accounts_find_out_a_memory_store_that_ignores_the_token() -> None:
    the_model_finds_out(lambda: nullcontext(Forgetful()), oracle=False)


def test_the_model_finds_out_a_sqlite_store_that_ignores_the_token(
    sqlite: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "sqlite", "finish", TOKEN)
    the_model_finds_out(sqlite, oracle=True)


def test_the_model_finds_out_a_postgresql_store_that_ignores_the_token(
    postgres_again: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "postgres", "finish", TOKEN)
    the_model_finds_out(postgres_again, oracle=True)


def test_the_model_finds_out_a_sqlite_store_that_forgets_a_cancel(
    sqlite: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "sqlite", "finish", ASKED)
    the_model_finds_out(sqlite, oracle=False)


def test_the_model_finds_out_a_sqlite_store_that_counts_nothing(
    sqlite: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "sqlite", "count_uses", USED)
    the_model_finds_out(sqlite, oracle=False)


def test_no_law_hides_another_of_the_same_name() -> None:
    names = [name for part in StoreConformance.__mro__ for name in vars(part) if name.startswith("test_")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("wrong", [UNCOUNTED, UNRETURNED], ids=lambda wrong: wrong.query)
def test_a_statement_that_counts_nothing_is_found_out(
    wrong: Wrong, postgres_again: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_out(wrong, "postgres", postgres_again, monkeypatch)
