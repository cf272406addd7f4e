"""Schemathesis runs over the OpenAPI document against a real server.

Run it with ``python -m tests.interfaces.rest.schemas --examples 1000``. It generates valid and invalid requests from
the document. Every response must be one that the document describes, and none may be a server error. Event streams
are excluded because they do not end. ``--store`` is memory, sqlite, postgres (a private server), all (the three in
turn), or the URL of a database to write to.

``--examples`` is the number of *distinct* requests per route. If one schemathesis run generates fewer, the route is
run again with other seeds, until there are enough requests or two runs in a row add none. The final table shows the
count per route.

``--minutes`` ends the run early: the processes stop, and the table shows how far each route came. ``--step`` is the number
of requests that one process generates for a route; with a small one, all routes advance together.

Generating requests takes far longer than answering them, so ``--processes`` processes share the routes. All routes of
one resource run in the same process, because they work on the objects that one of them creates. DELETE routes run
last.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from tests.interfaces.rest.served import Place, place
from tests.servers.postgres import running_postgres

from tidemill import Manual
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NewJob
from tidemill.errors import DefinitionNotFound, ScheduleExists
from tidemill.rest.api import all_routes
from tidemill.rest.routes import ApiOperation

EXAMPLE = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
"""The example id in the document; ``furnish`` creates a job with this id."""

NIGHTLY = "nightly"
"""The example name in the document; ``furnish`` creates the objects of this name."""

ROUTES_AT_ONCE = 1
"""One worker per run: hypothesis parses Python, and CPython 3.11 fails when two threads do so at once."""

CONFIG = """
[checks.positive_data_acceptance]
# What fits the document may still not fit the task, the trigger or the state of things: that is a 422, as it promises.
expected-statuses = ["2xx", 401, 403, 404, 409, 413, 422, 429]

[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 414, 415, 422, 429, 431]
"""


HOOKS = Path(__file__).with_name("counting.py")

MOST_ROUNDS = 12
"""Maximum number of runs per route."""

TOGETHER = 4
"""Rounds in which a route runs together with the routes that create its objects. Later rounds run it alone, which
generates more distinct requests."""

SLOWEST = 30
"""Maximum seconds per response, also on a busy machine."""

STORES = ("memory", "sqlite", "postgres")


@dataclass
class Asked:
    """The requests sent to one route."""

    cases: int = 0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    distinct: set[str] = field(default_factory=set)
    barren: int = 0  #: consecutive runs without a new request

    def add(self, told: dict[str, Any]) -> None:
        """Add the counts of one run."""
        before = len(self.distinct)
        self.cases += told["cases"]
        self.seconds += told["seconds"]
        self.statuses.update(told["statuses"])
        self.distinct.update(told["distinct"])
        self.barren = 0 if len(self.distinct) > before else self.barren + 1


class Findings(NamedTuple):
    """The outcome of one schemathesis run."""

    exit_code: int
    report: dict[str, Any]
    text: str
    counts: dict[str, dict[str, Any]]

    @property
    def failures(self) -> list[str]:
        """The failures, one line each."""
        found = self.report.get("failures", [])
        return [json.dumps(failure)[:500] for failure in found]


@contextlib.contextmanager
def furnished(url: str) -> Iterator[Place]:
    """A server with example data."""
    with place(url, create_rate=1e6, create_burst=1_000_000, login_burst=1_000_000) as made:
        furnish(made)
        yield made


def furnish(made: Place) -> None:
    """Create jobs in several states and the objects named in the document's examples."""
    app = made.app

    @app.task(name=NIGHTLY, queue=NIGHTLY)
    def nightly() -> None:
        """The task of the examples."""

    for task, args in (("send", {"to": "ada"}), ("fail", {"words": "no"}), ("look", {"what": "this"})):
        made.request("POST", "/api/jobs", {"task": task, "args": args, "tags": ["seed"]})
    app.testing().drain()
    mend(made)


def mend(made: Place) -> None:
    """Restore the objects named in the document's examples, which earlier requests may have deleted."""
    app = made.app
    if not app.store.get([EXAMPLE], tenant=ALL_TENANTS):
        app.store.enqueue([NewJob(EXAMPLE, NIGHTLY, queue=NIGHTLY)])
    with contextlib.suppress(ScheduleExists):
        app.schedules.add(NIGHTLY, Manual(), NIGHTLY)
    try:
        app.definitions.get(NIGHTLY)
    except DefinitionNotFound:
        app.definitions.save(NIGHTLY, NIGHTLY)


def examine(
    made: Place, examples: int, *, seed: int = 1, words: Sequence[str] = (), seconds: float | None = None
) -> Findings:
    """Run schemathesis against this server, for at most this time."""
    with tempfile.TemporaryDirectory(prefix="tidemill-schemas-") as folder:
        report, config = Path(folder, "report.json"), Path(folder, "schemathesis.toml")
        counts = Path(folder, "counts.json")
        config.write_text(CONFIG)
        command = [
            *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
            *("--config-file", str(config), "run"),
            f"{made.serving.url}/api/openapi.json",
            *("--header", f"Authorization: Bearer {made.serving.token}"),
            *("--checks", "all", "--mode", "all", "--exclude-path-regex", "/events$|/streams/"),
            *("--max-examples", str(examples), "--seed", str(seed), "--generation-database", "none"),
            *("--continue-on-failure", "--no-color", "--workers", str(ROUTES_AT_ONCE)),
            *(
                "--suppress-health-check",
                "all",
                "--request-timeout",
                str(SLOWEST),
                "--max-response-time",
                str(SLOWEST),
                "--warnings",
                "off",
            ),
            *("--report-json-path", str(report)),
            *words,
        ]
        around = {**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS), "TIDEMILL_COUNTS": str(counts)}
        code, output = _ended(command, folder, around, seconds)
        told = json.loads(report.read_text()) if report.exists() else {}
        counted = json.loads(counts.read_text()) if counts.exists() else {}
        return Findings(code, told, output, counted)


def _ended(
    command: Sequence[str], folder: str, around: Mapping[str, str], seconds: float | None
) -> tuple[int, str]:
    """Run a command, and interrupt it after this time. Return its exit code, 0 if it found nothing until then."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=around
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # it writes its report
        output, _ = process.communicate()
        return int("FAILURES" in output or "ERRORS" in output), output


def labelled(only: str = "") -> dict[str, ApiOperation]:
    """The routes by their schemathesis label, without event streams (endless) and the document itself (already
    loaded)."""
    named = {
        f"{act.method} {act.path}": act
        for act in all_routes()
        if not act.path.endswith(("/events", "/streams/{name}", "/openapi.json"))
    }
    return {label: act for label, act in named.items() if re.search(only, label)}


def hands(chosen: Iterable[str], acts: Mapping[str, ApiOperation]) -> list[list[str]]:
    """The chosen routes grouped by resource, largest group first.

    A group whose routes take an id also gets the route that creates such objects.
    """
    found: dict[str, list[str]] = {}
    for label in chosen:
        found.setdefault(acts[label].tag, []).append(label)
    for label, act in acts.items():
        hand = found.get(act.tag, [])
        if act.status == 201 and "{" not in act.path and any("{" in each for each in hand):
            hand += [label] if label not in hand else []
    return sorted(found.values(), key=len, reverse=True)


class Thorough:
    """Sends the requested number of distinct requests to every route, or as many as exist.

    ``worst`` is the highest exit code of all runs.
    """

    def __init__(
        self,
        made: Place,
        examples: int,
        *,
        seed: int,
        processes: int,
        words: Sequence[str] = (),
        step: int | None = None,
        seconds: float | None = None,
    ) -> None:
        self._made, self._examples, self._seed = made, examples, seed
        self._step, self._rounds = step or examples, MOST_ROUNDS * -(-examples // (step or examples))
        self._until = None if seconds is None else time.monotonic() + seconds
        self._processes, self._words = processes, words
        self._mending = threading.Lock()
        self.worst = 0
        self.asked: dict[str, Asked] = {}

    def run(self, acts: Mapping[str, ApiOperation]) -> None:
        """Run all rounds."""
        self.asked = {label: Asked() for label in acts}
        for number in range(self._rounds):
            short = self._short()
            if not short or self._left() == 0:
                break
            print(f"round {number + 1}: {len(short)} routes", flush=True)
            phases = "examples,coverage,fuzzing" if number == 0 else "fuzzing"
            for deleting in (False, True):
                some = [label for label in short if (acts[label].method == "DELETE") is deleting]
                # Both passes include the routes that create objects. A different seed makes each pass generate
                # different ones.
                dealt = hands(some, acts) if number < TOGETHER else [[label] for label in some]
                self._deal(dealt, 2 * number + deleting, phases)
        if (
            len(acts) == len(labelled()) and self._left() != 0
        ):  # a subset of the routes may contain no links between operations
            # The stateful phase feeds each response into the next request, so no other run may change data at the
            # same time.
            print("one after another:", flush=True)
            self._hear(self._examine(list(self.asked), 0, "stateful"), ())

    def _left(self) -> float | None:
        """The seconds until the end of the run, if it has one."""
        return None if self._until is None else max(self._until - time.monotonic(), 0)

    def _short(self) -> list[str]:
        """The routes that still lack distinct requests."""
        return [
            label
            for label, each in self.asked.items()
            if len(each.distinct) < self._examples and each.barren < 2
        ]

    def _deal(self, dealt: list[list[str]], number: int, phases: str) -> None:
        """Run the groups of routes in a pool of processes."""
        with ThreadPoolExecutor(self._processes) as pool:
            taken = {pool.submit(self._examine, hand, number, phases): hand for hand in dealt}
            for done in as_completed(taken):
                self._hear(done.result(), taken[done])

    def _examine(self, chosen: list[str], number: int, phases: str) -> Findings:
        left = self._left()
        if left == 0:
            return Findings(0, {}, "", {})
        with self._mending:
            mend(self._made)
        named = [word for label in chosen for word in ("--include-name", label)]
        return examine(
            self._made,
            self._step,
            seed=self._seed + number,
            words=["--phases", phases, *named, *self._words],
            seconds=left,
        )

    def _hear(self, found: Findings, chosen: Iterable[str]) -> None:
        """Add the counts of one run, and print its output if it failed."""
        if found.exit_code:
            print(found.text, flush=True)
        self.worst = max(self.worst, found.exit_code)
        for label, told in found.counts.items():
            self.asked.setdefault(label, Asked()).add(told)
        for label in chosen:
            if label not in found.counts:
                self.asked[label].barren += 1
        asked = ", ".join(f"{label} {len(self.asked[label].distinct):,}" for label in chosen or found.counts)
        print(f"  {'wrong' if found.exit_code else 'right'}: {asked}", flush=True)


def table(asked: dict[str, Asked], examples: int) -> str:
    """The table of requests per route, with the reason for each shortfall."""
    width = max((len(label) for label in asked), default=0)
    lines = [f"{'':<{width}}  {'requests':>8}  {'different':>9}  {'seconds':>7}  answers"]
    for label, each in sorted(asked.items(), key=lambda pair: pair[0].split()[::-1]):
        answers = " ".join(f"{status}:{number}" for status, number in sorted(each.statuses.items()))
        line = (
            f"{label:<{width}}  {each.cases:>8,}  {len(each.distinct):>9,}  {each.seconds:>7.1f}  {answers}"
        )
        if len(each.distinct) < examples:
            why = "there are no more" if each.barren >= 2 else "the run ended before"
            line += f"  (fewer than {examples:,}: {why})"
        lines.append(line)
    total = sum(each.cases for each in asked.values())
    lines.append(
        f"{len(asked)} routes, {total:,} requests, {sum(each.seconds for each in asked.values()):,.0f} s"
    )
    return "\n".join(lines)


@contextlib.contextmanager
def store_url(store: str) -> Iterator[str]:
    """The URL of a store of this kind, which exists within the context."""
    with contextlib.ExitStack() as around:
        if store == "sqlite":
            folder = around.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-schemas-"))
            yield f"sqlite:///{folder}/jobs.db"
        elif store == "postgres":
            yield around.enter_context(running_postgres()).url()
        else:
            yield "memory://" if store == "memory" else store


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="different questions for each route")
    parser.add_argument("--store", default="memory", help="memory, sqlite, postgres, all, or a URL")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2, help="runs of schemathesis at once")
    parser.add_argument("--only", default="", metavar="REGEX", help="only routes such as 'POST /api/jobs$'")
    parser.add_argument("--step", type=int, help="requests for a route from one process  [default: all]")
    parser.add_argument("--minutes", type=float, help="end the run early")
    given, rest = parser.parse_known_args()
    seconds = None if given.minutes is None else given.minutes * 60
    worst = 0
    for store in STORES if given.store == "all" else (given.store,):
        print(f"== {store}, seed {given.seed}", flush=True)
        with store_url(store) as url, furnished(url) as made:
            asking = Thorough(
                made,
                given.examples,
                seed=given.seed,
                processes=given.processes,
                words=rest,
                step=given.step,
                seconds=seconds,
            )
            asking.run(labelled(given.only))
        print(table(asking.asked, given.examples), flush=True)
        print(f"{store}: {'something is wrong' if asking.worst else 'nothing is wrong'}", flush=True)
        worst = max(worst, asking.worst)
    return worst


if __name__ == "__main__":
    sys.exit(main())
