"""Tests of ``app.override`` and the pytest plugin, which isolate the user's app."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.grounds import url_of

from tidemill import App, Daily, ManualClock
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.errors import JobNotFound, UsageError
from tidemill.stores.memory import MemoryStore

DAY = timedelta(days=1)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path, request)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """An app as a module would declare it, with its own store and the system clock."""
    with App(f"sqlite:///{tmp_path}/real.db", migrate=True) as app:

        @app.task
        def double(number: int) -> int:
            return 2 * number

        app.schedule(double, Daily("06:00"), key="daily", args={"number": 1})
        yield app


def test_jobs_go_to_the_override_store_and_do_not_leak(app: App, url: str) -> None:
    task = app.recipe(priority=1)  # created before the block, as module-level code would
    double = _double(app)
    before = double.enqueue(number=1)
    app.store.migrate()
    with app.override(url, clock=ManualClock()) as same:
        assert same is app
        app.store.migrate()
        assert app.jobs.count() == 0
        with pytest.raises(JobNotFound):
            app.jobs.get(before.id)
        inside = task(double).enqueue(number=21)
        assert app.testing().drain().processed == 1
        assert inside.result(timeout=10) == 42
    assert [job.id for job in app.jobs.list().items] == [before.id]
    with app.override("memory://", clock=ManualClock()):
        assert app.jobs.count() == 0


def test_the_clock_can_be_moved_and_the_original_is_restored_afterwards(app: App) -> None:
    clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
    with pytest.raises(UsageError, match=r"app\.override"):
        app.testing().advance(DAY)
    with app.override("memory://", clock=clock):
        job = _double(app).using(delay=DAY).enqueue(number=1)
        testing = app.testing()
        assert testing.drain().processed == 0
        testing.advance(DAY)
        assert testing.drain().processed == 2  # the job, and the fire of the schedule
        assert job.refresh().finished_at == datetime(2030, 1, 2, tzinfo=UTC)
    assert app.clock is not clock
    assert app.jobs.count() == 0


def test_declared_schedules_fire_by_the_clock_of_each_block(app: App) -> None:
    for year in (2031, 2030, 2040):
        with app.override("memory://", clock=ManualClock(datetime(year, 1, 1, tzinfo=UTC))):
            testing = app.testing()
            testing.drain()
            testing.advance(timedelta(hours=6))
            assert testing.drain().processed == 1
            assert [job.created_at.year for job in app.jobs.list().items] == [year]


def test_other_threads_and_coroutines_use_the_same_store(app: App) -> None:
    double = _double(app)

    async def main() -> None:
        with app.override("memory://", clock=ManualClock()):
            job = await double.aenqueue(number=2)
            await asyncio.to_thread(double.enqueue, number=3)
            thread = threading.Thread(target=double.enqueue, kwargs={"number": 4})
            thread.start()
            thread.join()
            assert (await app.testing().adrain()).processed == 3
            assert await job == 4

    asyncio.run(main())
    assert app.jobs.count() == 0


def test_a_worker_inside_the_block_serves_the_override_store(app: App, url: str) -> None:
    with app.override(url):
        app.store.migrate()
        with app.worker(children=0):
            assert _double(app).enqueue(number=4).result(timeout=30) == 8
    assert app.jobs.count() == 0


def test_blocks_nest_and_end_on_exceptions(app: App) -> None:
    double = _double(app)
    with app.override("memory://"):
        double.enqueue(number=1)
        with pytest.raises(ZeroDivisionError), app.override("memory://"):
            double.enqueue(number=1 // app.jobs.count())
        assert app.jobs.count() == 1
    with pytest.raises(Exception, match="nothing-there"), app.override("sqlite:////nothing-there/x.db"):
        app.jobs.count()
    assert app.jobs.count() == 0


def test_a_given_store_stays_open_and_serves_every_store_name(tmp_path: Path) -> None:
    store = MemoryStore()
    with App(stores={"default": "memory://", "jobs": f"sqlite:///{tmp_path}/jobs.db"}) as app:

        @app.task
        def work() -> None: ...

        with app.override(store):
            work.enqueue()
            work.using(store="default").enqueue()
            assert app.jobs.count() == 2
        assert len(store.lanes()) == 1


MODULE = """
from datetime import timedelta
from tidemill import App

app = App("sqlite:///real.db")

@app.task
def mail(to: str) -> str:
    return f"sent to {to}"
"""

TESTS = """
from datetime import timedelta

import pytest

from svc.jobs import app, mail


@pytest.mark.parametrize("number", range(3))
def test_no_job_of_another_test_is_here(number):
    mail.enqueue(to="ada")
    assert app.jobs.count() == 1


def test_the_fixture_is_the_same_app(tidemill_app):
    assert tidemill_app is app
    job = mail.using(delay=timedelta(hours=1)).enqueue(to="bob")
    testing = tidemill_app.testing()
    testing.advance(timedelta(hours=1))
    testing.drain()
    assert job.result(timeout=5) == "sent to bob"


class TestInClasses:
    def test_too(self):
        assert app.jobs.count() == 0
"""


@pytest.mark.parametrize("file", ["pytest.ini", "pyproject.toml"])
def test_the_plugin_isolates_the_configured_app_in_every_test(tmp_path: Path, file: str) -> None:
    (tmp_path / "svc").mkdir()
    (tmp_path / "svc" / "__init__.py").touch()
    (tmp_path / "svc" / "jobs.py").write_text(MODULE)
    (tmp_path / "test_svc.py").write_text(TESTS)
    section = {
        "pytest.ini": "[pytest]\ntidemill_app = svc.jobs:app\npythonpath = .\n",
        "pyproject.toml": '[tool.pytest.ini_options]\ntidemill_app = "svc.jobs:app"\npythonpath = ["."]\n',
    }[file]
    (tmp_path / file).write_text(section)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "5 passed" in done.stdout, done.stdout + done.stderr
    assert not (tmp_path / "real.db").exists()


def _double(app: App) -> BoundTask[..., int]:
    return app.bound_task("double")
