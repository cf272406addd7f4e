"""Tests of ``ctx.transaction()`` blocks: nesting, sharing and refusals."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.following_kit import stored, stored_in
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, open_gate, opened
from tests.grounds import url_of

from tidemill import App, Context, Fixed, Unique
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import JobState
from tidemill.errors import JobFailed, JobNotFound, QueueFull, UsageError

S = JobState
AT_ONCE = Fixed(wait=timedelta(0), max_attempts=3)


@pytest.fixture(scope="module", params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def harness(place: Place, tmp_path: Path) -> Iterator[Harness]:
    with place(tmp_path) as url, opened(url) as harness:
        yield harness


@pytest.fixture
def small() -> Iterator[Harness]:
    with opened() as harness:
        yield harness


# Blocks ---------------------------------------------------------------------------------------------------------------------


def test_an_inner_block_that_raises_drops_only_its_own_jobs(harness: Harness) -> None:
    @harness.app.task
    def following(who: str) -> None: ...

    @harness.app.task
    def parent(ctx: Context) -> None:
        with ctx.transaction():
            following.enqueue(who="outer, before")
            try:
                with ctx.transaction():
                    following.enqueue(who="inner")
                    ctx.then(following, who="inner then")
                    raise ValueError
            except ValueError:
                following.enqueue(who="outer, after")
            with ctx.transaction():
                following.enqueue(who="second inner")

    with harness.worker():
        harness.ends(parent.enqueue())
        eventually(lambda: len(stored(harness, "following")) == 3)
    assert [each.args for each in stored(harness, "following")] == [
        '{"who":"outer, before"}',
        '{"who":"outer, after"}',
        '{"who":"second inner"}',
    ]


def test_asyncio_tasks_started_inside_share_the_block_while_it_is_open(small: Harness) -> None:
    late = threading.Event()

    @small.app.task
    def following(who: str) -> None: ...

    @small.app.task
    async def parent(ctx: Context) -> None:
        async def straggler() -> None:
            await open_gate(late)
            await following.aenqueue(who="after the block, written at once")

        task = asyncio.create_task(asyncio.sleep(0))
        try:
            with ctx.transaction():
                task = asyncio.create_task(straggler())
                async with asyncio.TaskGroup() as group:
                    group.create_task(following.aenqueue(who="in a task group"))
                await asyncio.to_thread(following.enqueue, who="in a thread")
                raise ValueError
        except ValueError:
            late.set()
            await task

    with small.worker():
        parent_job = parent.enqueue()
        small.ends(parent_job)
        assert small.state(parent_job) is S.COMPLETED
    assert [each.args for each in stored(small, "following")] == [
        '{"who":"after the block, written at once"}'
    ]


def test_a_job_that_has_ended_accepts_no_more_following_jobs(small: Harness) -> None:
    ended, seen = threading.Event(), list[str]()
    done = threading.Event()

    @small.app.task
    def following() -> None: ...

    @small.app.task
    async def parent(ctx: Context) -> None:
        async def straggler() -> None:
            block = ctx.transaction()
            block.__enter__()
            await open_gate(ended)
            for act in (lambda: ctx.then(following), following.enqueue, block.__enter__):
                try:
                    act()
                except UsageError as error:
                    seen.append(str(error))
            block.__exit__(None, None, None)
            done.set()

        tasks.append(asyncio.create_task(straggler()))
        await asyncio.sleep(0)

    tasks: list[Any] = []
    with small.worker():
        small.ends(parent.enqueue())
        ended.set()
        assert done.wait(PATIENCE)
    assert seen[:2] == ["this job has ended; no more jobs can be enqueued with its completion"] * 2
    assert stored(small, "following") == []


# Calls that a completion cannot carry -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["transaction", "then"])
def test_calls_that_a_completion_cannot_carry_are_refused_at_once(tmp_path: Path, how: str) -> None:
    other = App("memory://")
    told: list[str] = []

    @other.task
    def elsewhere() -> None: ...

    with App(stores={"default": "memory://", "other": "memory://"}) as app, other:

        @app.task
        def following(n: int = 0) -> None: ...

        def refused(ctx: Context, task: Any) -> None:
            try:
                if how == "then":
                    ctx.then(task)
                else:
                    with ctx.transaction():
                        task.enqueue()
            except UsageError as error:
                told.append(str(error))

        @app.task
        def parent(ctx: Context) -> None:
            refused(ctx, following.using(store="other"))
            refused(ctx, elsewhere)
            for conflict in ("raise", "replace", "extend"):
                refused(ctx, following.using(unique=Unique(by=("n",), on_conflict=conflict)))
            if how == "then":
                refused(ctx, following.using(connection=object()))
                refused(ctx, following.options)

        parent.enqueue()
        app.testing().drain(raise_errors=True)
        assert app.testing().enqueued() == []
    assert [text.split(";")[0][:60] for text in told[:3]] == [
        "following goes to the store 'other', which is not the store ",
        "elsewhere is a task of another app than parent, the running ",
        "following has on_conflict='raise', which needs the store's a",
    ]
    assert len(told) == (7 if how == "then" else 5)


def test_a_unique_key_held_at_the_completion_leaves_that_job_out(harness: Harness) -> None:
    @harness.app.task(unique=Unique(by=("n",)))
    def following(n: int) -> None: ...

    @harness.app.task
    def parent(ctx: Context) -> list[str]:
        return [str(ctx.then(following, n=n).id) for n in (1, 2)]

    holder = following.using(delay=timedelta(hours=1)).enqueue(n=1)
    with harness.worker():
        left_out, created = parent.enqueue().result(PATIENCE)
        assert harness.app.jobs.get(created).result(PATIENCE) is None
    with pytest.raises(JobNotFound):
        harness.app.jobs.get(left_out)
    assert harness.state(holder) is S.SCHEDULED


def test_a_full_queue_is_refused_when_the_job_is_built(small: Harness) -> None:
    @small.app.task
    def following() -> None: ...

    small.app.limits.set("depth/queue/narrow", max=1)
    following.using(queue="narrow").enqueue()

    @small.app.task
    def parent(ctx: Context) -> str:
        with pytest.raises(QueueFull):
            ctx.then(following.using(queue="narrow"))
        return "told"

    with small.worker(queues=["default"]):
        assert parent.enqueue().result(PATIENCE) == "told"


def test_more_jobs_than_a_completion_can_hold_are_refused(small: Harness) -> None:
    @small.app.task
    def following() -> None: ...

    @small.app.task(retry=None)
    def parent(ctx: Context) -> None:
        with ctx.transaction():
            following.enqueue_many([{}] * 10_001)

    job = parent.enqueue()
    with small.worker():
        small.ends(job)
    error = small.row(job).error
    assert error is not None
    assert error.message.startswith("one job can enqueue at most 10,000 jobs")
    assert stored(small, "following") == []


# In a child process --------------------------------------------------------------------------------------------------------

APP = """
from tidemill import App, Context, Unique

app = App({url!r})


@app.task(audit=True, unique=Unique(by=("n",)))
def following(n: int, text: str = "") -> int:
    return n


@app.task(isolation="process", retry=None)
def parent(ctx: Context, size: int = 0, fail: bool = False) -> None:
    with ctx.transaction():
        following.using(tags=["t"]).enqueue(n=1)
    ctx.then(following, n=2)
    for n in range(100, 100 + size // 100_000):
        ctx.then(following, n=n, text="x" * 100_000)
    if fail:
        raise ValueError("no")
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path, request)


def test_a_job_in_a_child_process_sends_its_following_jobs_with_its_end(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chained_app.py").write_text(APP.format(url=url))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "chained_app", raising=False)
    module = importlib.import_module("chained_app")
    app: App = module.app
    with app, app.worker(children=1):
        good, failing, huge = (
            module.parent.enqueue(),
            module.parent.enqueue(fail=True),
            module.parent.enqueue(size=20_000_000),
        )
        assert good.result(PATIENCE) is None
        with pytest.raises(JobFailed):
            failing.result(PATIENCE)
        with pytest.raises(JobFailed, match="over the limit"):
            huge.result(PATIENCE)
        eventually(lambda: [job.state for job in stored_in(app.store, "following")] == [S.COMPLETED] * 2)
        first, second = stored_in(app.store, "following")
        assert {first.details.parent_id, second.details.parent_id} == {good.id}
        assert first.details.tags == ("t",)
        assert [record.entry.subject for record in app.store.audit(tenant=ALL_TENANTS)] == [
            f"job:{first.id}",
            f"job:{second.id}",
        ]
    monkeypatch.delitem(sys.modules, "chained_app")
