"""Tests of one search over all tiers, and of restoring, exporting and erasing archived jobs."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from backports import zstd
from tests.archive.archive_kit import ended_jobs

from tidemill import App, PermanentError
from tidemill.archive.tiers import read_tiers
from tidemill.client.core import client_of
from tidemill.client.jobs.handle import Job
from tidemill.domain.retention import ArchivePolicy
from tidemill.errors import BadFilter, IllegalTransition, JobNotFound

TIERS = (None, "warm", "cold")


@pytest.fixture
def tiered(app: App) -> dict[str | None, list[Job[Any]]]:
    """Jobs in the live tables, in a table tier and in a file tier, mixed by the order of their ids."""
    jobs = [
        job
        for number in range(9)
        for job in ended_jobs(
            app,
            1,
            correlation_id="trail",
            tags=[f"n{number % 3}"],
            metadata={"n": number},
            reference=("n", str(number)),
        )
    ]
    by_tier = {tier: jobs[at::3] for at, tier in enumerate(TIERS)}
    for tier, to in (("warm", "default"), ("cold", "archive")):
        ids = [str(job.id) for job in by_tier[tier]]
        documents = [
            document
            for document in app.store.archivable(_everything(), policy="p", tier=tier)
            if str(document.id) in ids
        ]
        client_of(app).place(to).put(documents)
        assert len(app.store.forget(documents)) == 3
    return by_tier


def _everything() -> Any:
    from tidemill.domain.retention import Selection, Selector

    return Selection(Selector(), limit=1000)


def test_every_tier_is_found_by_id(app: App, tiered: dict[str | None, list[Job[Any]]]) -> None:
    for tier, jobs in tiered.items():
        job = app.jobs.get(jobs[0].id)
        assert (job.tier, job.value, len(job.executions())) == (tier, "TEXT 0", 1)
        with pytest.raises(JobNotFound):
            app.jobs.get(jobs[0].id, tenant="other")


@pytest.mark.parametrize("sort", ["newest", "oldest"])
def test_one_list_merges_all_tiers_by_id(
    app: App, tiered: dict[str | None, list[Job[Any]]], sort: str
) -> None:
    ids = sorted((job.id for jobs in tiered.values() for job in jobs), reverse=sort == "newest")
    assert [job.id for job in app.jobs.stream(batch=2, sort=sort, tiers="all")] == ids
    assert {job.tier for job in app.jobs.list().items} == {None}
    assert {job.tier for job in app.jobs.list(tiers="tables").items} == {None, "warm"}
    assert {job.tier for job in app.jobs.list(tiers=["live", "cold"]).items} == {None, "cold"}
    assert {job.tier for job in app.jobs.list(tiers="cold").items} == {"cold"}
    assert app.jobs.list(tiers="none").items == []


def test_a_trail_and_the_contents_of_documents_are_searched_in_all_tiers(
    app: App, tiered: dict[str | None, list[Job[Any]]]
) -> None:
    assert len(app.jobs.list(correlation_id="trail", tiers="all").items) == 9
    for tier, jobs in tiered.items():
        number = jobs[1].metadata["n"]
        for where in ({"metadata": {"n": number}}, {"reference": ("n", str(number))}):
            (found,) = app.jobs.list(tiers="all", **where).items
            assert (found.id, found.tier) == (jobs[1].id, tier)
    assert len(app.jobs.list(tag="n1", tiers="all").items) == 3
    assert len(app.jobs.list(text="N1", tiers="all").items) == 3
    assert len(app.archive.search(tag="n1").items) == 3
    with pytest.raises(BadFilter):
        app.jobs.list(tiers=[])


def test_a_job_in_two_tiers_is_listed_once(app: App, tiered: dict[str | None, list[Job[Any]]]) -> None:
    job = tiered["cold"][0]
    assert app.archive.restore([job.id]).restored == [job.id]
    assert [row.tier for row in app.jobs.list(ids=[job.id], tiers="all").items] == [None]
    assert app.jobs.get(job.id).tier is None


def test_restored_jobs_are_live_again_and_audited(app: App, tiered: dict[str | None, list[Job[Any]]]) -> None:
    warm, cold, live = tiered["warm"][0], tiered["cold"][0], tiered[None][0]
    missing = "01890a5d-ac96-774b-bcce-b302099a8057"
    done = app.archive.restore([warm.id, str(cold.id), live.id, missing])
    assert (set(done.restored), done.live) == ({warm.id, cold.id}, [live.id])
    assert [str(id) for id in done.missing] == [missing]
    for job in (warm, cold):
        again = app.jobs.get(job.id)
        assert (again.tier, again.value, len(again.executions())) == (None, "TEXT 0", 1)
    (entry,) = [row.entry for row in app.audit.list() if row.entry.action == "jobs.restored"]
    assert entry.after is not None
    assert (entry.after["done"], entry.after["tiers"]) == (2, ["cold", "warm"])
    assert app.archive.restore([tiered["cold"][1].id], tenant="other").missing == [tiered["cold"][1].id]


def test_a_restored_job_can_be_retried_at_once(app: App) -> None:
    outcomes = iter([False, True])

    @app.task(name="flaky")
    def flaky() -> str:
        if not next(outcomes):
            raise PermanentError("not yet")
        return "done"

    job, completed = flaky.enqueue(), ended_jobs(app, 1)[0]
    assert app.archive.run(older_than=0).archived == 2
    with pytest.raises(IllegalTransition, match="restore it first"):
        app.jobs.get(job.id).retry()
    done = app.archive.restore([job.id, completed.id], retry=True)
    assert (set(done.restored), done.retried) == ({job.id, completed.id}, [job.id])
    assert app.testing().drain().processed == 1
    again = app.jobs.get(job.id)
    assert (again.value, again.tier, len(again.executions())) == ("done", None, 2)
    assert app.archive.run(older_than=0).archived == 2
    (copy,) = app.archive.search(ids=[job.id]).items
    assert (copy.state.value, len(app.jobs.get(job.id).executions())) == ("completed", 2)


def test_archived_jobs_are_exported(
    app: App, tiered: dict[str | None, list[Job[Any]]], tmp_path: Path
) -> None:
    from pyarrow import parquet

    assert app.archive.export(tmp_path / "all.jsonl") == 6
    rows = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == sorted(
        str(job.id) for tier in ("warm", "cold") for job in tiered[tier]
    )
    assert app.archive.export(str(tmp_path / "cold.parquet"), format="parquet", tiers=["cold"]) == 3
    assert parquet.read_table(tmp_path / "cold.parquet")["tier"].to_pylist() == ["cold"] * 3


def _bytes_with(app: App, url: str, folder: Path, canary: str) -> list[str]:
    """The tables and files that still contain a text."""
    found = []
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        found += [
            name
            for name in (path, f"{path}-wal")
            if Path(name).exists() and canary.encode() in Path(name).read_bytes()
        ]
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    elif url.startswith("postgres"):
        with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
            tables = connection.execute(
                "select c.oid::regclass::text from pg_class c where relnamespace = 'tidemill'::regnamespace and relkind = 'r'"
            ).fetchall()
            for (table,) in tables:
                query = f"select 1 from {table} t where t::text like %s limit 1"
                if connection.execute(query.encode(), (f"%{canary}%",)).fetchone():
                    found.append(table)
    for file in folder.rglob("*.zst"):
        if canary.encode() in zstd.decompress(file.read_bytes()):
            found.append(str(file))
    return found


@pytest.mark.parametrize("by", ["ids", "reference", "metadata", "tenant"])
def test_an_erased_job_leaves_no_trace_in_any_tier(app: App, jobs_url: str, tmp_path: Path, by: str) -> None:
    canary = "zebra-crossing-77"

    @app.task(name="secret")
    def secret(text: str) -> str:
        return text

    def enqueue(tenant: str, name: str) -> Job[Any]:
        task = secret.using(tenant=tenant, metadata={"who": name}, reference=("user", name), tags=[name])
        return task.enqueue(text=name)

    victims, others = [], []
    for target in ("default", "archive", None):
        victims.append(enqueue("acme", canary))
        others.append(enqueue("other", "someone"))
        app.testing().drain()
        if target is not None:
            policy = ArchivePolicy(target, max_age=0, to=target, tier=f"in {target}")
            assert app.archive.run([policy]).archived == 2
    conditions: dict[str, dict[str, Any]] = {
        "ids": {"ids": [job.id for job in victims], "tenant": "*"},
        "reference": {"reference": ("user", canary), "tenant": "*"},
        "metadata": {"metadata": {"who": canary}, "tenant": "*"},
        "tenant": {"tenant": "acme"},
    }
    where = conditions[by]
    planned = app.archive.erase(dry_run=True, **where)
    assert (planned.jobs, planned.dry_run) == (3, True)
    assert planned.tiers == {"live": 1, "in default": 1, "in archive": 1}
    assert jobs_url.startswith("memory") or _bytes_with(app, jobs_url, tmp_path / "archive", canary)
    done = app.archive.erase(**where)
    assert (done.jobs, done.tiers) == (3, planned.tiers)
    assert _bytes_with(app, jobs_url, tmp_path / "archive", canary) == []
    for job in victims:
        with pytest.raises(JobNotFound):
            app.jobs.get(job.id, tenant="acme")
    for job in others:
        assert app.jobs.get(job.id, tenant="other").value == "someone"
    (entry,) = [row.entry for row in app.audit.list(tenant="*") if row.entry.action == "jobs.erased"]
    assert entry.after is not None
    assert entry.after["done"] == 3
    assert canary not in json.dumps(dict(entry.after))
    assert app.archive.erase(**where).jobs == 0


def test_the_same_erasure_again_completes_one_that_died_before_it_overwrote_free_pages(
    app: App, jobs_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "zebra-crossing-78"
    job = app.task(name="secret")(lambda text: text).enqueue(text=canary)
    app.testing().drain()

    def die() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(app.store, "scrub", die)
        with pytest.raises(KeyboardInterrupt):
            app.archive.erase(ids=[job.id])
    assert bool(_bytes_with(app, jobs_url, tmp_path, canary)) is jobs_url.startswith("sqlite")
    assert app.archive.erase(ids=[job.id]).jobs == 0
    assert _bytes_with(app, jobs_url, tmp_path, canary) == []


def test_a_job_that_has_not_ended_is_not_erased(app: App) -> None:
    jobs = ended_jobs(app, 1)
    waiting = app.bound_task("note").using(delay="1h").enqueue(text="later")
    ids = [jobs[0].id, waiting.id]
    with pytest.raises(IllegalTransition, match="cancel it first"):
        app.archive.erase(ids=ids)
    assert app.jobs.count() == 2
    waiting.cancel()
    assert app.archive.erase(ids=ids).jobs == 2


@pytest.mark.parametrize("where", [{}, {"tenant": "*"}, {"ids": []}, {"metadata": {}}])
def test_an_erasure_needs_a_condition(app: App, where: dict[str, Any]) -> None:
    ended_jobs(app, 1)
    with pytest.raises(BadFilter):
        app.archive.erase(**where)
    assert app.jobs.count() == 1


def test_a_choice_of_tiers_is_read() -> None:
    assert read_tiers(None) == read_tiers("live")
    assert read_tiers(["all"]) == read_tiers("all")
    for wrong in ([], [""], ["tables", "warm"]):
        with pytest.raises(BadFilter):
            read_tiers(wrong)
