"""The nemesis of a chaos run: injects, records and finally reverts faults."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from random import Random

import psycopg
from tests.faults.cluster import EXPIRY, Cluster, Span, WorkerSlot
from tests.faults.kit import Worker, clock, pause
from tests.faults.ledger import BEGIN
from tests.faults.proxy import Proxy
from tests.faults.stepping import STEPS

from tidemill.engine.deathwatch import descendants

_BREAK_ALL = b"""
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = 'faults' and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


class Nemesis:
    """Injects random faults into one cluster."""

    def __init__(self, cluster: Cluster, random: Random, only: Collection[str] = ()) -> None:
        self._cluster, self._random = cluster, random
        self.dealt: Counter[str] = Counter()
        self.spared: Counter[str] = Counter()  #: faults that could not be injected at that moment
        self.clock_steps: Counter[float] = Counter()  #: clock steps, by size in seconds
        self._faults: dict[str, tuple[int, Callable[[], bool]]] = {
            "kill runner": (8, self._kill_runner),
            "kill worker": (4, self._kill_worker),
            "halt past lease": (5, self._halt),
            "stop and replace": (2, self._replace),
            "halted supervisor": (4, self._halt_supervisor),
            "suspended supervisor": (1, self._suspend_supervisor),
        }
        if cluster.server is None or cluster.clock_control.is_on_server:
            self._faults |= {"clock step": (5, self._step_clock)}
        if cluster.server is not None:
            self._faults |= {
                "restart fast": (2, lambda: self._restart("fast")),
                "restart immediate": (2, lambda: self._restart("immediate")),
                "break connections": (4, self._break_connections),
                "cut": (3, lambda: self._disturb_connections("cut", Proxy.cut, 0.5, EXPIRY + 3)),
                "black hole": (
                    3,
                    lambda: self._disturb_connections("black hole", Proxy.silence, 0.5, EXPIRY + 3),
                ),
                "half-open": (3, lambda: self._disturb_connections("half-open", Proxy.half_open, 3.0, 4.0)),
                "delay": (3, lambda: self._disturb_connections("delay", self._slow, 2.0, 5.0)),
            }
        else:
            self._faults |= {"locked": (3, self._lock)}
            if cluster.disk is not None:
                self._faults |= {"disk full": (4, self._fill_disk)}
        if only:
            self._faults = {name: fault for name, fault in self._faults.items() if name in only}

    @property
    def kinds(self) -> list[str]:
        """Return the names of the faults it may inject."""
        return list(self._faults)

    def strike(self) -> None:
        """Inject one fault and wait for its end. Each kind comes once before any comes again."""
        fresh = [name for name in self._faults if not self.dealt[name] and not self.spared[name]]
        weights = [self._faults[name][0] for name in self._faults]
        name = self._random.choice(fresh) if fresh else self._random.choices(self.kinds, weights)[0]
        if self._faults[name][1]():
            self.dealt[name] += 1
        else:
            self.spared[name] += 1
        self._cluster.refill()

    # Processes -----------------------------------------------------------------------------------------------------------

    def _pick_slot(self) -> WorkerSlot:
        self._cluster.refill()
        return self._random.choice(self._cluster.slots)

    def _kill_runner(self) -> bool:
        slot = self._pick_slot()
        runners = [pid for pid in slot.current.runners() if f"(pid {pid}) is ready" in slot.current.log]
        if not runners:
            return False
        pid = self._random.choice(runners)
        at = clock.monotonic()
        if not slot.current.kill_runner(pid):
            return False
        self._cluster.fault_log.killed[pid] = at
        return True

    def _kill_worker(self) -> bool:
        slot = self._pick_slot()
        at = clock.monotonic()
        self._cluster.fault_log.killed |= dict.fromkeys(slot.current.kill(), at)
        self._cluster.start(slot)
        return True

    def _replace(self) -> bool:
        """Deploy: send SIGTERM and start a replacement."""
        slot = self._pick_slot()
        if not slot.current.readies():
            # A program that is still starting dies of SIGTERM and holds no jobs.
            return False
        self._cluster.stop(slot)
        self._cluster.start(slot)
        return True

    def _halt(self) -> bool:
        """Halt a whole worker until another has begun its jobs, or long past its lease; then continue it."""
        worker, held = self._worker_with_long_jobs()
        if not held:
            return False
        family = worker.halt()
        if self._file_is_locked():
            # SQLite's lock would block every other process.
            worker.go_on(family)
            return False
        span = Span("halt", frozenset({worker.pid, *family}))
        self._cluster.fault_log.halted.append(span)
        try:
            ends = clock.monotonic() + EXPIRY + 12
            while clock.monotonic() < ends and not self._taken_over(held):
                pause(0.05)
        finally:
            span.close()
            worker.go_on(family)
        pause(1.0)
        return True

    def _halt_supervisor(self) -> bool:
        """Halt a supervisor until long after its lease. Its runners stay awake, without a heartbeat."""
        worker, held = self._worker_with_long_jobs()
        if not held:
            return False
        worker.process.send_signal(signal.SIGSTOP)
        if self._file_is_locked():
            worker.process.send_signal(signal.SIGCONT)
            return False
        return self._stay_headless("halted supervisor", worker)

    def _suspend_supervisor(self) -> bool:
        """Send SIGTSTP to the supervisor's process group, as Ctrl-Z does. The supervisor may ignore it."""
        worker, held = self._worker_with_long_jobs()
        if not held or not worker.readies():
            return False
        family = descendants(worker.pid)
        # This run made the group, and the worker is its leader.
        os.killpg(worker.pid, signal.SIGTSTP)
        pause(1.5)
        if not worker.is_stopped():
            return True
        if self._file_is_locked():
            self._resume(worker)
            return False
        if not any(worker.is_stopped(pid) for pid in family):
            return self._stay_headless("suspended supervisor", worker)
        # The supervisor has stopped its runners too: the whole worker is halted.
        span = Span("suspended", frozenset({worker.pid, *family}))
        self._cluster.fault_log.halted.append(span)
        pause(EXPIRY + 6)
        span.close()
        self._resume(worker)
        return True

    def _stay_headless(self, kind: str, worker: Worker) -> bool:
        span = Span(kind, frozenset({worker.pid, *descendants(worker.pid)}))
        self._cluster.fault_log.headless.append(span)
        try:
            pause(EXPIRY + 6)
        finally:
            span.close()
            self._resume(worker)
        pause(1.0)
        return True

    def _resume(self, worker: Worker) -> None:
        if worker.alive:
            worker.process.send_signal(signal.SIGCONT)

    def _worker_with_long_jobs(self) -> tuple[Worker, set[tuple[object, int]]]:
        """Return a worker with long-running jobs: a job that ends before the zombie wakes proves nothing."""
        slots = self._random.sample(self._cluster.slots, len(self._cluster.slots))
        for _ in range(50):
            for slot in slots:
                if slot.current.alive and (held := self._long_executions(slot.current)):
                    return slot.current, held
            pause(0.1)
        return slots[0].current, set()

    def _long_executions(self, worker: Worker) -> set[tuple[object, int]]:
        """Return executions that this worker's processes began a while ago and have not ended."""
        runners = set(worker.runners())
        lines = self._cluster.ledger.lines()
        since = clock.monotonic() - 0.5
        over = {line.run for line in lines if line.kind in ("E", "S")}
        return {
            line.run
            for line in lines
            if line.kind == BEGIN
            and line.at < since
            and line.run not in over
            and not runners.isdisjoint({line.pid, line.parent})
        }

    def _taken_over(self, held: set[tuple[object, int]]) -> bool:
        wanted = {(job, token + 1) for job, token in held}
        return any(line.run in wanted for line in self._cluster.ledger.of(BEGIN))

    def _file_is_locked(self) -> bool:
        if self._cluster.server is not None:
            return False
        try:
            with self._file(0.7) as raw:
                raw.execute("begin immediate")
                raw.execute("rollback")
        except sqlite3.OperationalError:
            return True
        return False

    # The store and its connections ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _outage(self, kind: str) -> Iterator[None]:
        span = Span(kind)
        self._cluster.fault_log.outages.append(span)
        try:
            yield
        finally:
            span.close()

    def _linger(self, least: float, most: float) -> None:
        """Let a fault last; sometimes kill a runner during it."""
        seconds = self._random.uniform(least, most)
        if self._random.random() < 0.4:
            pause(seconds / 2)
            self.dealt["kill runner"] += self._kill_runner()
            pause(seconds / 2)
        else:
            pause(seconds)

    def _restart(self, mode: str) -> bool:
        server = self._cluster.server
        assert server is not None
        with self._outage(f"restart {mode}"):
            server.stop("fast" if mode == "fast" else "immediate")
            try:
                pause(self._random.uniform(0.0, 3.0))
            finally:
                server.start()
        return True

    def _break_connections(self) -> bool:
        server = self._cluster.server
        assert server is not None
        with (
            self._outage("break connections"),
            psycopg.connect(server.url(), autocommit=True, connect_timeout=10) as operator,
        ):
            for _ in range(self._random.randint(1, 4)):
                operator.execute(_BREAK_ALL)
                pause(0.5)
        return True

    def _disturb_connections(
        self, kind: str, disturb: Callable[[Proxy], None], least: float, most: float
    ) -> bool:
        """Disturb the connections of one worker, of the producers, or of all."""
        proxies = self._cluster.proxies
        hit = proxies if self._random.random() < 0.25 else [self._random.choice(proxies)]
        with self._outage(kind):
            try:
                for proxy in hit:
                    disturb(proxy)
                self._linger(least, most)
            finally:
                for proxy in hit:
                    proxy.heal()
        return True

    def _slow(self, proxy: Proxy) -> None:
        proxy.slow(self._random.choice([0.02, 0.1, 0.3]))

    def _step_clock(self) -> bool:
        """Step the store's wall clock by a minute or an hour, either way, and back."""
        control, done = self._cluster.clock_control, self.clock_steps
        rest = [step for step in STEPS if not done[step]]
        by = self._random.choice(rest or STEPS)
        done[by] += 1
        control.set(by)
        try:
            self._linger(EXPIRY / 2, EXPIRY + 2)
        finally:
            control.set(0.0)
        pause(EXPIRY / 2)
        return True

    @contextlib.contextmanager
    def _file(self, seconds: float) -> Iterator[sqlite3.Connection]:
        path = self._cluster.url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, timeout=seconds, isolation_level=None)) as raw:
            yield raw

    def _lock(self) -> bool:
        """Hold the file's write lock for a while."""
        with self._outage("locked"), contextlib.suppress(sqlite3.OperationalError), self._file(5) as raw:
            raw.execute("begin immediate")
            pause(self._random.uniform(0.5, 4.0))
            raw.execute("rollback")
        return True

    def _fill_disk(self) -> bool:
        disk = self._cluster.disk
        assert disk is not None
        with self._outage("disk full"):
            disk.fill()
            try:
                self._linger(1.0, EXPIRY + 3)
            finally:
                disk.free()
        return True

    # The end -------------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Revert every fault: the server runs, connections work, the disk has room, and every worker runs."""
        for proxy in self._cluster.proxies:
            proxy.heal()
        if self._cluster.disk is not None:
            self._cluster.disk.free()
        # Jobs scheduled while the clock was ahead become due only when the clock gets there again.
        self._cluster.clock_control.set(self._cluster.clock_control.highest)
        if self._cluster.server is not None and not self._cluster.server.pids:
            self._cluster.server.start()
        for slot in self._cluster.slots:
            if slot.current.alive:
                slot.current.process.send_signal(signal.SIGCONT)
        self._cluster.refill()
