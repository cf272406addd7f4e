"""Deals faults, one after the other as its dice fall, writes down what it did to whom, and makes all well again at the end."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from random import Random

import psycopg
from tests.faults.kit import Worker, clock, pause
from tests.faults.ledger import BEGIN
from tests.faults.proxy import Proxy
from tests.faults.stage import EXPIRY, Seat, Span, Stage

_BREAK_ALL = b"""
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = 'faults' and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


class Nemesis:
    """One stage's bad luck."""

    def __init__(self, stage: Stage, random: Random, only: Collection[str] = ()) -> None:
        self._stage, self._random = stage, random
        self.dealt: Counter[str] = Counter()
        self.spared: Counter[str] = Counter()  #: faults that could not be dealt just then
        self._faults: dict[str, tuple[int, Callable[[], bool]]] = {
            "kill runner": (8, self._kill_runner),
            "kill worker": (4, self._kill_worker),
            "halt past lease": (5, self._halt),
            "stop and replace": (2, self._replace),
        }
        if stage.server is not None:
            self._faults |= {
                "restart fast": (2, lambda: self._restart("fast")),
                "restart immediate": (2, lambda: self._restart("immediate")),
                "break connections": (4, self._break_connections),
                "cut": (3, lambda: self._bad_way("cut", Proxy.cut, 0.5, EXPIRY + 3)),
                "black hole": (3, lambda: self._bad_way("black hole", Proxy.silence, 0.5, EXPIRY + 3)),
                "half-open": (3, lambda: self._bad_way("half-open", Proxy.half_open, 3.0, 4.0)),
                "delay": (3, lambda: self._bad_way("delay", self._slow, 2.0, 5.0)),
            }
        else:
            self._faults |= {"locked": (3, self._lock)}
            if stage.disk is not None:
                self._faults |= {"disk full": (4, self._fill_disk)}
        if only:
            self._faults = {name: fault for name, fault in self._faults.items() if name in only}

    @property
    def kinds(self) -> list[str]:
        """What it may deal."""
        return list(self._faults)

    def strike(self) -> None:
        """Deal one fault, from its beginning to its end. Each kind comes once before any comes by chance."""
        fresh = [name for name in self._faults if not self.dealt[name] and not self.spared[name]]
        weights = [self._faults[name][0] for name in self._faults]
        name = self._random.choice(fresh) if fresh else self._random.choices(self.kinds, weights)[0]
        if self._faults[name][1]():
            self.dealt[name] += 1
        else:
            self.spared[name] += 1
        self._stage.refill()

    # Processes -----------------------------------------------------------------------------------------------------------

    def _seat(self) -> Seat:
        self._stage.refill()
        return self._random.choice(self._stage.seats)

    def _kill_runner(self) -> bool:
        seat = self._seat()
        runners = [pid for pid in seat.who.runners() if f"(pid {pid}) is ready" in seat.who.log]
        if not runners:
            return False
        pid = self._random.choice(runners)
        at = clock.monotonic()
        if not seat.who.kill_runner(pid):
            return False
        self._stage.hurt.killed[pid] = at
        return True

    def _kill_worker(self) -> bool:
        seat = self._seat()
        at = clock.monotonic()
        self._stage.hurt.killed |= dict.fromkeys(seat.who.kill(), at)
        self._stage.start(seat)
        return True

    def _replace(self) -> bool:
        """As a deployment does: SIGTERM, and another in its place."""
        seat = self._seat()
        if not seat.who.readies():
            return False  # a program that still starts dies of SIGTERM, as any does, and holds nothing
        self._stage.stop(seat)
        self._stage.start(seat)
        return True

    def _halt(self) -> bool:
        """SIGSTOP to a whole worker until another has begun what it held, or long past its lease; then it wakes."""
        worker, held = self._one_at_long_work()
        if not held:
            return False
        family = worker.halt()
        if self._writes_to_file():
            worker.go_on(family)  # SQLite's lock would halt everybody with it
            return False
        span = Span("halt", frozenset({worker.pid, *family}))
        self._stage.hurt.halted.append(span)
        try:
            ends = clock.monotonic() + EXPIRY + 12
            while clock.monotonic() < ends and not self._taken_over(held):
                pause(0.05)
        finally:
            span.close()
            worker.go_on(family)
        pause(1.0)
        return True

    def _one_at_long_work(self) -> tuple[Worker, set[tuple[object, int]]]:
        """A worker with something that will take a while again: what is over before a zombie wakes proves nothing."""
        seats = self._random.sample(self._stage.seats, len(self._stage.seats))
        for _ in range(50):
            for seat in seats:
                if seat.who.alive and (held := self._at_work(seat.who)):
                    return seat.who, held
            pause(0.1)
        return seats[0].who, set()

    def _at_work(self, worker: Worker) -> set[tuple[object, int]]:
        """Executions that this worker's processes began a while ago and have not ended."""
        runners = set(worker.runners())
        lines = self._stage.ledger.lines()
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
        return any(line.run in wanted for line in self._stage.ledger.of(BEGIN))

    def _writes_to_file(self) -> bool:
        if self._stage.server is not None:
            return False
        try:
            with self._file(0.7) as raw:
                raw.execute("begin immediate")
                raw.execute("rollback")
        except sqlite3.OperationalError:
            return True
        return False

    # The store and the ways to it ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _outage(self, kind: str) -> Iterator[None]:
        span = Span(kind)
        self._stage.hurt.outages.append(span)
        try:
            yield
        finally:
            span.close()

    def _linger(self, least: float, most: float) -> None:
        """Let a fault last; now and then another comes on top of it."""
        seconds = self._random.uniform(least, most)
        if self._random.random() < 0.4:
            pause(seconds / 2)
            self.dealt["kill runner"] += self._kill_runner()
            pause(seconds / 2)
        else:
            pause(seconds)

    def _restart(self, mode: str) -> bool:
        server = self._stage.server
        assert server is not None
        with self._outage(f"restart {mode}"):
            server.stop("fast" if mode == "fast" else "immediate")
            try:
                pause(self._random.uniform(0.0, 3.0))
            finally:
                server.start()
        return True

    def _break_connections(self) -> bool:
        server = self._stage.server
        assert server is not None
        with (
            self._outage("break connections"),
            psycopg.connect(server.url(), autocommit=True, connect_timeout=10) as operator,
        ):
            for _ in range(self._random.randint(1, 4)):
                operator.execute(_BREAK_ALL)
                pause(0.5)
        return True

    def _bad_way(self, kind: str, spoil: Callable[[Proxy], None], least: float, most: float) -> bool:
        """Of one worker, of the producers, or of everybody."""
        proxies = self._stage.proxies
        hit = proxies if self._random.random() < 0.25 else [self._random.choice(proxies)]
        with self._outage(kind):
            try:
                for proxy in hit:
                    spoil(proxy)
                self._linger(least, most)
            finally:
                for proxy in hit:
                    proxy.heal()
        return True

    def _slow(self, proxy: Proxy) -> None:
        proxy.slow(self._random.choice([0.02, 0.1, 0.3]))

    @contextlib.contextmanager
    def _file(self, seconds: float) -> Iterator[sqlite3.Connection]:
        path = self._stage.url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, timeout=seconds, isolation_level=None)) as raw:
            yield raw

    def _lock(self) -> bool:
        """Somebody else writes to the file, and takes his time."""
        with self._outage("locked"), contextlib.suppress(sqlite3.OperationalError), self._file(5) as raw:
            raw.execute("begin immediate")
            pause(self._random.uniform(0.5, 4.0))
            raw.execute("rollback")
        return True

    def _fill_disk(self) -> bool:
        disk = self._stage.disk
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
        """All is well: the server runs, every way is sound, the disk has room, and everybody is at work."""
        for proxy in self._stage.proxies:
            proxy.heal()
        if self._stage.disk is not None:
            self._stage.disk.free()
        if self._stage.server is not None and not self._stage.server.pids:
            self._stage.server.start()
        for seat in self._stage.seats:
            if seat.who.alive:
                seat.who.process.send_signal(signal.SIGCONT)
        self._stage.refill()
