"""Tests of ``app.around`` and ``app.middleware`` for enqueues and executions."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from tests.engine.harness import PATIENCE, STORES, Harness, a_place, opened

from tidemill import App, Job, Retry
from tidemill.clock import ManualClock
from tidemill.domain.job import JobRow
from tidemill.errors import BadSettings, JobFailed, UsageError
from tidemill.tasks.events import Event
from tidemill.tasks.middleware import HookStep

note: ContextVar[str] = ContextVar("note", default="nothing")


@pytest.fixture(params=STORES)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    with a_place(request)(tmp_path) as url, opened(url) as harness:
        yield harness


class Recorder:
    """A context manager factory that records calls and sets a context variable for the task."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.threads: dict[str, int] = {}

    @contextmanager
    def __call__(self, job: JobRow) -> Iterator[None]:
        self.seen.append(f"{job.task} begins")
        self.threads[job.task] = threading.get_ident()
        token = note.set(f"set for {job.task}")
        try:
            yield
        except BaseException as error:
            self.seen.append(f"{job.task} raised {type(error).__name__}")
            raise
        else:
            self.seen.append(f"{job.task} ends")
        finally:
            note.reset(token)


def declare_tasks(app: App, seen: list[str], ran: dict[str, int]) -> dict[str, Callable[[], Job[Any]]]:
    @app.task(retry=None)
    def plain() -> str:
        seen.append("plain runs")
        ran["plain"] = threading.get_ident()
        return note.get()

    @app.task(retry=None)
    async def coroutine() -> str:
        await asyncio.sleep(0)
        seen.append("coroutine runs")
        ran["coroutine"] = threading.get_ident()
        await asyncio.sleep(0)
        return note.get()

    @app.task(retry=None)
    def plain_fails() -> None:
        raise ValueError("no")

    @app.task(retry=None)
    async def coroutine_fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    return {
        "plain": plain.enqueue,
        "coroutine": coroutine.enqueue,
        "plain_fails": plain_fails.enqueue,
        "coroutine_fails": coroutine_fails.enqueue,
    }


EXPECTED = {
    "plain": ["plain begins", "plain runs", "plain ends"],
    "coroutine": ["coroutine begins", "coroutine runs", "coroutine ends"],
    "plain_fails": ["plain_fails begins", "plain_fails raised ValueError"],
    "coroutine_fails": ["coroutine_fails begins", "coroutine_fails raised ValueError"],
}


@pytest.mark.parametrize("task", list(EXPECTED))
def test_a_context_manager_sees_start_end_and_exception_in_a_worker(harness: Harness, task: str) -> None:
    recorder, ran = Recorder(), dict[str, int]()
    harness.app.around(execute=recorder)
    enqueue = declare_tasks(harness.app, recorder.seen, ran)[task]
    with harness.worker():
        job = enqueue()
        if task.endswith("fails"):
            with pytest.raises(JobFailed):
                job.result(PATIENCE)
        else:
            assert job.result(PATIENCE) == f"set for {task}"
            assert recorder.threads[task] == ran[task]
    assert recorder.seen == EXPECTED[task]


@pytest.mark.parametrize("task", list(EXPECTED))
def test_a_context_manager_sees_the_same_in_the_test_runner(task: str) -> None:
    with App("memory://", clock=ManualClock()) as app:
        recorder = Recorder()
        app.around(execute=recorder)
        enqueue = declare_tasks(app, recorder.seen, {})[task]
        enqueue()
        app.testing().drain()
        assert recorder.seen == EXPECTED[task]
        recorder.seen.clear()
        enqueue()
        asyncio.run(app.testing().adrain())
        assert recorder.seen == EXPECTED[task]


def test_a_context_manager_sees_the_same_in_a_tick(harness: Harness) -> None:
    recorder = Recorder()
    harness.app.around(execute=recorder)
    tasks = declare_tasks(harness.app, recorder.seen, {})
    tasks["plain"]()
    tasks["coroutine"]()
    harness.app.tick(PATIENCE)
    assert sorted(recorder.seen) == sorted(EXPECTED["plain"] + EXPECTED["coroutine"])


class AsyncRecorder(Recorder):
    """An async context manager factory that records the same."""

    def __call__(self, job: JobRow) -> Any:
        return self.enter(job)

    @asynccontextmanager
    async def enter(self, job: JobRow) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        with super().__call__(job):
            yield
        await asyncio.sleep(0)


@pytest.mark.parametrize("task", list(EXPECTED))
def test_an_async_context_manager_sees_the_same_in_a_worker(harness: Harness, task: str) -> None:
    recorder, ran = AsyncRecorder(), dict[str, int]()
    harness.app.around(execute=recorder)
    enqueue = declare_tasks(harness.app, recorder.seen, ran)[task]
    with harness.worker():
        job = enqueue()
        if task.endswith("fails"):
            with pytest.raises(JobFailed):
                job.result(PATIENCE)
        else:
            assert job.result(PATIENCE) == f"set for {task}"
            assert recorder.threads[task] == ran[task]
    assert recorder.seen == EXPECTED[task]


def test_an_async_context_manager_around_a_function_works_beside_a_running_loop_and_passes_signals() -> None:
    with App("memory://", clock=ManualClock()) as app:
        recorder, inner = AsyncRecorder(), Recorder()
        app.around(execute=recorder)
        app.around(execute=inner)

        @app.task
        def work() -> None:
            assert note.get() == "set for work"
            asyncio.run(asyncio.sleep(0))
            raise Retry(reason="later")

        job = work.enqueue()
        app.testing().drain()
        assert recorder.seen == inner.seen == ["work begins", "work raised Retry"]
        assert job.refresh().status == "scheduled"

        async def beside_a_loop() -> object:
            return app.hooks.execute(lambda: HookStep("execute", "work", "default"), job._row, note.get)

        assert asyncio.run(beside_a_loop()) == "set for work"


def test_hooks_nest_in_the_order_they_were_added() -> None:
    seen: list[str] = []

    def named(name: str) -> Callable[[JobRow], Any]:
        @contextmanager
        def manager(job: JobRow) -> Iterator[None]:
            seen.append(f"{name} begins")
            yield
            seen.append(f"{name} ends")

        return manager

    with App("memory://", clock=ManualClock()) as app:
        app.around(execute=named("outer"))
        app.around(execute=named("inner"))

        @app.task
        def plain() -> None: ...

        @app.task
        async def coroutine() -> None: ...

        for task in (plain, coroutine):
            seen.clear()
            task.enqueue()
            app.testing().drain(raise_errors=True)
            assert seen == ["outer begins", "inner begins", "inner ends", "outer ends"]


def test_a_signal_passes_through_a_context_manager() -> None:
    with App("memory://", clock=ManualClock()) as app:
        recorder = Recorder()
        app.around(execute=recorder)

        @app.task
        def work() -> None:
            raise Retry(reason="later")

        job = work.enqueue()
        app.testing().drain()
        assert recorder.seen == ["work begins", "work raised Retry"]
        assert job.refresh().status == "scheduled"


def test_a_context_manager_that_fails_to_enter_fails_the_job() -> None:
    class Broken:
        def __init__(self, job: JobRow) -> None: ...

        def __enter__(self) -> None:
            raise ConnectionError("no collector")

        def __exit__(self, *_: object) -> None: ...

    with App("memory://", clock=ManualClock()) as app:
        app.around(execute=Broken)

        @app.task(retry=None)
        def work() -> None: ...

        job = work.enqueue()
        app.testing().drain()
        assert job.refresh().error is not None
        assert "no collector" in job.error.message  # type: ignore[union-attr]


@pytest.mark.parametrize("managers", [1, 2])
def test_a_context_manager_may_swallow_an_exception(managers: int) -> None:
    with App("memory://", clock=ManualClock()) as app:
        for _ in range(managers):
            app.around(execute=lambda job: suppress(ValueError))
        tries: list[str] = []

        @app.task
        def plain() -> None:
            tries.append("plain")
            raise ValueError("no")

        @app.task
        async def coroutine() -> None:
            tries.append("coroutine")
            raise ValueError("no")

        jobs = [plain.enqueue(), coroutine.enqueue()]
        app.testing().drain()
        assert [job.refresh().status for job in jobs] == ["completed"] * 2
        assert tries == ["plain", "coroutine"]


# Refused at declaration ------------------------------------------------------------------------------------------------


def plain_middleware(step: HookStep, proceed: Callable[[], Any]) -> Any:
    return proceed()


def test_a_plain_middleware_and_a_coroutine_task_are_refused_in_either_order() -> None:
    async def fetch() -> None: ...

    with App("memory://") as app:
        app.middleware(plain_middleware)
        with pytest.raises(BadSettings, match=r"plain_middleware is a plain function .* fetch.*app\.around"):
            app.task(fetch)
        assert "fetch" not in app.registry
    with App("memory://") as app:
        app.task(fetch)
        with pytest.raises(BadSettings, match="plain_middleware is a plain function"):
            app.middleware(plain_middleware)
        app.middleware(plain_middleware, only="enqueue")


def test_an_object_that_is_not_a_context_manager_is_refused() -> None:
    def generator(job: JobRow) -> Iterator[None]:
        yield

    async def coroutine(job: JobRow) -> None: ...

    with App("memory://") as app:
        for wrong in (generator, coroutine):
            with pytest.raises(BadSettings, match=r"contextlib\.contextmanager"):
                app.around(execute=wrong)  # type: ignore[arg-type]
        with pytest.raises(BadSettings, match="give a function"):
            app.around(execute=3)  # type: ignore[arg-type]
        with pytest.raises(BadSettings, match="needs execute="):
            app.around()
        with pytest.raises(BadSettings, match="unknown step 'both'"):
            app.middleware(plain_middleware, only="both")  # type: ignore[call-overload]


def test_a_middleware_that_does_not_return_is_named_in_the_error() -> None:
    with App("memory://") as app:

        @app.middleware(only="enqueue")
        def forgets(step: HookStep, proceed: Callable[[], Any]) -> None:
            proceed()

        @app.task
        def work() -> None: ...

        with pytest.raises(UsageError, match="must return what proceed"):
            work.enqueue()


# In a child process ----------------------------------------------------------------------------------------------------

APP = """
import datetime
from contextlib import contextmanager
from contextvars import ContextVar

from tidemill import App
from tidemill.tasks.events import Event

app = App({url!r})
note = ContextVar("note", default="nothing")


@contextmanager
def noted(job):
    token = note.set(f"set for {{job.task}} with {{dict(job.details.headers)}}")
    yield
    note.reset(token)


app.around(execute=noted)


@app.task
def after() -> None: ...


def _publish(name):
    app.events.publish(Event(name, datetime.datetime.now(datetime.UTC), data={{"path": app, "n": 1}}))


@app.task(isolation="process", retry=None)
def plain() -> str:
    _publish("mine.plain")
    after.enqueue()
    return note.get()


@app.task(isolation="process", retry=None)
async def coroutine() -> str:
    _publish("mine.coroutine")
    return note.get()
"""


def test_hooks_and_events_work_for_a_job_in_a_child_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "around_app.py").write_text(APP.format(url=f"sqlite:///{tmp_path}/jobs.db"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "around_app", raising=False)
    module = importlib.import_module("around_app")
    app: App = module.app
    heard: list[Event] = []
    app.events.subscribe("mine.*", heard.append)
    app.events.subscribe("job.enqueued", heard.append)
    with app, app.worker(children=1, queues=["default"]):
        plain = module.plain.using(headers={"a": "b"}).enqueue().result(PATIENCE)
        assert plain == "set for plain with {'a': 'b'}"
        assert module.coroutine.enqueue().result(PATIENCE) == "set for coroutine with {}"
        assert [(event.name, event.task) for event in heard] == [
            ("job.enqueued", "plain"),
            ("mine.plain", None),
            ("job.enqueued", "after"),
            ("job.enqueued", "coroutine"),
            ("mine.coroutine", None),
        ]
        assert heard[1].data["n"] == 1
    monkeypatch.delitem(sys.modules, "around_app")
