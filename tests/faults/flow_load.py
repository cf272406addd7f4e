"""The flows of a chaos run: a producer, a sender of signals, and an operator who tries what must be refused.

A key holds the parameters of its flow, so that the checks know what the flow must look like even if the answer to its start was lost.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

import psycopg
from tests.faults.chaos_app import ChaosApp
from tests.faults.kit import clock

from tidemill import ArchivePolicy, each
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import ENDED, LIVE
from tidemill.errors import IllegalTransition, JobNotFound, StoreError, TidemillError
from tidemill.ids import new_id
from tidemill.tasks.ambient import tenant_scope

TENANTS = ("default", "another")
_BROKEN = (StoreError, psycopg.Error, sqlite3.Error)
_GATES = ArchivePolicy("gates", tasks=["f.gates"], max_age=0, batch=2)
_EVERY = 0.5
_PATIENCE = 240.0


class FlowLoad:
    """One thread that starts flows, sends signals, and looks at waiting jobs."""

    def __init__(self, chaos_app: ChaosApp, random: Random) -> None:
        self._app, self._tasks, self._random = chaos_app.app, chaos_app.tasks, Random(random.random())
        self.started: Counter[str] = Counter()
        self.sent: dict[UUID, dict[str, int]] = {}  #: accepted signals by receiver: key and payload
        self.unexplained: list[str] = []  #: waiting jobs that ``why`` could not explain
        self.explained = 0
        self.escaped: list[str] = []  #: jobs of live flows that could be deleted
        self.refused = 0
        self._unsent: deque[tuple[UUID, str, str, int, bool]] = deque()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults-flows")
        self._kinds: dict[str, tuple[int, Callable[[str], None]]] = {
            "diamonds": (4, self._diamond),
            "maps": (3, self._map),
            "choices": (2, self._choice),
            "growing": (3, self._growing),
            "gates": (2, self._gate),
            "sagas": (3, self._saga),
            "batches": (3, self._batch),
            "durables": (5, self._durable),
        }

    def __enter__(self) -> FlowLoad:
        # Before the first fault: a short run may not draw every kind, or find each gate ended.
        for kind in self._kinds:
            self._start(kind)
        self._try(self._send_one)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop starting flows."""
        self._over.set()
        self._thread.join(120)

    def _run(self) -> None:
        weights = [weight for weight, _ in self._kinds.values()]
        while not self._over.wait(self._random.uniform(0.5, 1.5) * _EVERY):
            (kind,) = self._random.choices(list(self._kinds), weights)
            self._try(partial(self._start, kind))
            self._try(self._send_one)
            if self._random.random() < 0.3:
                self._try(self._explain)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except _BROKEN:
            return
        except TidemillError:
            return  # such as an archive run that another one excludes

    def _start(self, kind: str) -> None:
        tenant = self._random.choice(TENANTS)
        with tenant_scope(tenant):
            self._kinds[kind][1](tenant)
        self.started[kind] += 1

    def _key(self, *parameters: object) -> str:
        return ":".join([*map(str, parameters), new_id().hex])

    # Kinds ---------------------------------------------------------------------------------------------------------------

    def _diamond(self, _tenant: str) -> None:
        fails = self._random.random() < 0.25
        flow = self._app.flow("f.diamonds", key=self._key(int(fails)))
        work = self._tasks["f.work"]
        first = flow.add(work, value=1).named("first")
        left = flow.add(work, value=2, seconds=self._random.choice([0.0, 0.3])).after(first).named("left")
        right = flow.add(work, value=3, fails=fails).after(first).named("right")
        flow.add(self._tasks["f.total"], parts=[left.result, right.result]).named("sum")
        flow.add(work, value=4).after(right, on="failure").named("rescue")
        flow.finally_(work, value=5)
        flow.start()

    def _map(self, _tenant: str) -> None:
        count = self._random.choice([0, 1, 3, 12, 80])
        flow = self._app.flow("f.maps", key=self._key(count))
        numbers = flow.add(self._tasks["f.items"], count=count).named("numbers")
        parts = flow.map(self._tasks["f.work"], value=each(numbers.result)).named("parts")
        flow.add(self._tasks["f.total"], parts=parts.results).named("sum")
        flow.start()

    def _choice(self, _tenant: str) -> None:
        flow = self._app.flow("f.choices", key=self._key())
        work = self._tasks["f.work"]
        needs = [
            flow.add(work, value=n, fails=n == 2, seconds=0.1 * n).named(f"need{n}").may_fail()
            for n in range(3)
        ]
        flow.add(work, value=9).after(*needs).needs(2).named("end")
        flow.start()

    def _growing(self, _tenant: str) -> None:
        count = self._random.randint(0, 4)
        flow = self._app.flow("f.growing", key=self._key(count))
        plan = flow.add(self._tasks["f.plan"], count=count).named("plan")
        flow.add(self._tasks["f.work"], value=1).after(plan).named("end")
        flow.start()

    def _gate(self, tenant: str) -> None:
        flow = self._app.flow("f.gates", key=self._key())
        work = self._tasks["f.work"]
        first = flow.add(work, value=1).named("first")
        gate = flow.add(self._tasks["f.gate"]).after(first).named("gate")
        flow.add(work, value=2).after(gate).named("end")
        run = flow.start()
        self._signal(run.node("gate").id, tenant, flow=True)

    def _saga(self, _tenant: str) -> None:
        self._tasks["f.saga"].enqueue(fails=self._random.random() < 0.5)

    def _batch(self, _tenant: str) -> None:
        with self._app.batch("f.batches", on_complete=self._tasks["f.report"]):
            for number in range(self._random.randint(1, 6)):
                self._tasks["f.work"].enqueue(value=number, fails=self._random.random() < 0.1)

    def _durable(self, tenant: str) -> None:
        joined = None
        if self._random.random() < 0.6:
            # It is held, or even over, when the durable function attaches to it.
            joined = self._tasks["f.work"].enqueue(value=7, seconds=self._random.choice([0.0, 0.3, 0.6, 1.0]))
        job = self._tasks["f.durable"].enqueue(
            number=self._random.randint(0, 99), joins=None if joined is None else str(joined.id)
        )
        self._signal(job.id, tenant, flow=False)

    # Signals -------------------------------------------------------------------------------------------------------------

    def _signal(self, job: UUID, tenant: str, *, flow: bool) -> None:
        """Send two signals later, of which the job takes one."""
        for number in range(2):
            self._unsent.append((job, tenant, f"k{number}", self._random.randint(1, 10**9), flow))

    def _send_one(self) -> None:
        if not self._unsent:
            return
        job, tenant, key, payload, flow = self._unsent[0]
        if flow and key == "k0" and not self._over.is_set():
            self._meddle(job, tenant)
        with suppress(IllegalTransition, JobNotFound):  # it has ended
            self._app.signals.send(job, "go", payload, key=key, tenant=tenant)
            self.sent.setdefault(job, {})[key] = payload
        # Only after the answer: an outage leaves it at the head, and the key makes the repetition harmless.
        self._unsent.popleft()

    def _meddle(self, gate: UUID, tenant: str) -> None:
        """Try to delete and to archive jobs of a flow that cannot have ended, because its gate is closed."""
        store = self._app.store
        (job,) = store.get([gate], tenant=tenant)
        if job.state in ENDED or self.sent.get(gate) or job.details.flow_id is None:
            return
        members = [row.id for row in store.flow_jobs(job.details.flow_id, tenant=tenant)]
        gone = store.delete(members, tenant=tenant)
        self.escaped += [f"job {id} of the live flow {job.details.flow_id} was deleted" for id in gone]
        self.refused += len(members) - len(gone)
        self._app.archive.run([_GATES], limit=20, budget=2)

    def drain(self) -> None:
        """Send what is left, once the faults are over; the flows cannot end without it."""
        ends = clock.monotonic() + _PATIENCE
        while self._unsent and clock.monotonic() < ends:
            self._try(self._send_one)
        for tenant in TENANTS:
            self._try(partial(self._close_batches, tenant))
            self._try(partial(self._open_gates, tenant))

    def _open_gates(self, tenant: str) -> None:
        """Signal jobs whose start was accepted, although its answer was lost: this load does not know them."""
        for job in self._app.jobs.list(
            status=sorted(LIVE), task=["f.gate", "f.durable"], tenant=tenant, limit=500
        ).items:
            if not self.sent.get(job.id):
                with suppress(IllegalTransition):  # it has ended
                    self._app.signals.send(job.id, "go", 1, key="k0", tenant=tenant)

    def _close_batches(self, tenant: str) -> None:
        """Cancel batches whose producer lost the store before it could close them: they stay open until then."""
        with tenant_scope(tenant):
            for batch in self._app.batches.list(status="running", limit=500):
                if batch.row.held:
                    batch.cancel("its producer failed")

    # Questions -----------------------------------------------------------------------------------------------------------

    def _explain(self) -> None:
        page = self._app.jobs.list(status="waiting", tenant=ALL_TENANTS, limit=50)
        rows = [job for job in page.items if job.task.startswith("f.")]
        if not rows:
            return
        job = self._random.choice(rows)
        reasons: list[Any] = list(self._app.jobs.why(job.id, tenant=ALL_TENANTS))
        self.explained += 1
        if not reasons or any(reason.code == "unknown" for reason in reasons):
            self.unexplained.append(f"job {job.id} ({job.task}) waits, and why says {reasons}")
