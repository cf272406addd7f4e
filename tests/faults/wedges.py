"""A fault: a job makes its runner sick: alive, but without progress.

Within ten seconds the runner works again, or its worker reports that it is not ready. Soon after, another runner takes the
jobs. Jobs that ran next to the sick one complete, and are not charged an attempt.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Sequence
from random import Random
from uuid import UUID

from tests.faults.cluster import Cluster
from tests.faults.invariants import Finding
from tests.faults.kit import Stuck, clock, pause
from tests.faults.ledger import BEGIN
from tests.faults.phases import PhaseResult
from tests.faults.sandbox import Sandbox, open_sandbox
from tests.faults.wedge_app import NAME, TIMEOUT, WEDGES, Wedges
from tests.servers.processes import free_port

from tidemill.domain.states import JobState

INVARIANT = "I26"

UNREADY = 10.0
"""Seconds within which a worker must report that it is not ready, once its only runner does no work."""

REPLACED = 45.0
"""Seconds within which jobs must run again."""

SLACK = 1.5
_EVERY = 0.2


class Probe:
    """A thread that polls a worker's readiness several times a second."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.unready: list[float] = []  #: monotonic times at which the worker was not ready
        self.asked = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults-readiness")

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._over.wait(_EVERY):
            self.asked += 1
            if not self._is_ready():
                self.unready.append(clock.monotonic())

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=3)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False


def run(cluster: Cluster, random: Random) -> PhaseResult:
    """Inject each kind of sickness once, each with a separate worker."""
    result, broken, checked = PhaseResult(), list[str](), 0
    for kind in WEDGES:
        with open_sandbox(cluster, f"wedge {kind}") as sandbox:
            facts, violations = _wedge(sandbox, kind)
            result.facts[kind] = facts
            broken += violations
            checked += 3
        result.count += 1
    result.findings[INVARIANT] = Finding(checked, broken)
    return result


def _wedge(sandbox: Sandbox, kind: str) -> tuple[dict[str, object], list[str]]:
    wedges, port = Wedges(sandbox.url), free_port()
    sandbox.worker(NAME, health=port).ready()
    try:
        with Probe(port) as probe:
            neighbours = [job.id for job in wedges.tasks["neighbour"].enqueue_many([{"seconds": 5.0}] * 8)]
            _begun(sandbox, neighbours, 30)
            wedge = wedges.tasks[kind].enqueue().id
            sick_at = _begun(sandbox, [wedge], 30) + (TIMEOUT if kind == "hold_lock" else 0.0)
            pause(0.5)
            probes = [job.id for job in wedges.tasks["probe"].enqueue_many([{}] * 3)]
            worked_at: float | None = None
            with contextlib.suppress(Stuck):
                worked_at = _begun(sandbox, probes[:1], REPLACED)
            if worked_at is not None:
                probes += [job.id for job in wedges.tasks["probe"].enqueue_many([{}] * 20)]
                sandbox.drain(30)
        broken = _judge(kind, sick_at, worked_at, probe)
        broken += _left_over(sandbox, kind, probes)
        broken += _charged(sandbox, kind, neighbours)
    finally:
        wedges.app.close()
    unready = [at - sick_at for at in probe.unready if at >= sick_at]
    facts: dict[str, object] = {
        "worked_again_after": None if worked_at is None else round(worked_at - sick_at, 1),
        "not_ready_after": round(unready[0], 1) if unready else None,
    }
    return facts, broken


def _begun(sandbox: Sandbox, jobs: Sequence[UUID], seconds: float) -> float:
    """Wait until all these jobs have begun; return when the last of them did."""
    sandbox.wait(
        lambda: {line.job for line in sandbox.ledger.of(BEGIN, jobs)} == set(jobs),
        f"{jobs[0]} began",
        seconds,
    )
    return max(line.at for line in sandbox.ledger.of(BEGIN, jobs))


def _judge(kind: str, sick_at: float, worked_at: float | None, probe: Probe) -> list[str]:
    """Check that the runner works again or is reported within ten seconds, and that it works again in any case."""
    broken = []
    latest = sick_at + UNREADY + SLACK
    if worked_at is None:
        broken.append(f"{kind}: no job began within {REPLACED:g} s")
    if (worked_at is None or worked_at > latest) and not any(sick_at <= at <= latest for at in probe.unready):
        broken.append(f"{kind}: the worker was still ready {UNREADY:g} s after its runner became sick")
    return broken


def _left_over(sandbox: Sandbox, kind: str, probes: Sequence[UUID]) -> list[str]:
    jobs = sandbox.jobs(list(probes)).values()
    left = [job.state for job in jobs if job.state is not JobState.COMPLETED]
    return [f"{kind}: {len(left)} of {len(probes)} later jobs are not completed"] if left else []


def _charged(sandbox: Sandbox, kind: str, neighbours: Sequence[UUID]) -> list[str]:
    return [
        f"{kind}: neighbour {id} is {job.state} at attempt {job.attempt}: {job.reason}"
        for id, job in sandbox.jobs(list(neighbours)).items()
        if job.state is not JobState.COMPLETED or job.attempt != 1
    ]
