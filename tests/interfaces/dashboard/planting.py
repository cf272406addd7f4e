"""An app whose user texts are all hostile, and the URLs of its pages."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from tests.interfaces.dashboard.hostile import HOSTILE, NAMES
from tests.interfaces.dashboard.tour import addresses

from tidemill import App, BoundTask, Breaker, Context, Daily, Every, JobState, Limit, PermanentError, Review
from tidemill.client.access import acting
from tidemill.domain.bounds import LONGEST_KEY, LONGEST_TAG
from tidemill.domain.cluster import Worker
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.worker_reports import SlotCounts, SupervisorReport, WorkerReport
from tidemill.ids import new_id

Tasks = dict[str, BoundTask[Any, Any]]

SHORT = [text for text in HOSTILE if len(text) <= 64]
QUEUES = [name for name in NAMES[::5] if not name.startswith("@")]
TENANTS = NAMES[1::7]
TASKS = NAMES[2::9]
RUNNING = 30
FIELDS = (
    "text",
    "task",
    "queue",
    "tag",
    "tenant",
    "correlation_id",
    "cursor",
    "sort",
    "state",
    "since",
    "metadata",
    "reference",
)
PATIENCE = 60.0


def declare(app: App) -> Tasks:
    """Declare tasks that log, raise or return their arguments; some have hostile names."""

    @app.task(name="echo", retry=None)
    def echo(ctx: Context, texts: list[str]) -> list[str]:
        for number, text in enumerate(texts):
            ctx.log(text, level="warning" if number % 5 else "info", of=text, more={text: [text]})
        ctx.progress(1, 1, texts[-1])
        return texts

    @app.task(name="break", retry=None)
    def breaks(text: str) -> None:
        raise PermanentError(text)

    @app.task(name="raise", retry=None)
    def raises(text: str) -> None:
        raise type(text[:60] or "Empty", (Exception,), {})(text)

    @app.task(name="ask", retry=None)
    def ask(text: str) -> None:
        raise Review(text, output={"text": text, text: [text]})

    @app.task(name="hold", queue="held", retry=None, limits=[Limit(RUNNING, key="text")])
    async def hold(ctx: Context, text: str) -> None:
        with ctx.stage(text[:80]):
            ctx.log(text)
            ctx.progress(0.4, text)
            await asyncio.sleep(3600)

    made: Tasks = {task.name: task for task in (echo, breaks, raises, ask, hold)}
    for name in TASKS:

        def named(text: str = name) -> str:
            return text

        named.__doc__ = f"{name}\n\n{name}"
        made[name] = app.task(name=name, retry=None, tags=[name], breaker=Breaker(name))(named)
    return made


class World:
    """The created objects by the section of the dashboard that shows them."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.tasks = declare(app)
        self.ids: dict[str, list[str]] = {
            "acts": ["retry", "cancel", "delete", "<b>"],
            "jobs": [],
            "leases": ["duties", *NAMES[:2]],
            "limits": [f"queue/{name}" for name in QUEUES[:3]],
            "queues": QUEUES[:6],
            "settings": NAMES[:6:3],
            "tasks": ["echo", *TASKS],
            "tenants": TENANTS[1:3],
        }

    def plant(self) -> None:
        """Create everything once."""
        with acting(NAMES[0]):
            self._flows()
            self._jobs()
            self.ids["errors"] = [
                group.fingerprint for group in self.app.stats.errors(tenant=ALL_TENANTS).rows
            ][:4]
            self._plans()
            self._switches()
            self._cluster()

    def _enqueue(self, task: str, number: int, **args: Any) -> str:
        text = HOSTILE[number % len(HOSTILE)]
        options: dict[str, Any] = {
            "tags": [text[:LONGEST_TAG], SHORT[number % len(SHORT)]],
            "metadata": {text[:900]: text[:900], "plain": {text[:900]: [text[:900]]}},
            "reference": (text[:LONGEST_KEY], text[:LONGEST_KEY]),
            "correlation_id": SHORT[number % len(SHORT)],
            "queue": QUEUES[number % len(QUEUES)] if task != "hold" else "held",
            # the second tenant is never paused
            "tenant": TENANTS[number % len(TENANTS) if task != "hold" else 1],
        }
        return str(self.tasks[task].using(**options).enqueue(**args).id)

    def _jobs(self) -> None:
        jobs = self.ids["jobs"]
        jobs.append(self._enqueue("echo", 0, texts=HOSTILE))
        for number, text in enumerate(HOSTILE):
            made = self._enqueue("raise" if number % 3 else "break", number, text=text)
            if number % 60 == 0 or len(text) == 10_000:
                jobs.append(made)
        reviews = [self._enqueue("ask", number, text=text) for number, text in enumerate(HOSTILE[::4])]
        for number, name in enumerate(TASKS):
            self._enqueue(name, number)
        self.app.testing().drain()
        jobs += reviews[:3]
        for number, review in enumerate(reviews[3:30]):
            job = self.app.jobs.get(review, tenant=ALL_TENANTS)
            (job.approve if number % 2 else job.reject)(HOSTILE[number * 3][:2_000])
        jobs.append(reviews[4])
        for number, text in enumerate(HOSTILE[::7]):
            waits = self.tasks["echo"].using(delay=timedelta(hours=1), tenant=TENANTS[number % len(TENANTS)])
            job = waits.enqueue(texts=[text])
            if number % 2:
                job.cancel(text[:2_000])
            if number < 2:
                jobs.append(str(job.id))
        for number, text in enumerate(HOSTILE[:: len(HOSTILE) // RUNNING]):
            made = self._enqueue("hold", number, text=text)
            if number < 3:
                jobs.append(made)

    def _flows(self) -> None:
        flows = []
        for number, name in enumerate(NAMES[:6]):
            with self.app.tenant(TENANTS[number % len(TENANTS)]):
                flow = self.app.flow(name, key=name)
                first = flow.add(self.tasks["echo"], texts=[name]).named(name.replace("/", "|"))
                flow.add(self.tasks["raise" if number % 2 else "ask"], text=name).after(first)
                flow.finally_(self.tasks["echo"], texts=[name])
                run = flow.start()
                with self.app.batch(name, description=HOSTILE[number][:500]):
                    self.tasks["echo"].enqueue(texts=[name])
            if number == 5:
                run.cancel(HOSTILE[number][:2_000])
            flows.append(str(run.id))
        self.app.testing().drain()
        self.ids["flows"] = flows

    def _plans(self) -> None:
        schedules, definitions = [], []
        for number, name in enumerate(NAMES[::4]):
            tenant = TENANTS[number % len(TENANTS)]
            trigger = Every(timedelta(hours=1)) if number % 2 else Daily("02:30")
            made = self.app.schedules.add(
                self.tasks["echo"],
                trigger,
                name,
                args={"texts": [name]},
                tenant=tenant,
                timezone="Europe/Berlin",
                tags=[name],
            )
            if number % 3 == 0:
                self.app.schedules.pause(made.id, reason=HOSTILE[number][:2_000], tenant=tenant)
            schedules.append(str(made.id))
            self.app.definitions.save(
                name,
                self.tasks["echo"],
                args={"texts": [name]},
                name=name,
                owner=name,
                tenant=tenant,
                metadata={name: name},
            )
            definitions.append(name)
        self.ids |= {"schedules": schedules[:5], "definitions": definitions[:3]}

    def _switches(self) -> None:
        control = self.app.control
        for number, name in enumerate(NAMES[::3]):
            with acting(name):
                text = HOSTILE[number * 3 % len(HOSTILE)]
                control.set(name, {text: [text]}, description=text[:2_000])
                if number < len(QUEUES) and number % 2:
                    control.pause("queue", QUEUES[number], reason=text[:2_000])
                if number < len(TASKS) and number % 2:
                    control.pause("task", TASKS[number], reason=text[:2_000])
                if number < len(TENANTS) and number % 3 == 0:
                    control.pause("tenant", TENANTS[number], reason=text[:2_000])
                if number < len(QUEUES):
                    self.app.limits.set(f"queue/{QUEUES[number]}", number + 1)
                self.app.keys.create(name, role="viewer", tenant=TENANTS[number % len(TENANTS)])
        self.ids["keys"] = [key.id for key in self.app.keys.list()][:2]

    def _cluster(self) -> None:
        for number, name in enumerate(NAMES[::12]):
            worker = Worker(
                new_id(),
                name,
                host=name,
                pid=number,
                node=name,
                version=name,
                queues=tuple(QUEUES[:4]),
                tasks=tuple(TASKS[:4]),
                concurrency=5,
                supervisor=new_id(),
                place=1,
                report=WorkerReport(SlotCounts(5, 2, 1), supervisor=SupervisorReport(name, number, 1)),
            )
            self.app.store.register(worker, lease=timedelta(hours=1))
            self.ids.setdefault("workers", []).append(str(worker.id))
        self.ids["workers"] = self.ids["workers"][:2]

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Run a worker until all held jobs are running and have reported progress."""
        with self.app.worker("held", concurrency=RUNNING * 2, grace=0.1):
            waiting = threading.Event()
            for _ in range(int(PATIENCE / 0.05)):
                held = self.app.jobs.list(task="hold", status=JobState.RUNNING, tenant=ALL_TENANTS)
                if len(held.items) >= RUNNING and all(job.progress for job in held.items):
                    break
                waiting.wait(0.05)
            else:
                raise AssertionError("the held jobs did not begin")
            yield

    def addresses(self, path: str) -> list[str]:
        """The URLs of the page declared at this path."""
        return addresses(path, self.ids)


def searches() -> list[str]:
    """Search URLs with hostile texts."""
    some = [text for text in HOSTILE if len(text) < 1_000]
    return [
        f"/jobs?{urlencode({name: text})}"
        for number, text in enumerate(some)
        for name in (FIELDS[number % len(FIELDS)],)
    ]
