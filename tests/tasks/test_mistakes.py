"""Tests of plausible mistakes with tasks: each error says what to do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tidemill import App, Task
from tidemill.errors import BadSettings, DuplicateTask
from tidemill.stores.open import open_store
from tidemill.stores.sql.store import SqlStore


class Engine:
    """A class without a pydantic schema."""


@dataclass
class Car:
    engine: Engine


@dataclass
class Late:
    part: DefinedBelow


@dataclass
class DefinedBelow:
    name: str


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://") as app:
        yield app


def send(to: str) -> str:
    return to


# Methods of other systems --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("delay", r"task send has no delay\(\); write send\.enqueue\(…\), or await send\.aenqueue\(…\)"),
        ("apply_async", r"write send\.enqueue\(…\) or send\.using\(delay=timedelta\(…\)\)"),
        ("kiq", r"write await send\.aenqueue\(…\)"),
        ("send", r"write send\.enqueue\(…\)"),
    ],
)
def test_a_method_of_another_job_system_is_refused_with_the_right_name(
    app: App, verb: str, words: str
) -> None:
    with pytest.raises(AttributeError, match=words):
        getattr(app.task(send), verb)


def test_any_other_attribute_is_missing(app: App) -> None:
    task = app.task(send)
    assert not hasattr(task, "nonsense")
    assert task.__name__ == "send"  # type: ignore[attr-defined]


# Names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nameless", [lambda: None, partial(send, "ann")])
def test_a_target_without_a_name_is_refused_unless_it_gets_one(
    app: App, nameless: Callable[..., Any]
) -> None:
    with pytest.raises(
        BadSettings, match=r"has no name that jobs could be stored under; give one: app\.task\(name=…\)"
    ):
        app.task(nameless)
    assert app.task(name="nameless")(nameless).name == "nameless"


def test_two_functions_of_one_name_in_a_module_are_refused(app: App) -> None:
    @app.task
    def cleanup() -> int:
        return 1

    with pytest.raises(
        DuplicateTask, match=r"two tasks are named cleanup: lines \d+ and \d+ of .*test_mistakes"
    ):

        @app.task
        def cleanup() -> int:
            return 2


def test_two_classes_of_one_name_in_a_module_are_refused(app: App) -> None:
    @app.task
    class Cleanup(Task[None, int]):
        def run(self) -> int:
            return 1

    with pytest.raises(DuplicateTask, match="give one of them another name="):

        @app.task
        class Cleanup(Task[None, int]):  # type: ignore[no-redef]
            def run(self) -> int:
                return 2


def test_the_same_function_may_be_declared_again(app: App) -> None:
    def declare() -> None:
        @app.task
        def cleanup() -> int:
            return 1

    declare()
    declare()
    assert app.registry.names() == ["cleanup"]


MODULE = "import tests.tasks.test_mistakes as here\n{blank}@here.SHARED.task\ndef reloaded() -> int: return {value}\n"
SHARED = App("memory://")


@pytest.mark.parametrize("way", ["reload", "import"])
def test_a_module_that_was_changed_and_reloaded_replaces_its_tasks(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = f"changed_by_{way}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(blank="", value=1))
    module = importlib.import_module(name)
    (tmp_path / f"{name}.py").write_text(MODULE.format(blank="\n\n", value=22))
    importlib.invalidate_caches()
    if way == "reload":
        importlib.reload(module)
    else:
        del sys.modules[name]
        importlib.import_module(name)
    assert SHARED.registry.get("reloaded").target() == 22
    del SHARED.registry._tasks["reloaded"], sys.modules[name]


# Types ---------------------------------------------------------------------------------------------------------------


def takes_engine(size: int, engine: Engine) -> None: ...
def takes_many(engines: list[Engine]) -> None: ...
def takes_car(car: Car) -> None: ...
def gives_engine() -> Engine: ...  # type: ignore[empty-body]
def takes_late(late: Late) -> str:
    return late.part.name


@pytest.mark.parametrize(
    ("target", "where"),
    [
        (takes_engine, "parameter engine"),
        (takes_many, "parameter engines"),
        (takes_car, "parameter car"),
        (gives_engine, "the result"),
    ],
)
def test_a_type_that_json_cannot_hold_is_refused_at_declaration(
    app: App, target: Callable[..., Any], where: str
) -> None:
    with pytest.raises(BadSettings) as refused:
        app.task(target)
    assert str(refused.value) == (
        f"task {target.__name__}: {where}: values of tests.tasks.test_mistakes.Engine cannot be stored as JSON; "
        "use plain types, a dataclass or a pydantic model, or pass an id and load the object in the task"
    )
    assert target.__name__ not in app.registry


def test_a_type_whose_parts_are_defined_later_is_accepted(app: App) -> None:
    job = app.task(takes_late).enqueue(late=Late(DefinedBelow("x")))
    app.testing().drain()
    assert job.result() == "x"


# URLs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["", "+psycopg", "+asyncpg", "+psycopg2"])
def test_a_sqlalchemy_url_is_accepted_for_postgresql(driver: str) -> None:
    store = open_store(f"postgresql{driver}://ann:secret@db.example/jobs")
    assert store.url == "postgresql://ann@db.example/jobs"
    store.close()


def test_a_sqlalchemy_url_is_accepted_for_sqlite(tmp_path: Path) -> None:
    with App(f"sqlite+aiosqlite:///{tmp_path}/jobs.db") as app:
        assert isinstance(app.store, SqlStore)
        assert app.store.url == f"sqlite:///{tmp_path}/jobs.db"
