"""Tests of ``tidemill.contrib.celery`` compared with Celery itself."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.peers.redis import running_redis
from tests.contrib.celery import outcomes
from tests.interfaces.cli_kit import call
from tests.servers.processes import ServiceMissing
from tests.services import go_without

from tidemill import ManualClock
from tidemill.contrib.celery import AsyncResult, Celery, Task, chord, crontab, group, shared_task, signals
from tidemill.contrib.celery.exceptions import ImproperlyConfigured
from tidemill.errors import UsageError

HERE = Path(__file__).parent
TASKS = HERE / "shop_tasks.py"
LONG = 300


@contextmanager
def running(words: list[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """A worker that is ended with the block."""
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def outcomes_of(folder: Path, environment: dict[str, str], worker: list[str]) -> dict[str, Any]:
    """Run a worker, make every call, and return how each of them ended."""
    shutil.copy(Path(outcomes.__file__), folder)
    with running([sys.executable, "-m", *worker], folder, environment):
        words = [sys.executable, "outcomes.py", "shop_tasks"]
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONG, check=False
        )
    assert done.returncode == 0, done.stderr + (folder / "worker.log").read_text()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def redis() -> Iterator[str]:
    """The URL of a Redis server, as most Celery projects have one."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(running_redis())
        except ServiceMissing as missing:
            go_without("redis", missing)
        yield url


@pytest.mark.long
def test_every_use_ends_as_under_celery(redis: str, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("celery", "tidemill")}
    for folder in folders.values():
        folder.mkdir()
    own = folders["celery"]
    shutil.copy(TASKS, own)
    expected = outcomes_of(
        own,
        {
            **os.environ,
            "SHOP_BROKER": f"{redis}/0",
            "SHOP_BACKEND": f"{redis}/1",
            "SHOP_NOTES": f"{own}/notes",
        },
        ["celery", "-A", "shop_tasks", "worker", "-c", "4", "-Q", "main,slow,special"],
    )
    folder = folders["tidemill"]
    changed = re.sub(r"^from celery\b", "from tidemill.contrib.celery", TASKS.read_text(), flags=re.MULTILINE)
    (folder / "shop_tasks.py").write_text(changed)
    given = outcomes_of(
        folder,
        {**os.environ, "SHOP_BROKER": f"sqlite:///{folder}/jobs.db", "SHOP_NOTES": f"{folder}/notes"},
        ["tidemill", "worker", "shop_tasks:app", "--processes", "1", "--threads", "6", "--children", "2"],
    )
    assert importlib.metadata.version("celery").startswith("5.")
    assert len(expected) >= 95
    assert {use: (given[use], expected[use]) for use in expected if given[use] != expected[use]} == {}


@pytest.fixture
def app() -> Iterator[Celery]:
    with Celery("shop", store="memory://", clock=ManualClock()) as app:
        yield app


def test_a_schedule_of_beat_fires_in_its_zone(app: Celery) -> None:
    calls: list[int] = []

    @app.task(name="collect")
    def collect(number: int) -> None:
        calls.append(number)

    app.conf.timezone = "Europe/Berlin"
    app.conf.beat_schedule = {
        "night run": {"task": "collect", "schedule": crontab(hour="2", minute=30), "args": (7,)}
    }

    @app.on_after_configure.connect
    def more(sender: Celery, **_: Any) -> None:
        sender.add_periodic_task(3600.0, collect.s(1), name="hourly")

    testing = app.testing()
    testing.drain()
    assert {row.key: row.timezone for row in app.schedules.list()} == {
        "night-run": "Europe/Berlin",
        "hourly": "Europe/Berlin",
    }
    testing.run_until_idle("25h")
    assert calls.count(7) == 1
    assert calls.count(1) in (24, 25)


def test_a_crontab_that_would_fire_on_other_days_is_refused() -> None:
    assert str(crontab(minute={0, 30}, hour="*/3", day_of_week="mon-fri").trigger()) == str(
        crontab(minute="0,30", hour="*/3", day_of_week="mon-fri").trigger()
    )
    with pytest.raises(ImproperlyConfigured, match="if both match"):
        crontab(day_of_week="mon", day_of_month=13)


def test_a_canvas_is_one_flow_that_the_dashboard_shows(app: Celery) -> None:
    @app.task(name="add")
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    result = (add.s(1, 2) | group(add.s(10), add.s(20)) | total.s())()
    app.testing().drain()
    assert result.get() == 36
    (flow,) = app.flows.list()
    assert (flow.name, flow.status) == ("celery.chain", "completed")
    assert sorted(node.job.task for node in flow.nodes()) == ["add", "add", "add", "total"]
    with pytest.raises(TypeError, match="the chord has no body"):
        chord([add.s(1, 1)])()
    with pytest.raises(UsageError, match="'colour' is not supported"):
        add.apply_async((1, 2), colour="red")


def test_a_broker_that_is_no_store_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMILL_STORE", raising=False)
    with pytest.raises(
        ImproperlyConfigured, match="needs no broker but a store; set TIDEMILL_STORE"
    ) as refused:
        Celery("shop", broker="redis://:secret@localhost/0")
    assert "secret" not in str(refused.value)
    with pytest.raises(ImproperlyConfigured, match="Tidemill sends JSON only"):
        Celery("shop", store="memory://").conf.update(task_serializer="pickle")


def test_settings_come_from_an_object_with_a_namespace_and_old_names(app: Celery) -> None:
    class Settings:
        CELERY_TASK_ALWAYS_EAGER = True
        CELERY_TASK_TIME_LIMIT = 30
        OTHER = 1

    app.config_from_object(Settings, namespace="CELERY")
    assert (app.conf.task_always_eager, app.conf["task_time_limit"]) == (True, 30)
    app.conf.update(CELERY_DEFAULT_QUEUE="old")
    assert app.conf.task_default_queue == "old"
    with pytest.raises(AttributeError):
        _ = app.conf.no_such_setting


def test_a_shared_task_belongs_to_apps_made_before_and_after(app: Celery) -> None:
    @shared_task(name="shared.one")
    def one() -> int:
        return 1

    one.delay()
    assert app.testing().drain().completed == 1
    with Celery("later", store="memory://", clock=ManualClock()) as later:
        one.delay()
        assert later.testing().drain().completed == 1


def test_signals_around_a_publish_change_the_headers(app: Celery) -> None:
    seen: list[Any] = []

    @app.task(bind=True)
    def read(self: Any) -> str:
        return str(self.request.headers["trace"])

    def before(headers: dict[str, Any], **_: Any) -> None:
        headers["trace"] = "t1"

    signals.before_task_publish.connect(before)
    try:
        result = read.delay()
    finally:
        assert signals.before_task_publish.disconnect(before)
    app.testing().drain()
    seen.append(result.get())
    assert seen == ["t1"]


def test_the_check_reports_every_use_and_what_becomes_of_it(tmp_path: Path) -> None:
    done = call("check", "celery", str(TASKS), "--json")
    uses = json.loads(done.output)["uses"]
    assert done.exit_code == 0, [use for use in uses if use["verdict"] == "not supported"]
    verdicts = {use["use"]: use["verdict"] for use in uses}
    assert verdicts["from celery import …"] == "change the import"
    assert verdicts["@task rate_limit="] == "works differently"
    assert verdicts["@task acks_late="] == "not needed"
    assert verdicts["conf.worker_prefetch_multiplier"] == "not needed"
    assert verdicts["signal task_failure"] == "works"
    assert verdicts["a.s() | b.s()"] == verdicts["chain()"] == verdicts["apply_async link="] == "works"
    assert len(uses) > 60
    (tmp_path / "flow.py").write_text("from kombu import Queue\nself.exchange = a.s(1) | b.s()\n")
    (tmp_path / "broken.py").write_text("def :\n")
    done = call("check", "celery", str(tmp_path))
    assert done.exit_code == 1
    assert "not supported" in done.output
    assert "broken.py cannot be read" in done.output


def test_the_check_reports_what_the_shim_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "uses.py").write_text(MISSING_USES)
    uses = json.loads(call("check", "celery", str(tmp_path), "--json").output)["uses"]
    missing = {(use["line"], use["use"]) for use in uses if use["verdict"] == "not supported"}
    assert missing == {
        (7, "self.replace"),
        (11, "task.add_to_chord"),
        (16, "self.push_request"),
        (25, "control.inspect"),
        (26, "control.ping"),
        (27, "control.rate_limit"),
        (28, "connection_for_write"),
        (29, "get_leaf"),
    }
    for owner, names in {
        Task: ("replace", "add_to_chord", "push_request"),
        Celery: ("connection_for_write",),
        AsyncResult: ("get_leaf",),
    }.items():
        assert [name for name in names if hasattr(owner, name)] == []


MISSING_USES = """from celery import Celery, Task
app = Celery("shop")


@app.task(bind=True)
def first(self, text):
    raise self.replace(second.s(text.replace("a", "b")))

@app.task(bind=True)
def second(task):
    task.add_to_chord(first.s("x"))


class Base(Task):
    def before_start(self, *_):
        self.push_request()


class Text:
    def clean(self):
        return self.replace("a", "b")


def look(result):
    app.control.inspect().active()
    app.control.ping()
    app.control.rate_limit("shop.first", "1/s")
    app.connection_for_write()
    return result.get_leaf()
"""
