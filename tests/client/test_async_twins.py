"""Every public async twin, run once and compared with its synchronous method.

The list comes from the classes themselves, so a new twin without a story fails. ``Context.acomplete`` needs a database
of its own and is run by the tests of users' connections.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from tests.client.archive_twins import archive_stories
from tests.client.error_twins import error_stories
from tests.client.shard_twins import shard_stories

from tidemill import (
    App,
    BoundTask,
    Breaker,
    Context,
    Event,
    Every,
    Job,
    JobState,
    ManualClock,
    PermanentError,
    Review,
    acting,
)
from tidemill.client._base import TWINS, async_twin
from tidemill.client.core import client_of
from tidemill.client.flows.batches import BatchRun
from tidemill.client.flows.builder import Flow
from tidemill.client.flows.run import FlowRun
from tidemill.client.secrets import Rotation
from tidemill.domain.alert_history import NewAlert
from tidemill.domain.audit_export import checked_export
from tidemill.domain.cluster import Worker
from tidemill.domain.worker_reports import SlotCounts, WorkerReport
from tidemill.errors import JobNotFound
from tidemill.ids import new_id
from tidemill.tasks.secret_values import KEYS, new_key

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
APIS = (
    "jobs",
    "archive",
    "definitions",
    "schedules",
    "stats",
    "signals",
    "flows",
    "batches",
    "control",
    "keys",
    "access",
    "sessions",
    "audit",
    "limits",
    "errors",
    "alerts",
    "notifications",
    "subscriptions",
    "secrets",
    "shards",
)


class House:
    """An app in memory with jobs in several states, and one of everything that the APIs manage."""

    def __init__(self) -> None:
        self.app = app = App(
            "memory://",
            clock=ManualClock(START),
            limits={"queue/mail": 5},
            smtp="smtp://mail.example.com?from=jobs@example.com",
            notify={"ops": "mailto:ops@example.com"},
        )
        self.handled: list[Event] = []
        app.on("order.*", self.handled.append, durable="orders")
        self.send: BoundTask[..., str] = app.task(name="send", queue="mail", breaker=Breaker("post"))(_send)
        self.look: BoundTask[..., Any] = app.task(name="look")(_look)
        self.done = self.send.enqueue(to="ada")
        self.review = self.look.enqueue(what="this")
        app.testing().drain()
        self.later = self.send.using(delay=HOUR).enqueue(to="grace")
        self.child = self.send.using(parent=self.done.id).enqueue(to="alan")
        app.definitions.save("letters", self.send, args={"to": "ada"})
        app.definitions.save("letters", name="Letters")
        app.schedules.add(self.send, Every(HOUR), "hourly", args={"to": "ada"})
        self.key = app.keys.create("ci")
        app.control.pause("queue", "slow", reason="repairs")
        app.control.set("colour", "blue")
        report = WorkerReport(SlotCounts(4, 2, 0))
        self.worker = app.store.register(
            Worker(new_id(), "w1", supervisor=new_id(), place=1, report=report), lease=HOUR
        )
        app.store.acquire("duties", self.worker.id, ttl=HOUR, now=START)
        app.limits.set("queue/other", 3)

    def archived(self) -> UUID:
        """Archive the ended job and return its id."""
        assert self.app.archive.run(older_than=0).archived >= 1
        return self.done.id


def _send(to: str) -> str:
    return f"sent to {to}"


def _look(what: str) -> None:
    raise Review("is this right?", output=None)


@pytest.fixture
def house() -> Iterator[House]:
    found = House()
    with found.app:
        yield found


def twins(house: House) -> dict[str, Callable[..., Any]]:
    """Every async method of the public classes that has a synchronous one."""
    classes = [
        App,
        BoundTask,
        Job,
        Flow,
        FlowRun,
        BatchRun,
        *(type(getattr(house.app, name)) for name in APIS),
    ]
    classes.append(type(house.app.testing()))
    return {
        f"{cls.__name__}.{name}": method
        for cls in classes
        for name, method in inspect.getmembers(cls)
        if name.startswith("a")
        and (inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method))
        and hasattr(cls, name[1:])
    }


def _flow(house: House) -> FlowRun:
    """Start a flow of two jobs."""
    flow = house.app.flow("letters")
    first = flow.add(house.send, to="ada").named("first")
    flow.add(house.send, to="grace").named("second").after(first)
    return flow.start()


async def _acknowledged(house: House) -> Any:
    house.app.store.open_alerts([NewAlert(new_id(), "orphans", "", "warning", "one", 1, 0)], now=START)
    return await house.app.alerts.aacknowledge(house.app.alerts.list()[0].id)


async def _delivered(house: House) -> int:
    house.app.events.publish(Event("order.paid", START))
    await house.app.subscriptions.adeliver()
    return len(house.handled)


async def _removed_subscription(house: House) -> int:
    house.app.events.publish(Event("order.paid", START))
    return await house.app.subscriptions.aremove("orders")


async def _started_flow(house: House) -> Any:
    flow = house.app.flow("letters")
    flow.add(house.send, to="ada")
    return (await flow.astart()).status


async def _done_flow(house: House) -> FlowRun:
    run = _flow(house)
    await house.app.testing().adrain()
    return run


async def _flow_result(house: House) -> Any:
    return await (await _done_flow(house)).aresult(timeout=5)


async def _watched_flow(house: House) -> Any:
    return [seen.status async for seen in (await _done_flow(house)).awatch()][-1]


async def _refreshed_flow(house: House) -> Any:
    return (await (await _done_flow(house)).arefresh()).status


def _fail(to: str) -> str:
    raise PermanentError(f"no letter to {to}")


async def _retried_flow(house: House) -> Any:
    flow = house.app.flow("bills")
    flow.add(house.app.task(name="bill")(_fail), to="ada")
    run = flow.start()
    await house.app.testing().adrain()
    assert run.refresh().status == "failed"
    return (await run.aretry()).refresh().status


async def _retried_batch(house: House) -> Any:
    bill = house.app.task(name="bill")(_fail)
    with house.app.batch("bills") as batch:
        bill.enqueue(to="ada")
    await house.app.testing().adrain()
    run = house.app.batches.get(batch.id)
    assert run.status == "failed"
    return (await run.aretry_failed()).refresh().status


def _batch(house: House) -> BatchRun:
    with house.app.batch("letters") as batch:
        house.send.enqueue(to="ada")
        house.send.enqueue(to="grace")
    return house.app.batches.get(batch.id)


async def _done_batch(house: House) -> BatchRun:
    batch = _batch(house)
    await house.app.testing().adrain()
    return batch


async def _batch_result(house: House) -> Any:
    return (await (await _done_batch(house)).aresult(timeout=5)).total


async def _refreshed_batch(house: House) -> Any:
    return (await (await _done_batch(house)).arefresh()).status


async def _answered(house: House) -> Any:
    """Answer the question of a suspended job."""

    class Decision(BaseModel):
        granted: bool

    def decide(ctx: Context) -> bool:
        decision = ctx.ask(Decision)
        return decision is not None and decision.granted

    job = house.app.task(name="decide")(decide).enqueue()
    await house.app.testing().adrain()
    return await house.app.signals.aanswer(job, {"granted": True})


async def _streamed(house: House) -> list[Any]:
    return [item async for item in house.done.astream("tokens")]


async def _watched(house: House) -> list[JobState]:
    return [seen.status async for seen in house.done.awatch()]


async def _deleted(house: House) -> bool:
    await house.done.adelete()
    try:
        house.app.jobs.get(house.done.id)
    except JobNotFound:
        return True
    return False


async def _retried(house: House) -> int:
    house.later.cancel()
    return (await house.app.jobs.aretry(status="cancelled")).done


async def _ran_now(house: House) -> JobState:
    assert (await house.app.jobs.arun_now(task="send")).done == 1
    return house.later.refresh().status


async def _rescheduled(house: House) -> datetime:
    assert (await house.app.jobs.areschedule(at="2h", status="scheduled")).done == 1
    return house.later.refresh().run_at


async def _removed_schedule(house: House) -> int:
    await house.app.schedules.aremove("hourly")
    return len(house.app.schedules.list())


async def _removed_definition(house: House) -> int:
    await house.app.definitions.aremove("letters")
    return len(house.app.definitions.list())


async def _restored(house: House) -> str | None:
    house.app.definitions.remove("letters")
    return (await house.app.definitions.arestore("letters", 1)).name


def _reading(api: str, name: str, *args: Any, **kwargs: Any) -> Story:
    """A story of a method that changes nothing: both versions return the same."""

    async def both(house: House) -> bool:
        found = getattr(house.app, api)
        answer = await getattr(found, f"a{name}")(*args, **kwargs)
        return bool(answer == getattr(found, name)(*args, **kwargs))

    return both, True


Story = tuple[Callable[[House], Awaitable[Any]], Any]
"""What to run, and the result; a function checks the result."""


async def _rotated(house: House) -> Rotation:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEYS, new_key("k1"))
        return await house.app.secrets.arotate()


STORIES: dict[str, Story] = {
    **archive_stories(),
    **error_stories(),
    **shard_stories(),
    "App.aenqueue": (lambda it: it.app.aenqueue("send", to="ada"), lambda job: job.task == "send"),
    "BoundTask.aenqueue": (lambda it: it.send.aenqueue(to="ada"), lambda job: job.args == {"to": "ada"}),
    "BoundTask.aenqueue_many": (
        lambda it: it.send.aenqueue_many([{"to": "ada"}, {"to": "alan"}]),
        lambda jobs: [job.args["to"] for job in jobs] == ["ada", "alan"],
    ),
    "Testing.adrain": (lambda it: it.app.testing().adrain(), lambda done: done.processed == 1),
    "Testing.aresume_all": (lambda it: it.app.testing().aresume_all(), lambda done: done.processed >= 1),
    "Testing.arun_until_idle": (
        lambda it: it.app.testing().arun_until_idle("90m"),
        lambda done: done.processed >= 2,
    ),
    # One job
    "Job.aapprove": (lambda it: it.review.aapprove("fine"), lambda job: job.status == "completed"),
    "Job.areject": (lambda it: it.review.areject("no"), lambda job: job.status == "failed"),
    "Job.arerun": (lambda it: it.review.arerun(), lambda job: job.status == "pending"),
    "Job.acancel": (lambda it: it.later.acancel("late"), lambda job: job.reason == "late"),
    "Job.achange": (lambda it: it.later.achange(priority=7), lambda job: job.priority == 7),
    "Job.achildren": (lambda it: it.done.achildren(), lambda jobs: [job.args["to"] for job in jobs] == ["alan"]),
    "Job.aparent": (lambda it: it.child.aparent(), lambda job: job is not None and job.task == "send"),
    "Job.adelete": (_deleted, True),
    "Job.aexecutions": (lambda it: it.done.aexecutions(), lambda found: [each.number for each in found] == [1]),
    "Job.alogs": (lambda it: it.done.alogs(level="info"), []),
    "Job.arefresh": (lambda it: it.done.arefresh(), lambda job: job.value == "sent to ada"),
    "Job.areschedule": (lambda it: it.later.areschedule("2h"), lambda job: job.run_at == START + 2 * HOUR),
    "Job.arun_now": (lambda it: it.later.arun_now(), lambda job: job.status == "pending"),
    "Job.aresult": (lambda it: it.done.aresult("5s"), "sent to ada"),
    "Job.aretry": (lambda it: it.app.jobs.get(it.later.id).cancel().aretry(), lambda job: job.status == "pending"),
    "Job.asteps": (lambda it: it.done.asteps(), []),
    "Job.astages": (lambda it: it.done.astages(), []),
    "Job.astreams": (lambda it: it.done.astreams(), {}),
    "Job.astream": (_streamed, []),
    "Job.awatch": (_watched, [JobState.COMPLETED]),
    "Job.awhy": (lambda it: it.later.awhy(), lambda why: why[0].code == "scheduled"),
    # Jobs
    "Jobs.aget": (lambda it: it.app.jobs.aget(it.done.id), lambda job: job.task == "send"),
    "Jobs.awhy": (lambda it: it.app.jobs.awhy(it.later.id), lambda why: why[0].code == "scheduled"),
    "Jobs.alist": (lambda it: it.app.jobs.alist(task="look"), lambda page: [job.task for job in page.items] == ["look"]),
    "Jobs.acount": (lambda it: it.app.jobs.acount(task="send"), 3),
    "Jobs.acounts": (lambda it: it.app.jobs.acounts(task="look"), {JobState.REVIEW_NEEDED: 1}),
    "Jobs.asearch_logs": (lambda it: it.app.jobs.asearch_logs("no job says this"), lambda page: page.items == []),
    "Jobs.acancel": (lambda it: it.app.jobs.acancel(status="scheduled"), lambda acted: acted.done == 1),
    "Jobs.aretry": (_retried, 1),
    "Jobs.adelete": (lambda it: it.app.jobs.adelete(status="completed"), lambda acted: acted.done == 1),
    "Jobs.achange": (
        lambda it: it.app.jobs.achange(priority=3, status="scheduled"),
        lambda acted: acted.done == 1,
    ),
    "Jobs.arun_now": (_ran_now, JobState.PENDING),
    "Jobs.areschedule": (_rescheduled, START + 2 * HOUR),
    # Definitions
    "Definitions.asave": (
        lambda it: it.app.definitions.asave("cards", it.send, args={"to": "alan"}),
        lambda found: found.key == "cards",
    ),
    "Definitions.aget": _reading("definitions", "get", "letters"),
    "Definitions.alist": _reading("definitions", "list", task="send"),
    "Definitions.aversions": _reading("definitions", "versions", "letters"),
    "Definitions.aenable": (lambda it: it.app.definitions.aenable("letters"), lambda found: found.enabled),
    "Definitions.adisable": (lambda it: it.app.definitions.adisable("letters"), lambda found: not found.enabled),
    "Definitions.atrigger": (
        lambda it: it.app.definitions.atrigger("letters", args={"to": "alan"}),
        lambda job: job.args == {"to": "alan"},
    ),
    "Definitions.aremove": (_removed_definition, 0),
    "Definitions.arestore": (_restored, ""),
    # Schedules
    "Schedules.aadd": (
        lambda it: it.app.schedules.aadd(it.send, "0 2 * * *", "nightly", args={"to": "ada"}),
        lambda found: found.key == "nightly",
    ),
    "Schedules.aget": _reading("schedules", "get", "hourly"),
    "Schedules.alist": _reading("schedules", "list", enabled=True),
    "Schedules.apreview": _reading("schedules", "preview", "hourly", 2),
    "Schedules.awhy": _reading("schedules", "why", "hourly"),
    "Schedules.afires": _reading("schedules", "fires", "hourly", limit=5),
    "Schedules.aupdate": (
        lambda it: it.app.schedules.aupdate("hourly", overlap="allow"),
        lambda found: found.overlap == "allow",
    ),
    "Schedules.apause": (lambda it: it.app.schedules.apause("hourly", reason="tired"), lambda found: found.note == "tired"),
    "Schedules.aresume": (lambda it: it.app.schedules.aresume("hourly"), lambda found: found.enabled),
    "Schedules.aremove": (_removed_schedule, 0),
    "Schedules.atrigger": (lambda it: it.app.schedules.atrigger("hourly"), lambda job: job.task == "send"),
    "Schedules.abackfill": (
        lambda it: it.app.schedules.abackfill("hourly", START - 2 * HOUR, START, limit=1),
        lambda done: done.fires == (START - 2 * HOUR,) and done.more,
    ),
    # Control
    "Control.apause": (lambda it: it.app.control.apause("task", "send"), lambda pause: pause.name == "send"),
    "Control.aresume": (lambda it: it.app.control.aresume("queue", "slow"), lambda pause: pause.reason == "repairs"),
    "Control.apauses": _reading("control", "pauses"),
    "Control.asettings": _reading("control", "settings"),
    "Control.aset": (lambda it: it.app.control.aset("colour", "red"), lambda setting: setting.value == "red"),
    "Control.aunset": (lambda it: it.app.control.aunset("colour"), True),
    "Control.aset_all": (lambda it: it.app.control.aset_all({"shape": "round", "size": 3}), None),
    "Control.apause_worker": (lambda it: it.app.control.apause_worker(it.worker.id), True),
    "Control.aresume_worker": (lambda it: it.app.control.aresume_worker(it.worker.id), False),
    "Control.ascale_worker": (
        lambda it: it.app.control.ascale_worker(it.worker.id, threads=3),
        lambda scale: scale.slots.threads == 3,
    ),
    "Control.adrain": (lambda it: it.app.control.adrain(it.worker.id), True),
    "Control.arelease": (lambda it: it.app.control.arelease("duties"), True),
    # Keys, audit and limits
    "Keys.acreate": (lambda it: it.app.keys.acreate("two", expires="1h"), lambda new: new.key.expires_at == START + HOUR),
    "Keys.aget": (lambda it: it.app.keys.aget(it.key.key.id), lambda key: key.name == "ci"),
    "Keys.alist": _reading("keys", "list"),
    "Keys.aany": _reading("keys", "any"),
    "Keys.aidentify": (lambda it: it.app.keys.aidentify(it.key.secret), lambda found: found.role == "viewer"),
    "Keys.aidentity": (lambda it: it.app.keys.aidentity(it.key.key.id), lambda found: found.role == "viewer"),
    "AccessApi.aacts": (lambda it: it.app.access.aacts(), lambda acts: "jobs.run" in acts),
    "AccessApi.aexplain": (lambda it: it.app.access.aexplain(it.key.key.id, "jobs.run"), lambda told: not told.allowed),
    "SessionApi.abegin": (lambda it: it.app.sessions.abegin("ann", HOUR), lambda cookie: len(cookie) == 43),
    "SessionApi.aget": (lambda it: it.app.sessions.aget("none"), None),
    "SessionApi.alist": _reading("sessions", "list"),
    "SessionApi.asign_out": (lambda it: it.app.sessions.asign_out("none"), None),
    "SessionApi.aend": (lambda it: it.app.sessions.aend([]), []),
    "SessionApi.aend_of": (lambda it: it.app.sessions.aend_of("ann"), []),
    "Keys.arevoke": (lambda it: it.app.keys.arevoke(it.key.key.id), lambda key: key.revoked_at is not None),
    "Audit.alist": _reading("audit", "list", tenant="*", limit=3),
    "Audit.aexport": (
        lambda it: it.app.audit.aexport("k" * 32),
        lambda lines: checked_export(lines, "k" * 32).ok,
    ),
    "Audit.acheck_export": (
        lambda it: it.app.audit.acheck_export(it.app.audit.export("k" * 32), "k" * 32),
        lambda found: found.ok,
    ),
    "Secrets.astatus": _reading("secrets", "status"),
    "Secrets.arotate": (_rotated, lambda done: done.active == "k1"),
    "Definitions.aparameters": _reading("definitions", "parameters", "letters"),
    "Audit.averify": (lambda it: it.app.audit.averify(), lambda found: found.broken_at is None),
    "Limits.alist": _reading("limits", "list"),
    "Limits.aget": _reading("limits", "get", "queue/other"),
    "Limits.adeclared": _reading("limits", "declared"),
    "Limits.aset": (lambda it: it.app.limits.aset("queue/other", 9, per="1m"), lambda state: state.rule.max == 9),
    "Limits.aunset": (lambda it: it.app.limits.aunset("queue/other"), True),
    "Limits.areset_breaker": (lambda it: it.app.limits.areset_breaker("post"), lambda state: state.phase == "closed"),
    "Control.atenants": _reading("control", "tenants"),
    "Control.aset_tenant": (lambda it: it.app.control.aset_tenant("acme", {"weight": 2}), {"weight": 2}),
    "Control.aset_task": (lambda it: it.app.control.aset_task("send", {"max_attempts": 2}), {"max_attempts": 2}),
    "Control.atask_overrides": (lambda it: it.app.control.atask_overrides("send"), {}),
    # Signals and events
    "App.asignal": (lambda it: it.app.asignal(it.later, "go"), True),
    "App.aemit": (lambda it: it.app.aemit("paid"), lambda event: event.name == "paid"),
    "Signals.asend": (lambda it: it.app.signals.asend(it.later, "go", key="k"), True),
    "Signals.alist": (lambda it: it.app.signals.alist(it.later), []),
    "Signals.aemit": (lambda it: it.app.signals.aemit("paid"), lambda event: event.name == "paid"),
    "Signals.aevents": _reading("signals", "events"),
    "Signals.aquestions": _reading("signals", "questions"),
    "Signals.aanswer": (_answered, lambda question: question.title == "Decision"),
    # Flows and batches
    "Flow.astart": (_started_flow, "running"),
    "Flows.aget": (lambda it: it.app.flows.aget(_flow(it).id), lambda run: run.name == "letters"),
    "Flows.alist": (lambda it: (_flow(it), it.app.flows.alist())[1], lambda page: len(page) == 1),
    "FlowRun.asignal": (lambda it: _flow(it).asignal("first", "go"), True),
    "FlowRun.awhy": (lambda it: _flow(it).awhy("first"), lambda why: len(why) > 0),
    "FlowRun.acancel": (lambda it: _flow(it).acancel("enough"), lambda run: run.row.cancel_reason == "enough"),
    "FlowRun.agraph": (lambda it: _flow(it).agraph(), lambda graph: len(graph.nodes) == 2),
    "FlowRun.atimeline": (lambda it: _flow(it).atimeline(), lambda rows: rows == []),
    "FlowRun.anodes": (lambda it: _flow(it).anodes(), lambda nodes: [node.name for node in nodes] == ["first", "second"]),
    "FlowRun.arefresh": (_refreshed_flow, "completed"),
    "FlowRun.aretry": (_retried_flow, "running"),
    "FlowRun.askip": (lambda it: _flow(it).askip("first", "nobody"), lambda run: run.node("first").status == "completed"),
    "FlowRun.awatch": (_watched_flow, "completed"),
    "FlowRun.aresult": (_flow_result, None),
    "Batches.aget": (lambda it: it.app.batches.aget(_batch(it).id), lambda batch: batch.name == "letters"),
    "Batches.alist": (lambda it: (_batch(it), it.app.batches.alist())[1], lambda page: len(page) == 1),
    "BatchRun.acancel": (lambda it: _batch(it).acancel("enough"), lambda batch: batch.row.cancel_reason == "enough"),
    "BatchRun.acounts": (lambda it: _batch(it).acounts(), lambda counts: counts.total == 2),
    "BatchRun.atimeline": (lambda it: _batch(it).atimeline(), lambda rows: rows == []),
    "BatchRun.arefresh": (_refreshed_batch, "completed"),
    "BatchRun.aretry_failed": (_retried_batch, "running"),
    "BatchRun.aresult": (_batch_result, 2),
    # Alerts, notifications and subscriptions
    "Alerts.aevaluate": (lambda it: it.app.alerts.aevaluate(), lambda alerts: isinstance(alerts, list)),
    "Alerts.alist": _reading("alerts", "list"),
    "Alerts.ahistory": _reading("alerts", "history"),
    "Alerts.aacknowledge": (_acknowledged, lambda alert: alert.acknowledged_by is not None),
    "Notifications.alist": _reading("notifications", "list"),
    "Notifications.achannels": _reading("notifications", "channels"),
    # No mail server listens there: the test reports it.
    "Notifications.atest": (
        lambda it: it.app.notifications.atest("ops"),
        lambda tests: [test.answer for test in tests] == [None],
    ),
    "Notifications.asend": (lambda it: it.app.notifications.asend("ops", "hello"), lambda job: job.queue == "tidemill.notifications"),
    "Subscriptions.alist": _reading("subscriptions", "list"),
    "Subscriptions.adeliver": (_delivered, 1),
    "Subscriptions.aremove": (_removed_subscription, 1),
    # Statistics
    **{
        f"StatsApi.a{name}": _reading("stats", name)
        for name in (
            "active_workers", "alerts", "archival", "by_status", "dead_letters", "depth_history", "durations", "errors", "failures",
            "health", "lag", "leaders", "metrics", "orphans", "overdue", "overview", "queue_depth", "retries", "stuck",
            "tenants", "throughput", "worker_performance",
        )
    },
    "StatsApi.athroughput_by": _reading("stats", "throughput_by", "task", "1h"),
}  # fmt: skip
"""One run of every twin."""


def test_every_twin_has_a_story(house: House) -> None:
    assert sorted(twins(house)) == sorted(STORIES)
    assert set(TWINS) <= set(STORIES)


@pytest.mark.parametrize("name", sorted(STORIES))
def test_a_twin_does_what_its_method_does(house: House, name: str) -> None:
    act, expected = STORIES[name]
    ran = threading.Event()
    answer = asyncio.run(_noting(act(house), ran))
    assert ran.is_set()
    assert expected(answer) if callable(expected) else answer == expected


async def _noting(act: Awaitable[Any], ran: threading.Event) -> Any:
    answer = await act
    ran.set()
    return answer


@pytest.mark.parametrize("name", sorted(TWINS))
def test_a_derived_twin_has_the_signature_of_its_method(house: House, name: str) -> None:
    twin = twins(house)[name]
    cls, _, own = name.partition(".")
    method = inspect.unwrap(twin)
    assert method.__name__ == own[1:]
    assert twin.__qualname__ == f"{cls}.{own}"
    assert inspect.signature(twin) == inspect.signature(method)


def test_a_twin_runs_in_a_thread_with_the_callers_tenant_and_identity(house: House) -> None:
    async def story() -> None:
        with acting("ada"), house.app.tenant("acme"):
            await house.app.schedules.aadd(house.send, Every(HOUR), "acme-hourly", args={"to": "ada"})
        (record,) = await house.app.audit.alist(tenant="acme")
        assert (record.entry.who, record.entry.action) == ("ada", "schedule.added")

    asyncio.run(story())


def test_a_twin_runs_an_overridden_method_off_the_event_loop(house: House) -> None:
    class Base:
        def __init__(self) -> None:
            self._client = client_of(house.app)

        def where(self) -> str:
            raise NotImplementedError

        awhere = async_twin(where)

    class Derived(Base):
        def where(self) -> str:
            return threading.current_thread().name

    TWINS.pop(Base.awhere.__qualname__)
    assert asyncio.run(Derived().awhere()).startswith("tidemill-client")
