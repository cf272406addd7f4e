"""Archived flows: they leave as one, and are found and drawn from the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.grounds import url_of

from tidemill import App, ArchivePolicy, ManualClock, NoRetry, each
from tidemill.archive.flows import flow_document
from tidemill.client.flows.run import FlowRun
from tidemill.domain.filters import ALL_TENANTS
from tidemill.engine.duties.removal import DropEnded
from tidemill.errors import FlowNotFound, IllegalTransition, PermanentError

SOON = ArchivePolicy("soon", max_age="1d", batch=2)


class World:
    """An app whose flows end at once."""

    def __init__(self, url: str, archive: str | None = None) -> None:
        self.clock = ManualClock()
        stores = {"default": url} | ({} if archive is None else {"archive": archive})
        self.app = App(stores=stores, clock=self.clock, migrate=True)

        @self.app.task
        def work(value: int = 1) -> int:
            return value

        @self.app.task(retry=NoRetry())
        def broken() -> None:
            raise PermanentError("no")

        @self.app.task
        def total(parts: list[int]) -> int:
            return sum(parts)

        self.work, self.broken, self.total = work, broken, total

    def started(self) -> FlowRun:
        flow = self.app.flow("import", key="k")
        first = flow.add(self.work, 1).named("first")
        items = flow.map(self.work, value=each([1, 2, 3])).after(first).named("items")
        flow.returns(flow.add(self.total, parts=items.results).named("sum").result)
        return flow.start()

    def ended(self) -> FlowRun:
        run = self.started()
        self.app.testing().drain()
        return run.refresh()

    def archived(self, *policies: ArchivePolicy, limit: int = 5_000) -> None:
        self.clock.advance(timedelta(days=2))
        self.app.archive.run([*policies] or [SOON], limit=limit)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    world = World(url_of(request.param, tmp_path, request))
    yield world
    world.app.close()


def live_rows(world: World, run: FlowRun) -> int:
    store = world.app.store
    jobs = store.flow_jobs(run.id, tenant=ALL_TENANTS)
    ids = [node.id for node in run.nodes()]
    return len(jobs) + len(store.flow([run.id], tenant=ALL_TENANTS)) + len(store.edges_of([run.id, *ids]))


def test_an_ended_flow_leaves_with_its_jobs_and_is_drawn_from_the_archive(world: World) -> None:
    run = world.ended()
    before, counts = run.graph(), run.counts()
    world.archived()
    assert live_rows(world, run) == 0
    assert world.app.store.joins_of([run.id, *(node.id for node in run.nodes())]) == []
    found = world.app.flows.get(run.id)
    assert (found.status, found.archived_at is not None, found.row.tier) == ("completed", True, "archive")
    assert found.graph() == before
    assert (found.counts(), found.progress, found.result()) == (counts, 1.0, 6)
    assert [node.name for node in found.nodes()] == [node.name for node in run.nodes()]


def test_nothing_of_a_live_flow_is_archived(world: World) -> None:
    run = world.started()
    world.app.testing().drain(limit=1)
    world.archived()
    assert [node.job.row.archived_at for node in run.nodes()] == [None] * len(run.nodes())
    world.app.testing().drain()
    assert run.result() == 6


def test_a_job_of_an_ended_flow_waits_for_the_end_of_the_flow_and_not_for_its_own(world: World) -> None:
    run = world.started()
    world.app.testing().drain(limit=1)
    world.clock.advance(timedelta(hours=23))
    world.app.testing().drain()
    world.clock.advance(timedelta(hours=2))
    world.app.archive.run([SOON])
    assert run.node("first").job.refresh().row.archived_at is None
    choice = world.app.archive.explain(run.node("first").id)
    assert choice.ended_at == run.refresh().row.ended_at
    world.clock.advance(timedelta(hours=23))
    world.app.archive.run([SOON])
    assert run.node("first").job.row.archived_at is not None


def test_a_run_that_stops_in_the_middle_of_a_flow_leaves_one_that_can_be_read(world: World) -> None:
    run = world.ended()
    before = run.graph()
    world.archived(limit=2)
    assert 0 < len(world.app.store.flow_jobs(run.id, tenant=ALL_TENANTS)) < len(run.nodes())
    assert world.app.flows.get(run.id).graph() == before
    with pytest.raises(IllegalTransition, match="archived"):
        world.app.flows.get(run.id).retry()
    world.app.archive.run([SOON])
    assert live_rows(world, run) == 0
    assert world.app.flows.get(run.id).graph() == before


def test_archived_flows_are_listed_on_request_and_their_key_is_free(world: World) -> None:
    run = world.ended()
    world.archived()
    again = world.started()
    assert again.id != run.id
    assert [item.id for item in world.app.flows.list()] == [again.id]
    both = world.app.flows.list(archived=True)
    assert [item.id for item in both] == [again.id, run.id]
    assert both[1].counts().total == len(run.nodes())
    assert [item.id for item in world.app.flows.list(archived=True, after=again.id, name="import")] == [
        run.id
    ]
    assert world.app.flows.list(archived=True, status="failed") == []


def test_an_archived_flow_is_not_changed(world: World) -> None:
    flow = world.app.flow("bad")
    flow.add(world.broken).named("one")
    run = flow.start()
    world.app.testing().drain()
    assert run.status == "failed"
    world.archived()
    acts: list[Callable[[], object]] = [run.retry, run.cancel, lambda: run.skip("one")]
    for act in acts:
        with pytest.raises(IllegalTransition, match="it is archived; start it again"):
            act()


def test_a_flow_that_runs_again_before_its_jobs_have_left_is_not_archived(world: World) -> None:
    flow = world.app.flow("bad")
    flow.add(world.broken).named("one")
    run = flow.start()
    world.app.testing().drain()
    store = world.app.store
    store.put_archived_flow(flow_document(store, run.refresh().row, tier="archive", policy="p"))
    assert world.app.flows.get(run.id).is_archived
    world.clock.advance(timedelta(seconds=1))
    run.node("one").job.retry()
    assert not world.app.flows.get(run.id).is_archived
    world.app.testing().drain()
    again = world.app.flows.get(run.id)
    assert (again.row.state, again.row.round, again.is_archived) == ("failed", 2, False)
    again.retry()


def test_a_restored_job_of_an_archived_flow_is_shown_from_the_live_tables(world: World) -> None:
    run = world.ended()
    world.archived()
    first = world.app.flows.get(run.id).node("first")
    assert first.job.row.archived_at is not None
    world.app.archive.restore([first.id])
    assert world.app.flows.get(run.id).node("first").job.row.archived_at is None
    world.archived()
    assert world.app.flows.get(run.id).node("first").job.row.archived_at is not None


def test_a_batch_leaves_with_its_jobs_and_callbacks(world: World) -> None:
    app = world.app

    @app.task
    def report(batch: object) -> None: ...

    with app.batch("mails", on_complete=report) as batch:
        for number in range(5):
            world.work.enqueue(number)
    app.testing().drain()
    assert batch.status == "completed"
    world.archived()
    found = app.batches.get(batch.id)
    assert (found.archived_at is not None, found.total, found.pending) == (True, 5, 0)
    assert [job.row.archived_at is not None for job in found.jobs()] == [True] * 5
    assert app.store.flow_jobs(batch.id, tenant=ALL_TENANTS) == []
    with pytest.raises(IllegalTransition, match="archived"):
        found.retry_failed()
    assert [item.id for item in app.batches.list(archived=True)] == [batch.id]


def test_a_policy_without_a_target_deletes_the_flow(world: World) -> None:
    run = world.ended()
    world.archived(ArchivePolicy("drop", max_age="1d", to=None))
    with pytest.raises(FlowNotFound):
        world.app.flows.get(run.id)


def test_the_policy_of_a_flow_is_chosen_by_its_name(world: World) -> None:
    run = world.ended()
    world.archived(SOON, ArchivePolicy("long", tasks=["import"], max_age="30d"))
    assert world.app.flows.get(run.id).archived_at is None


def test_a_document_follows_its_jobs_through_the_tiers_and_ends_with_them(world: World) -> None:
    run = world.ended()
    cold = ArchivePolicy("cold", from_tier="archive", tier="cold", max_age="3d")
    gone = ArchivePolicy("gone", from_tier="cold", to=None, max_age="5d")
    world.archived(SOON, cold, gone)
    assert world.app.flows.get(run.id).row.tier == "archive"
    world.archived(SOON, cold, gone)
    found = world.app.flows.get(run.id)
    assert (found.row.tier, len(found.nodes())) == ("cold", len(run.nodes()))
    world.archived(SOON, cold, gone)
    with pytest.raises(FlowNotFound):
        world.app.flows.get(run.id)


def test_erasing_a_tenant_erases_its_archived_flows(world: World) -> None:
    run = world.ended()
    world.archived()
    world.app.archive.erase(tenant="default")
    with pytest.raises(FlowNotFound):
        world.app.flows.get(run.id)


def test_the_jobs_of_a_flow_may_be_archived_in_files(tmp_path: Path) -> None:
    world = World("memory://", f"file://{tmp_path}/files")
    run = world.ended()
    before = run.graph()
    world.archived()
    assert live_rows(world, run) == 0
    assert world.app.flows.get(run.id).graph() == before
    assert world.app.flows.get(run.id).result() == 6
    world.app.close()


def test_the_retention_of_a_memory_store_deletes_whole_flows() -> None:
    world = World("memory://")
    run = world.ended()
    drop = DropEnded(world.app.store)
    drop()
    assert len(run.nodes()) == 5
    world.clock.advance(timedelta(minutes=20))
    drop()
    with pytest.raises(FlowNotFound):
        world.app.flows.get(run.id)
    world.app.close()
