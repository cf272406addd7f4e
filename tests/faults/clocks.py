"""Steps of the store's clock under jobs that run longer than the lease.

No job is reclaimed, charged or delayed. On SQLite the workers' wall clock is stepped (``tests.faults.stepped_worker``), on
PostgreSQL the server's (libfaketime). ``python -m tests.faults.clocks --store sqlite --step 3600`` steps forth and back
``--cycles`` times.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from tests.faults.checks import Verdict, judge
from tests.faults.kit import APP, Harness, clock, own_harness, pause, until
from tests.faults.ledger import BEGIN, END
from tests.faults.stepped_worker import WHERE
from tests.servers.processes import ServiceMissing

from tidemill import Every

STEPS = (60, -60, 3600, -3600)
EXPIRY = 3.0
_SETTINGS: dict[str, object] = {
    "beat": 0.4,
    "expiry": EXPIRY,
    "lease_beat": 0.4,
    "lease_expiry": 2,
    "children": 4,
}
_LIBRARY = "libfaketime.so.1"
_TASKS = ("hold", "hold_in_thread", "hold_alone")

SetClock = Callable[[float], None]
"""Set the store's clock this many seconds ahead of real time."""


def library() -> Path:
    """Return the path of libfaketime, or raise `ServiceMissing`."""
    for folder in Path("/usr/lib").glob("*/faketime"):
        if (folder / _LIBRARY).exists():
            return folder / _LIBRARY
    raise ServiceMissing("libfaketime is not installed; install the package faketime")


@contextlib.contextmanager
def stepped_harness(store: str) -> Iterator[tuple[Harness, SetClock]]:
    """Yield a harness whose store clock can be stepped, and the function that steps it."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clocks-")))
        folder.chmod(0o755)
        offset = folder / "offset"
        offset.write_text("0" if store == "sqlite" else "+0s\n")
        added = {WHERE: str(offset)} if store == "sqlite" else _faked(offset)
        before = {name: os.environ.get(name) for name in added}
        os.environ.update(added)
        try:
            harness = stack.enter_context(own_harness(store))
        finally:
            if store != "sqlite":
                _restore(before)
        stack.callback(_restore, before)

        def set_clock(seconds: float) -> None:
            new = offset.with_suffix(".new")
            new.write_text(f"{seconds:g}" if store == "sqlite" else f"{seconds:+.0f}s\n")
            new.chmod(0o644)
            new.replace(offset)

        yield harness, set_clock


def _faked(offset: Path) -> dict[str, str]:
    return {
        "LD_PRELOAD": str(library()),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def _restore(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def run(harness: Harness, set_clock: SetClock, step: float, cycles: int) -> Verdict:
    """Step the clock forth and back, while long jobs and a schedule run."""
    if WHERE in os.environ:
        words = [
            sys.executable,
            "-m",
            "tests.faults.stepped_worker",
            "supervise",
            APP,
            "1",
            json.dumps(_SETTINGS),
        ]
        workers = [harness._started(words) for _ in range(2)]
    else:
        workers = [harness.supervised(1, **_SETTINGS) for _ in range(2)]
    for worker in workers:
        worker.ready()
    schedule = harness.fault_app.app.schedules.add(
        "tick", Every(timedelta(seconds=1)), "often", args={"key": "often"}, overlap="allow", misfire="once"
    )
    gate = harness.gate()
    jobs = [id for task in _TASKS for id in harness.enqueue(task, [{"gate": str(gate)} for _ in range(3)])]
    harness.begun(jobs)
    gaps: list[float] = []
    for _ in range(cycles):
        for seconds in (step, 0.0):
            before, at = _fired(harness), clock.monotonic()
            set_clock(seconds)
            done = harness.enqueue("noop", [{} for _ in range(20)])
            until(lambda ids=done: len(harness.ledger.of(END, ids)) >= 20, "jobs still run", 30)  # type: ignore[misc]
            pause(3 * EXPIRY)
            until(lambda earlier=before: _fired(harness) > earlier, "schedules still fire", 60)  # type: ignore[misc]
            gaps.append(clock.monotonic() - at)
    again = [line for line in harness.ledger.of(BEGIN, jobs) if line.token > 1]
    harness.fault_app.app.schedules.pause(schedule.id)
    (gate / "all").touch()
    harness.ledger.accept(_made_by_schedule(harness))
    harness.drain()
    for worker in workers:
        worker.stop()
    verdict = judge(harness)
    verdict.expect(not again, "no job of a live worker begins again", again[:3])
    fires = [line.split()[:2] for line in _lines(harness)]
    doubled = len(fires) - len({tuple(fire) for fire in fires})
    verdict.expect(not doubled, "no fire is recorded twice", doubled)
    lost = [
        worker.pid for worker in workers if "lost its lease" in worker.log or "declared gone" in worker.log
    ]
    verdict.expect(not lost, "no live worker loses its lease", lost)
    verdict.facts |= {"step": step, "fires": len(fires), "seconds_watched": round(sum(gaps), 1)}
    return verdict


def _made_by_schedule(harness: Harness) -> list[UUID]:
    accepted = set(harness.ledger.accepted())
    return list({line.job for line in harness.ledger.of(BEGIN)} - accepted)


def _lines(harness: Harness) -> list[str]:
    file = harness.ledger.path.with_name("fires")
    return file.read_text().splitlines() if file.exists() else []


def _fired(harness: Harness) -> int:
    return len(_lines(harness))


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.clocks")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument(
        "--step", type=float, default=3600.0, help="size of the step in seconds; may be negative"
    )
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--keep-logs", metavar="FILE", help="write the workers' logs to this file")
    given = parser.parse_args()
    with stepped_harness(given.store) as (harness, set_clock):
        try:
            verdict = run(harness, set_clock, given.step, given.cycles)
        finally:
            if given.keep_logs:
                Path(given.keep_logs).write_text("".join(worker.log for worker in harness.workers))
    kept = not verdict.violations
    words = "every promise kept" if kept else f"{len(verdict.violations)} violations"
    print(f"clocks on {given.store}, {given.cycles} steps of {given.step:+g} s and back: {words}")
    for violation in verdict.violations[:20]:
        print(f"  {violation}")
    print(json.dumps({"run": "clocks", "store": given.store, "kept": kept} | verdict.facts, default=str))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
