"""The load of a soak: a thread that enqueues, cancels and starts flows at a steady rate, and reads pages."""

from __future__ import annotations

import re
import threading
import urllib.error
import urllib.request
from collections import Counter, deque
from random import Random
from typing import Any

from tests.faults.kit import Worker, clock, until
from tests.faults.soak_app import build

from tidemill.errors import IllegalTransition, JobNotFound, StoreError

_EVERY = 0.25
_PAGES = ("/api/jobs?limit=20", "/api/stats", "/api/errors", "/api/workers", "/metrics")
_CANCELLED_AFTER = 4
"""Long jobs that run at the same time; the oldest one is cancelled for each new one."""


class Load:
    """A thread with an app of its own."""

    def __init__(self, url: str, server: Worker, rate: float, random: Random) -> None:
        self._app, self._rate, self._random = build(url), rate, random
        self._server = server
        self._key = self._app.keys.create("soak", role="viewer").secret
        self._add = self._app.bound_task("add")
        self._address = str(until(self._find_address, "the server listens", 240))
        self._long: deque[Any] = deque()
        self._done: Counter[str] = Counter()
        self.refused = 0
        self.error: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-load")

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        for job in self._long:
            self._cancel(job)
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Close the app."""
        self._app.close()

    def counts(self) -> dict[str, int]:
        """Return how many jobs of each task were enqueued, and how many pages were read."""
        return dict(self._done)

    def is_drained(self) -> bool:
        """Return whether every job has ended; schedules keep adding some, so a few may be live."""
        live = ("scheduled", "pending", "claimed", "running", "waiting")
        counts = self._app.stats.by_status().rows
        return sum(row.jobs for row in counts if row.status.value in live) <= 5

    def _find_address(self) -> str | None:
        found = re.search(r"http://[\w.:\[\]]+:\d+", self._server.log)
        return None if found is None else found[0]

    def _run(self) -> None:
        due = clock.monotonic()
        turn = 0
        try:
            while not self._over.wait(max(due - clock.monotonic(), 0.0)):
                due += _EVERY
                turn += 1
                try:
                    self._enqueue(turn)
                except StoreError:
                    self.refused += 1
                if turn % 8 == 0:
                    self._read(self._random.choice(_PAGES))
        except BaseException as error:  # noqa: BLE001  (the run raises it)
            self.error = error

    def _enqueue(self, turn: int) -> None:
        count = max(1, round(self._rate * _EVERY))
        for _ in range(count):
            n = self._random.randrange(1000)
            calls: list[tuple[str, dict[str, object]]] = [
                ("work", {"n": n}), ("in_thread", {"text": "x" * n}), ("flaky", {"n": n}), ("refuse", {"n": n}),
                ("limited", {"account": n % 5}), ("durable", {"n": n}),
            ]  # fmt: skip
            task, args = self._random.choices(calls, [40, 25, 12, 4, 15, 4])[0]
            self._app.enqueue(task, **args)
            self._done[task] += 1
        if turn % 8 == 0:
            self._long.append(self._app.enqueue("long"))
            self._done["long"] += 1
            if len(self._long) > _CANCELLED_AFTER:
                self._cancel(self._long.popleft())
        if turn % 12 == 0:
            self._flow(turn)

    def _flow(self, turn: int) -> None:
        """Start a diamond of four jobs."""
        flow = self._app.flow("diamond")
        first = flow.add(self._add, left=turn, right=1)
        left, right = (flow.add(self._add, left=first.result, right=side) for side in (1, 2))
        flow.add(self._add, left=left.result, right=right.result)
        flow.start()
        self._done["flows"] += 1

    def _cancel(self, job: Any) -> None:
        try:
            job.cancel("the soak cancels it")
            self._done["cancelled"] += 1
        except (IllegalTransition, JobNotFound):
            self._done["cancelled too late"] += 1

    def _read(self, path: str) -> None:
        request = urllib.request.Request(
            self._address + path, headers={"Authorization": f"Bearer {self._key}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                answer.read()
            self._done["pages"] += 1
        except urllib.error.HTTPError:
            self._done["refused pages"] += 1
