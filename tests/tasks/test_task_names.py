"""Default names of tasks, with and without the module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidemill import App, TaskGroup
from tidemill.errors import BadSettings, DuplicateTask, TaskNotFound


def function_of(module: str, name: str = "send") -> Any:
    """A function as a module declares it."""
    code = f"def {name}(to: str) -> str:\n    return __name__ + ' ' + to\n"
    made = ModuleType(module)
    exec(compile(code, f"/{module}.py", "exec"), vars(made))
    return vars(made)[name]


def test_a_task_has_the_name_of_its_function() -> None:
    with App("memory://") as app:
        assert app.task(function_of("shop.mail")).name == "send"


def test_with_the_setting_a_default_name_contains_the_module() -> None:
    with App("memory://", task_names="module") as app:
        assert app.task(function_of("shop.mail")).name == "shop.mail.send"
        assert app.task(function_of("shop.post")).name == "shop.post.send"
        assert app.task(name="letter")(function_of("shop.letters")).name == "letter"


def test_a_group_takes_the_name_of_its_module_as_prefix() -> None:
    assert TaskGroup("shop.mail").task(function_of("shop.mail")).name == "shop.mail.send"


@pytest.mark.parametrize("given", ["path", None, True])
def test_an_unknown_kind_of_name_is_refused(given: Any) -> None:
    with pytest.raises(BadSettings, match="task_names is"):
        App("memory://", task_names=given)


def test_jobs_that_wait_under_the_bare_name_run_after_the_setting_is_turned_on() -> None:
    with App("memory://") as before:
        before.task(function_of("shop.mail"))
        job = before.enqueue("send", to="ada")
        with App(before.store, task_names="module") as after:
            after.task(function_of("shop.mail"))
            assert after.registry.served_names().count("send") == 1
            with after.worker():
                assert after.jobs.get(job.id).result(timeout=30) == "shop.mail ada"


def test_a_bare_name_of_two_tasks_belongs_to_neither() -> None:
    with App("memory://", task_names="module") as app:
        app.task(function_of("shop.mail"))
        assert app.bound_task("send").name == "shop.mail.send"
        app.task(function_of("shop.post"))
        assert "send" not in app.registry
        assert "send" not in app.registry.served_names()
        with pytest.raises(TaskNotFound):
            app.bound_task("send")


def test_an_alias_or_a_name_decides_whose_jobs_a_bare_name_are() -> None:
    with App("memory://", task_names="module") as app:
        app.task(function_of("shop.mail"))
        app.task(aliases=["send"])(function_of("shop.post"))
        assert app.bound_task("send").name == "shop.post.send"
        assert app.registry.served_names().count("send") == 1
        app.task(name="other")(function_of("shop.letters"))
        with pytest.raises(DuplicateTask):
            app.task(name="send")(function_of("shop.stamps"))
    with App("memory://", task_names="module") as app:
        app.task(function_of("shop.mail"))
        app.task(name="send")(function_of("shop.post"))
        assert app.bound_task("send").name == "send"


PROGRAM = """
from tidemill import App

app = App("memory://", task_names="module")


@app.task
def send() -> None: ...


print(app.registry.names())
"""


@pytest.mark.parametrize("words", [["shop.py"], ["-m", "shop"], ["-c", "import shop"]])
def test_a_program_has_one_name_however_it_is_started(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "['shop.send']"
