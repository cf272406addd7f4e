"""Tasks declared without an app, and apps configured after their creation."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidemill import App, Context, Cron, Job, Limit, ManualClock, Rate, TaskGroup, task
from tidemill.client.core import client_of
from tidemill.errors import BadSettings, DuplicateTask, UsageError
from tidemill.rest import create_api


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://") as made:
        yield made


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """A module with a group, a task of ``@task`` and tasks imported from elsewhere."""
    made = ModuleType("late_tasks")
    sys.modules[made.__name__] = made
    source = (
        "from tidemill import TaskGroup, task\n"
        "mail = TaskGroup('mail')\n"
        "@mail.task\n"
        "def send(to: str) -> str:\n"
        "    return f'sent to {to}'\n"
        "@task(queue='media')\n"
        "def resize(width: int) -> int:\n"
        "    return width // 2\n"
    )
    exec(source, vars(made))
    yield made
    del sys.modules[made.__name__]


def elsewhere(number: int) -> int:
    return number


def test_a_group_names_its_tasks_and_gives_them_default_options(app: App) -> None:
    mail = TaskGroup("mail", queue="mail", priority=5)

    @mail.task
    def send(to: str) -> str:
        return f"sent to {to}"

    @mail.task(name="bulk", priority=-5)
    async def send_many(ctx: Context, count: int) -> int:
        return count

    app.include(mail)
    assert app.registry.names() == ["mail.bulk", "mail.send"]
    assert (send.options.queue, send.options.priority) == ("mail", 5)
    assert (send_many.options.queue, send_many.options.priority) == ("mail", -5)
    jobs: list[Job[Any]] = [send.enqueue(to="ada"), send_many.using(delay=0).enqueue(count=3)]
    app.testing().drain()
    assert [job.result() for job in jobs] == ["sent to ada", 3]
    assert send("bob") == "sent to bob"


def test_every_way_to_enqueue_finds_the_app(app: App) -> None:
    @task
    def double(number: int) -> int:
        return 2 * number

    recipe = app.recipe(queue="night")
    later = recipe(double.using(priority=3))
    app.include(double)
    jobs = [later.enqueue(1), *double.enqueue_many([{"number": 2}]), asyncio.run(double.aenqueue(3))]
    jobs += asyncio.run(double.aenqueue_many([{"number": 4}]))
    assert (jobs[0].queue, jobs[0].priority) == ("night", 3)
    app.testing().drain()
    assert [job.refresh().value for job in jobs] == [2, 4, 6, 8]


def test_a_task_without_an_app_can_be_called_but_not_enqueued() -> None:
    @task
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8
    with pytest.raises(UsageError, match="no app includes task 'double'"):
        double.enqueue(number=1)
    app = App("memory://")
    app.include(double)
    app.close()
    with pytest.raises(UsageError, match="that includes task 'double' is closed"):
        double.enqueue(number=1)


def test_a_group_of_two_open_apps_needs_the_name_of_one() -> None:
    group = TaskGroup()
    double = group.task(elsewhere)
    with App("memory://") as first, App("memory://") as second:
        first.include(group)
        second.include(group)
        with pytest.raises(UsageError, match="2 apps include task 'elsewhere'"):
            double.enqueue(1)
        first.bound_task("elsewhere").enqueue(1)
        assert (first.jobs.count(), second.jobs.count()) == (1, 0)
        second.close()
        double.enqueue(2)
        assert first.jobs.count() == 2


def test_a_group_does_not_keep_an_app_alive() -> None:
    group = TaskGroup()
    double = group.task(elsewhere)
    app = App("memory://")
    app.include(group)
    app.close()
    del app
    gc.collect()
    with pytest.raises(UsageError, match="no app includes"):
        double.enqueue(1)


def test_tasks_and_schedules_declared_after_the_include_are_added(app: App) -> None:
    group = TaskGroup("night")
    app.include(group)

    @group.scheduled(Cron("0 2 * * *"), key="nightly")
    def clean(days: int = 30) -> int:
        return days

    app.include(group)
    assert "night.clean" in app.registry
    assert app.reconcile().added == ("nightly",)
    assert app.reconcile().unchanged == 1


def test_a_schedule_fires_a_task_of_a_group() -> None:
    group = TaskGroup()
    ran: list[int] = []

    @group.scheduled("*/5 * * * *")
    def clean(days: int = 30) -> None:
        ran.append(days)

    with App("memory://", clock=ManualClock()) as app:
        app.include(group)
        testing = app.testing()
        testing.drain()
        testing.advance("5m")
        testing.drain()
    assert ran == [30]


def test_a_module_is_included_by_name_or_as_an_object(app: App, module: ModuleType) -> None:
    vars(module)["borrowed"] = task(elsewhere)
    app.include("late_tasks")
    assert app.registry.names() == ["mail.send", "resize"]
    app.include(module)
    assert module.resize.enqueue(width=4).queue == "media"


def test_wrong_sources_are_refused(app: App) -> None:
    @app.task
    def own() -> None: ...

    wrong: Any = 5
    with pytest.raises(UsageError, match="already belongs to an app"):
        app.include(own)
    with pytest.raises(UsageError, match="'gc' has no TaskGroup"):
        app.include(gc)
    with pytest.raises(UsageError, match="got a int"):
        app.include(wrong)
    other = TaskGroup()
    other.task(name="own")(elsewhere)
    with pytest.raises(DuplicateTask):
        app.include(other)


def test_wrong_options_are_refused_at_the_group() -> None:
    with pytest.raises(BadSettings, match="name belongs to one task"):
        TaskGroup("mail", name="send")
    with pytest.raises(BadSettings, match="priority"):
        TaskGroup("mail", priority=1000)
    with pytest.raises(BadSettings):
        TaskGroup("")


def test_a_schedule_of_a_single_task_needs_an_app_or_a_group() -> None:
    from tidemill.task_group import _SingleTasks

    with pytest.raises(UsageError, match="needs an app or a TaskGroup"):
        _SingleTasks().schedule("x", "0 2 * * *")


# app.configure ------------------------------------------------------------------------------------------------------------


def test_configure_changes_the_store_of_tasks_that_exist(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with App("memory://") as app:
        double = app.task(elsewhere)
        app.scheduled("0 2 * * *", key="nightly", args={"number": 1})(double)
        app.reconcile()
        app.configure(url, migrate=True, name="shop", tenant="acme")
        assert (app.store_url(), app.name, app.migrates) == (url, "shop", True)
        job = double.enqueue(2)
        assert job.tenant == "acme"
        assert app.reconcile().added == ("nightly",)
        app.testing().drain()
        assert job.result() == 2
    with App(url) as other:
        assert other.jobs.get(job.id, tenant="acme").status == "completed"


def test_configure_keeps_what_it_is_not_given(tmp_path: Path) -> None:
    with App("memory://", args_limit=100, name="shop") as app:
        double = app.task(elsewhere)
        job = double.enqueue(1)
        app.configure(limits={"queue/mail": Rate(5, per="1s")})
        assert app.jobs.get(job.id).status == "pending"
        assert (client_of(app).limits.args, app.name) == (100, "shop")
        app.configure(limits={"queue/mail": Limit(1)})
        app.declare_limits()
        assert [limit.name for limit in app.limits.list()] == ["queue/mail"]


def test_configure_refuses_wrong_settings_and_changes_nothing() -> None:
    wrong: dict[str, Any] = {"nam": "shop"}
    with App("memory://", name="shop") as app:
        with pytest.raises(BadSettings, match="unknown setting 'nam'"):
            app.configure(**wrong)
        with pytest.raises(BadSettings, match="both give the default store"):
            app.configure("memory://", stores={"default": "memory://"})
        with pytest.raises(BadSettings):
            app.configure("nonsense://x", name="other")
        assert app.name == "shop"
        app.task(elsewhere).enqueue(1)


def test_configure_is_refused_while_the_app_is_in_use() -> None:
    with App("memory://") as app:
        with app.worker(concurrency=1, threads=1, children=0), pytest.raises(UsageError, match="in use"):
            app.configure("memory://")
        app.configure("memory://")
        create_api(app)
        with pytest.raises(UsageError, match="in use"):
            app.configure(name="shop")


def test_an_app_takes_a_default_store_and_further_stores() -> None:
    with App("memory://", stores={"reports": "memory://"}) as app:
        assert (app.store_name, app.live_stores) == ("default", ("default", "reports"))
    with pytest.raises(BadSettings, match=r"store and stores\['jobs'\] both give the default store"):
        App("memory://", stores={"jobs": "memory://"})
