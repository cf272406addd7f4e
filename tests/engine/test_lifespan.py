"""Tests of the app's lifespan and of provided parameters, wherever jobs run."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pytest
from tests.engine import lifespan_app
from tests.engine.harness import PATIENCE
from tests.engine.worker_kit import WorkerProcess, until

from tidemill import PROVIDED, App, Context, ItemTask, ManualClock, Provide, Task, TaskGroup
from tidemill.errors import BadArguments, BadSettings, JobFailed, UsageError

LENT = ["lent", "name returned", "returned"]
TASKS = ["plain", "coroutine", "plain_apart", "coroutine_apart"]


@pytest.fixture(params=["async", "plain"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> Path:
    monkeypatch.setenv(lifespan_app.STORE, f"sqlite:///{tmp_path}/jobs.db")
    monkeypatch.setenv(lifespan_app.NOTES, str(tmp_path / "notes"))
    monkeypatch.setenv(lifespan_app.KIND, kind)
    return tmp_path / "notes"


@pytest.fixture
def tasks(notes: Path) -> Iterator[ModuleType]:
    """The app's module, imported again with the settings of this test."""
    module = importlib.reload(lifespan_app)
    yield module
    module.app.close()


def noted(notes: Path) -> dict[str, Counter[str]]:
    """How often each process entered and left the lifespan."""
    lines = [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []
    return {pid: Counter(word for word, other in lines if other == pid) for _, pid in lines}


ONCE = Counter(entered=1, left=1)


def test_an_embedded_worker_enters_it_once_for_functions_coroutines_and_child_processes(
    tasks: ModuleType, notes: Path
) -> None:
    with tasks.app.worker(concurrency=2, threads=2, children=1):
        results = {name: getattr(tasks, name).enqueue().result(PATIENCE) for name in TASKS}
        again = {name: getattr(tasks, name).enqueue().result(PATIENCE) for name in TASKS}
        shared = tasks.lent_so_far.enqueue().result(PATIENCE)
    assert results["plain"][1:] == ["lent"]
    assert results["coroutine"][1:] == [*LENT, "lent"]
    assert again["plain"][1:] == [*LENT * 2, "lent"]
    # The one child process has a lifespan of its own.
    assert [results[name][1:] for name in TASKS[2:]] == [["lent"], [*LENT, "lent"]]
    assert again["coroutine_apart"][1:] == [*LENT * 3, "lent"]
    assert shared == LENT * 4
    until(lambda: sorted(noted(notes).values(), key=str) == [ONCE, ONCE], "both processes have left it")


def test_a_worker_process_enters_it_once_in_every_runner(
    tasks: ModuleType, notes: Path, tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "tidemill", "worker", "tests.engine.lifespan_app:app", "--processes", "2"]
    worker = WorkerProcess([*words, "--children", "0", "--grace", "5"], tmp_path / "worker", dict(os.environ))
    try:
        worker.ready(2)
        jobs = [tasks.coroutine.enqueue() for _ in range(20)]
        assert all(job.result(PATIENCE) for job in jobs)
        worker.process.terminate()
        assert worker.exit_code() == 0
    finally:
        worker.end()
    assert list(noted(notes).values()) == [ONCE, ONCE]


def test_a_tick_enters_it_once(tasks: ModuleType, notes: Path) -> None:
    jobs = [tasks.plain.enqueue(), tasks.coroutine.enqueue()]
    assert tasks.app.tick(10, children=0).processed == 2
    assert all(job.result(PATIENCE) for job in jobs)
    assert list(noted(notes).values()) == [ONCE]


def test_a_drain_enters_it_once_on_the_loop_of_its_coroutines(tasks: ModuleType, notes: Path) -> None:
    testing = tasks.app.testing()
    assert testing.drain().processed == 0
    assert noted(notes) == {}
    for name in TASKS:
        getattr(tasks, name).enqueue()
    assert testing.drain(raise_errors=True).completed == 4
    assert list(noted(notes).values()) == [ONCE]


def test_an_async_drain_enters_it_once_on_the_running_loop(tasks: ModuleType, notes: Path) -> None:
    for name in TASKS:
        getattr(tasks, name).enqueue()

    async def main() -> int:
        return int((await tasks.app.testing().adrain(raise_errors=True)).completed)

    assert asyncio.run(main()) == 4
    assert list(noted(notes).values()) == [ONCE]


@pytest.mark.parametrize("kind", ["failing"], indirect=True)
def test_an_embedded_worker_whose_lifespan_fails_does_not_start(tasks: ModuleType) -> None:
    with pytest.raises(ConnectionError, match="refuses connections"), tasks.app.worker(children=0):
        pass
    with pytest.raises(ConnectionError, match="refuses connections"):
        tasks.app.tick(1, children=0)
    job = tasks.plain.enqueue()
    with pytest.raises(ConnectionError, match="refuses connections"):
        tasks.app.testing().drain()
    assert job.refresh().status == "pending"
    assert job.attempt == 0


@pytest.mark.parametrize("kind", ["failing"], indirect=True)
def test_a_worker_process_reports_why_its_lifespan_fails(notes: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tidemill", "worker", "tests.engine.lifespan_app:app", "--children", "0"]
    worker = WorkerProcess(words, tmp_path / "worker", dict(os.environ))
    try:
        until(lambda: "ConnectionError: the database refuses connections" in worker.log, "it says why")
        assert worker.readies() == 0
    finally:
        worker.process.terminate()
        worker.exit_code()
        worker.end()


# Providers -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://", clock=ManualClock()) as app:
        yield app


def drained(app: App) -> list[Any]:
    """Drain, and return the results of the jobs by their creation."""
    app.testing().drain(raise_errors=True)
    return [job.result() for job in reversed(app.jobs.list(status="completed").items)]


class Ledger:
    """Records what providers do."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def generator(self) -> Iterator[str]:
        self.lines.append("opened")
        try:
            yield "value"
        except ValueError as error:
            self.lines.append(f"saw {error}")
        finally:
            self.lines.append("closed")

    async def async_generator(self) -> AsyncIterator[str]:
        self.lines.append("opened")
        try:
            yield "value"
        except ValueError as error:
            self.lines.append(f"saw {error}")
        finally:
            self.lines.append("closed")


@pytest.mark.parametrize("provider", ["generator", "async_generator"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_generator_sees_the_failure_and_cannot_hide_it(app: App, provider: str, is_async: bool) -> None:
    ledger = Ledger()
    given = Provide(getattr(ledger, provider))

    def fail(number: int, value: Annotated[str, given]) -> None:
        raise ValueError(f"{value} {number}")

    async def afail(number: int, value: Annotated[str, given]) -> None:
        raise ValueError(f"{value} {number}")

    app.task(name="fail", retry=None)(afail if is_async else fail)
    job = app.enqueue("fail", number=7)
    app.testing().drain()
    assert ledger.lines == ["opened", "saw value 7", "closed"]
    with pytest.raises(JobFailed, match="value 7"):
        job.result(PATIENCE)


def test_a_provider_runs_once_for_each_job_unless_it_is_not_cached(app: App) -> None:
    calls = {"cached": 0, "fresh": 0}

    def count(name: str) -> Callable[[], int]:
        def counted() -> int:
            calls[name] += 1
            return calls[name]

        return counted

    cached, fresh = count("cached"), count("fresh")

    @app.task
    def use(
        one: Annotated[int, Provide(cached)],
        two: Annotated[int, Provide(cached)],
        three: Annotated[int, Provide(fresh, cached=False)],
        four: Annotated[int, Provide(fresh, cached=False)],
    ) -> list[int]:
        return [one, two, three, four]

    app.enqueue("use")
    app.enqueue("use")
    assert drained(app) == [[1, 1, 1, 2], [2, 2, 3, 4]]


def test_classes_coroutines_and_callable_objects_provide_values(app: App) -> None:
    async def seven() -> int:
        return 7

    class Settings:
        def __init__(self, number: Annotated[int, Provide(seven)], word: str = "x") -> None:
            self.text = word * number

    class Maker:
        def __call__(self, ctx: Context) -> str:
            return ctx.job.task

    @app.task
    def use(one: Annotated[Settings, Provide(Settings)], two: Annotated[str, Provide(Maker())]) -> str:
        return f"{one.text} {two}"

    use.using().enqueue()  # type: ignore[call-arg]
    assert drained(app) == ["xxxxxxx use"]


def test_a_class_task_an_item_task_and_a_task_of_a_group_have_provided_parameters(app: App) -> None:
    def three() -> int:
        return 3

    Three = Annotated[int, Provide(three)]  # noqa: N806

    @app.task
    class Times(Task[int, int]):
        def run(self, number: int, factor: Three) -> int:
            return number * factor

    @app.task
    class Count(ItemTask[int, Any]):
        def items(self, number: int, factor: Three) -> list[int]:
            return list(range(number * factor))

        def process(self, item: int, index: int, ctx: Context) -> None:
            assert item == index

    group = TaskGroup()

    @group.task
    async def add(number: int, more: Three = PROVIDED) -> int:
        return number + more

    app.include(group)
    app.enqueue("Times", number=2)
    app.enqueue("Count", number=2)
    add.enqueue(number=2)
    first, second, third = drained(app)
    assert (first, second["processed"], third) == (6, 6, 5)


def test_provided_values_are_no_arguments_of_the_job(app: App) -> None:
    @app.task
    def use(number: int, value: Annotated[object, Provide(object)]) -> int:
        return number

    assert use.enqueue(number=1).args == {"number": 1}  # type: ignore[call-arg]
    with pytest.raises(BadArguments, match="value: its provider gives the value; leave it out"):
        use.enqueue(number=1, value=2)


def test_the_dependencies_of_fastapi_provide_values(app: App) -> None:
    from fastapi import Depends

    def settings() -> dict[str, str]:
        return {"name": "ada"}

    def name(given: Annotated[dict[str, str], Depends(settings)]) -> Iterator[str]:
        yield given["name"]

    class Greeting:
        def __init__(self, to: str = Depends(name)) -> None:
            self.text = f"hello {to}"

    @app.task
    async def greet(greeting: Annotated[Greeting, Depends()], to: str = Depends(name)) -> str:
        return f"{greeting.text}, {to}"

    app.enqueue("greet")
    assert drained(app) == ["hello ada, ada"]


def test_a_provider_that_no_job_can_call_is_refused_where_the_task_is_declared(app: App) -> None:
    def of_a_request(request: bytes) -> bytes:
        return request

    with pytest.raises(BadSettings, match="provider of_a_request needs 'request', which no job can give"):

        @app.task
        def use(value: Annotated[bytes, Provide(of_a_request)]) -> None: ...


def test_a_provider_that_needs_itself_is_refused(app: App) -> None:
    with pytest.raises(BadSettings, match="provider endless needs itself"):

        @app.task
        def use(value: Annotated[int, Provide(endless)]) -> None: ...


def endless(value: Annotated[int, Provide(lambda: endless)] = 0) -> int:
    return value


endless.__annotations__["value"] = Annotated[int, Provide(endless)]


def test_an_error_of_a_provider_is_a_failure_of_the_job(app: App) -> None:
    def broken() -> int:
        raise BadArguments("no")

    @app.task(retry=None)
    def use(value: Annotated[int, Provide(broken)]) -> None: ...

    job = app.enqueue("use")
    app.testing().drain()
    assert job.refresh().status == "failed"


def test_state_without_a_lifespan_and_a_bad_lifespan_are_explained(app: App) -> None:
    @app.task(retry=None)
    def use(ctx: Context) -> None:
        ctx.state  # noqa: B018

    app.enqueue("use")
    with pytest.raises(UsageError, match=r"App\(lifespan=…\)"):
        app.testing().drain(raise_errors=True)

    def undecorated(_: App) -> Iterator[None]:
        yield

    with pytest.raises(BadSettings, match=r"decorate it with contextlib\.contextmanager"):
        App("memory://", lifespan=undecorated)  # type: ignore[arg-type]
    app.configure(lifespan=lambda _: None)  # type: ignore[arg-type, return-value]
    app.enqueue("use")
    with pytest.raises(BadSettings, match="must return a context manager"):
        app.testing().drain()


def test_configure_sets_the_lifespan(app: App) -> None:
    @asynccontextmanager
    async def opened(given: App) -> AsyncIterator[str]:
        assert given is app
        yield "opened"

    @app.task
    async def use(ctx: Context) -> str:
        return str(ctx.state)

    app.configure(lifespan=opened)
    app.enqueue("use")
    assert drained(app) == ["opened"]


def test_an_exception_at_the_end_is_logged_and_the_worker_still_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @contextmanager
    def closing_badly(_: App) -> Iterator[None]:
        yield
        raise RuntimeError("cannot close")

    with App("memory://", lifespan=closing_badly) as app:

        @app.task
        def use() -> int:
            return 1

        with app.worker(children=0):
            assert use.enqueue().result(PATIENCE) == 1
    assert "the lifespan of the app raised an exception at its end" in caplog.text
