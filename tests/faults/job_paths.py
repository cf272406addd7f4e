"""The write paths of jobs: producers, workers, duties and operators."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import psycopg
from tests.faults.failpoints import Failpoint, Failpoints
from tests.faults.write_paths import LARGE, path

from tidemill import App
from tidemill.client.access import acting
from tidemill.client.own_connection import enqueue_on
from tidemill.clock import ManualClock, SystemClock
from tidemill.domain.archive_files import Manifest
from tidemill.domain.deals import Ask, DealRequest
from tidemill.domain.decide import COMPLETED, Policy
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import (
    StepRecord,
)
from tidemill.domain.job import Checkpoint, Claim, Finish, Progress, ProgressReport, UniqueHold
from tidemill.domain.limits import Rule
from tidemill.domain.retention import ArchivePolicy, Selection, Selector
from tidemill.domain.retry import Immediate
from tidemill.domain.states import JobState
from tidemill.engine.duties import CancelExpired, DropEnded, Expire, Promote, Reclaim
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.testing.conformance.archive_files import a_manifest
from tidemill.testing.conformance.kit import (
    HOUR,
    RELEASED,
    SECOND,
    T0,
    WORKER,
    a_job,
    a_line,
    asks,
    at,
    bring,
    claim_all,
    due,
    finish_all,
    held,
    hire,
    ordered_lanes,
    put,
    put_one,
    retry,
    wants,
)

OLD = ArchivePolicy("old", max_age=SECOND)
NARROW = {"narrow": Rule("narrow", max=5)}


def some_jobs(store: Store, count: int = 3, **fields: Any) -> list[Any]:
    """Enqueue pending jobs and register a worker; return their ids."""
    hire(store, WORKER)
    return put(store, *(a_job(**fields) for _ in range(count)))


def claimed_jobs(store: Store, count: int = 2, **fields: Any) -> list[Claim]:
    """Claim jobs with a registered worker."""
    some_jobs(store, count, **fields)
    return claim_all(store)


def completed(claims: Sequence[Claim]) -> list[Finish]:
    """Return the successful finishes of these claims."""
    return [Finish(claim, COMPLETED, result="1") for claim in claims]


def nothing(_store: Store) -> None:
    """Arrange nothing."""


def policy_of(_claim: Claim, _details: object) -> Any:
    """Retry at once, so that no test has to wait."""
    return Policy(retry=Immediate())


# Enqueueing --------------------------------------------------------------------------------------------------------------

path("enqueue", "enqueue", lambda _: a_job(), lambda store, job: store.enqueue([job], now=T0))
path(
    "enqueue a batch",
    "enqueue",
    lambda _: [a_job() for _ in range(4)],
    lambda store, jobs: store.enqueue(jobs, now=T0),
)
path(
    "enqueue jobs of every kind",
    "enqueue",
    lambda _: [
        a_job(delay=HOUR), a_job(unique=UniqueHold("k")), a_job(unique=UniqueHold("k")), a_job(limits=("narrow",)),
        a_job(waiting="for a parent"),
    ],
    lambda store, jobs: store.enqueue(jobs, now=T0),
)  # fmt: skip


def _in_users_transaction(store: Store, job: Any, points: Failpoints) -> None:
    plain = open_store(store.url)
    try:
        with closing(_connection(store.url)) as connection:
            points.reach(Failpoint.BEFORE, "")
            enqueue_on(connection, plain, [job])
            points.reach(Failpoint.WITHIN, "enqueue")
            connection.commit()
            points.reach(Failpoint.AFTER, "")
    finally:
        plain.close()


def _connection(url: str) -> Any:
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0])
    return psycopg.connect(url.partition("?")[0])


path(
    "enqueue in a user's transaction",
    "enqueue",
    lambda _: a_job(),
    lambda store, job: _in_users_transaction(store, job, Failpoints()),
    by_hand=_in_users_transaction,
)

# Workers -----------------------------------------------------------------------------------------------------------------

path("claim", "claim", some_jobs, lambda store, _: store.claim(wants(store), now=T0))
path(
    "claim limited jobs",
    "claim",
    lambda store: some_jobs(store, limits=("narrow",)),
    lambda store, _: store.claim(wants(store)._replace(rules=NARROW, lanes=_limited_lanes(store)), now=T0),
)
path(
    "start",
    "start",
    lambda store: (some_jobs(store), claim_all(store, start=False))[1],
    lambda store, claims: store.start(claims, now=T0),
    fenced=True,
)
path(
    "report progress",
    "report",
    claimed_jobs,
    lambda store, claims: store.report(
        [ProgressReport(c.id, c.token, c.worker, Progress(0.5)) for c in claims], now=T0
    ),
    fenced=True,
)
path(
    "log",
    "log",
    claimed_jobs,
    lambda store, claims: store.log([a_line(claim, "half way") for claim in claims]),
    fenced=True,
    repeats="a line is written at least once",
)
path(
    "save checkpoints",
    "save_checkpoints",
    claimed_jobs,
    lambda store, claims: store.save_checkpoints(
        [Checkpoint(claim.id, claim.token, claim.worker, "at", "5") for claim in claims], now=T0
    ),
    fenced=True,
)
path(
    "record steps",
    "record_steps",
    claimed_jobs,
    lambda store, claims: store.record_steps(
        [StepRecord(claim.id, claim.token, claim.worker, "step/a", "5") for claim in claims], now=T0
    ),
    fenced=True,
)
path(
    "finish",
    "finish",
    claimed_jobs,
    lambda store, claims: store.finish(completed(claims), now=T0),
    fenced=True,
)
path(
    "release",
    "finish",
    claimed_jobs,
    lambda store, claims: store.finish([Finish(claim, RELEASED) for claim in claims], now=T0),
    fenced=True,
)
path(
    "finish with follow-up jobs",
    "finish",
    lambda store: [
        item._replace(then=(a_job("next"), a_job(delay=HOUR))) for item in completed(claimed_jobs(store))
    ],
    lambda store, finishes: store.finish(finishes, now=T0),
    fenced=True,
)
path(
    "finish limited jobs",
    "finish",
    lambda store: (some_jobs(store, limits=("narrow",)), _claim_limited(store))[1],
    lambda store, claims: store.finish(completed(claims), now=T0),
    fenced=True,
)


def _limited_lanes(store: Store) -> list[Any]:
    return [lane._replace(limits=("narrow",)) for lane in ordered_lanes(store)]


def _claim_limited(store: Store, limit: int = 100) -> list[Claim]:
    return store.claim(asks(store, WORKER, _limited_lanes(store), limit, rules=NARROW), now=T0)


def _one_claimed(store: Store) -> list[Claim]:
    claims = claimed_jobs(store, 1)
    some_jobs(store, 1)
    return claims


path(
    "step",
    "step",
    _one_claimed,
    lambda store, claims: store.step(completed(claims), wants(store), now=T0),
    fenced=True,
)
path(
    "step with a released job",
    "step",
    _one_claimed,
    lambda store, claims: store.step(
        [Finish(claim, RELEASED) for claim in claims], wants(store, limit=1), now=T0
    ),
    repeats="a repeated step claims the released job",
)
path(
    "step of limited jobs",
    "step",
    lambda store: (some_jobs(store, 2, limits=("narrow",)), _claim_limited(store, 1))[1],
    lambda store, claims: store.step(
        completed(claims), asks(store, WORKER, _limited_lanes(store), 1, rules=NARROW), now=T0
    ),
    fenced=True,
)


def _dealt(store: Store, claims: Sequence[Claim]) -> object:
    return store.deal(completed(claims), DealRequest([Ask(WORKER, 2)], ordered_lanes(store)), now=T0)


path("deal", "deal", _one_claimed, _dealt, fenced=True)

# Duties ------------------------------------------------------------------------------------------------------------------

path(
    "promote",
    "promote",
    lambda store: put(store, *(a_job(delay=SECOND) for _ in range(3))),
    lambda store, _: Promote(store)(),
)
path(
    "reclaim",
    "finish",
    lambda store: (claimed_jobs(store), store.retire([WORKER], now=T0))[1],
    lambda store, _: Reclaim(store, SystemClock(), policy_of, Random(1))(),
)
path(
    "reclaim from a worker seen dying",
    "retire finish",
    claimed_jobs,
    lambda store, _: Reclaim(store, SystemClock(), policy_of, Random(1)).now([WORKER]),
    commits=2,
)


def _expire(store: Store) -> None:
    """Run the duty twice with the job's timeout in between, because the first run only observes."""
    clock = ManualClock(SystemClock().now())
    duty = Expire(store, clock, policy_of, Random(1), margin=timedelta(0))
    duty()
    clock.advance(SECOND)
    duty()


path(
    "expire",
    "finish",
    lambda store: claimed_jobs(store, timeout=SECOND),
    lambda store, _: _expire(store),
)
path(
    "cancel expired jobs",
    "move",
    lambda store: some_jobs(store, expires_at=at(10)),
    lambda store, _: CancelExpired(store)(),
)


def _ended(store: Store) -> None:
    """End two jobs, one of them with a large value."""
    some_jobs(store, 1, id=LARGE.job_id)
    store.put_blob(LARGE, ["a", "b"], now=T0)
    finish_all(store, claimed_jobs(store, 1))


path("retention", "forget drop_blobs", _ended, lambda store, _: DropEnded(store, [OLD])())


def _archive(store: Store, _: Any) -> None:
    documents = due(store, OLD, at(60))
    store.put_archive(documents, now=at(60))
    copies = {copy.id: copy for copy in store.archived([d.id for d in documents], tenant=ALL_TENANTS)}
    store.forget([document for document in documents if copies[document.id].sound])


def _archived(store: Store) -> list[UUID]:
    _ended(store)
    _archive(store, None)
    return _archived_ids(store)


def _archived_ids(store: Store) -> list[UUID]:
    return [copy.id for copy in store.archived_due(Selection(Selector(), OLD.tier))]


path("archive", "put_archive forget", _ended, _archive, commits=2)


def _remove_archived(store: Store) -> None:
    store.remove_archived(store.archived_due(Selection(Selector(), OLD.tier)))


def _removed(store: Store) -> None:
    _archived(store)
    _remove_archived(store)


path(
    "remove archived jobs",
    "remove_archived",
    _archived,
    lambda store, _: _remove_archived(store),
)
path(
    "release the blobs of removed jobs",
    "release_blobs",
    _removed,
    lambda store, _: store.release_blobs([LARGE.job_id]),
)


def _a_file() -> Manifest:
    return a_manifest([new_id(), new_id()], [new_id()])


def _catalogued(store: Store) -> Manifest:
    manifest = _a_file()
    store.add_archive_file(manifest)
    return manifest


path(
    "catalogue an archive file",
    "add_archive_file",
    lambda _: _a_file(),
    lambda store, manifest: store.add_archive_file(manifest),
)
path(
    "replace an archive file",
    "add_archive_file remove_archive_files",
    lambda store: a_manifest([new_id()], replaces=(_catalogued(store).file.id,)),
    lambda store, manifest: store.add_archive_file(manifest),
)
path(
    "remove an archive file",
    "remove_archive_files",
    lambda store: _catalogued(store).file.id,
    lambda store, file: store.remove_archive_files([file]),
)

# Operators ---------------------------------------------------------------------------------------------------------------


def _as_operator(store: Store, act: Any) -> None:
    """Act through the app, with an audit entry."""
    app = App(store)
    with acting("ann"):
        act(app)


path(
    "cancel a pending job",
    "move record",
    put_one,
    lambda store, id: _as_operator(store, lambda app: app.jobs.get(id).cancel("no more")),
)
path(
    "give a job that waits another queue",
    "change record",
    put_one,
    lambda store, id: _as_operator(store, lambda app: app.jobs.get(id).change(queue="fast", priority=5)),
    repeats="every operator action is audited",
)
path(
    "request the cancellation of a held job",
    "request_cancel record",
    lambda store: claimed_jobs(store, 1)[0].id,
    lambda store, id: _as_operator(store, lambda app: app.jobs.get(id).cancel("no more")),
    repeats="every operator action is audited",
)
path(
    "retry a failed job",
    "move record",
    lambda store: bring(store, JobState.FAILED).id,
    lambda store, id: _as_operator(store, lambda app: app.jobs.get(id).retry()),
)
path(
    "retry a job with a unique key",
    "move",
    lambda store: bring(store, JobState.FAILED, unique=UniqueHold("k")),
    lambda store, job: store.move([retry(job)], now=T0),
)
path(
    "delete",
    "delete record",
    lambda store: bring(store, JobState.COMPLETED).id,
    lambda store, id: _as_operator(store, lambda app: app.jobs.get(id).delete()),
)
path(
    "cancel many",
    "move record",
    lambda store: some_jobs(store, task="many"),
    lambda store, _: _as_operator(store, lambda app: app.jobs.cancel(task="many")),
    repeats="every operator action is audited",
)
path(
    "release a held job",
    "finish",
    lambda store: [held(bring(store, JobState.RUNNING))],
    lambda store, claims: store.finish([Finish(claim, RELEASED) for claim in claims], now=T0),
    fenced=True,
)


def _archived_after_a_release(store: Store) -> list[UUID]:
    """Archive jobs with a line in the log, one of them with an earlier execution."""
    some_jobs(store, 1, id=LARGE.job_id)
    store.put_blob(LARGE, ["a", "b"], now=T0)
    finish_all(store, claim_all(store), RELEASED)
    claims = claimed_jobs(store, 1)
    store.log([a_line(claim, "half way") for claim in claims])
    finish_all(store, claims)
    _archive(store, None)
    return _archived_ids(store)


path(
    "restore archived jobs",
    "restore release_blobs record",
    _archived_after_a_release,
    lambda store, ids: _as_operator(store, lambda app: app.archive.restore(ids)),
)
path(
    "erase live and archived jobs",
    "delete erase_archived drop_blobs record scrub",
    lambda store: [*_archived(store), bring(store, JobState.COMPLETED).id],
    lambda store, ids: _as_operator(store, lambda app: app.archive.erase(ids=ids)),
)
