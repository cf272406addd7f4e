"""Schemathesis over the whole OpenAPI document, against a real server: ``python -m tests.interfaces.rest.schemas --examples 1000``.

Requests are made from the document, right ones and wrong ones; every answer must be one that the document promises, and none a
server's error. Event streams are left out: they do not end. ``--store`` is memory, sqlite, or the URL of a database to write in.

Every route is to be asked as many *different* questions as ``--examples`` says. Where one run of schemathesis made fewer, the route is asked
again with other seeds, until that many were made or two runs found nothing new: then there are no more to ask. The table at the end
says how many there were.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from tests.interfaces.rest.served import Place, place

from tidemill import Manual
from tidemill.domain.job import NewJob

EXAMPLE = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
"""The id that the document gives as an example; the job of that id is there."""

NIGHTLY = "nightly"
"""The name that it gives as an example; the things of that name are there."""

ROUTES_AT_ONCE = 1
"""Two threads that parse Python at once trip over each other in CPython 3.11; hypothesis does that."""

CONFIG = """
[checks.positive_data_acceptance]
# What fits the document may still not fit the task, the trigger or the state of things: that is a 422, as it promises.
expected-statuses = ["2xx", 401, 403, 404, 409, 413, 422, 429]

[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 414, 415, 422, 429, 431]
"""


HOOKS = Path(__file__).with_name("counting.py")

MOST_ROUNDS = 12
"""Runs for one route, at most."""


@dataclass
class Asked:
    """What one route was asked."""

    cases: int = 0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    distinct: set[str] = field(default_factory=set)
    barren: int = 0  #: runs in a row that found nothing new

    def add(self, told: dict[str, Any]) -> None:
        """Add what one run counted."""
        before = len(self.distinct)
        self.cases += told["cases"]
        self.seconds += told["seconds"]
        self.statuses.update(told["statuses"])
        self.distinct.update(told["distinct"])
        self.barren = 0 if len(self.distinct) > before else self.barren + 1


class Findings(NamedTuple):
    """What came of it."""

    exit_code: int
    report: dict[str, Any]
    text: str
    counts: dict[str, dict[str, Any]]

    @property
    def failures(self) -> list[str]:
        """What was wrong, one line each."""
        found = self.report.get("failures", [])
        return [json.dumps(failure)[:500] for failure in found]


@contextlib.contextmanager
def furnished(url: str) -> Iterator[Place]:
    """A server with something to find."""
    with place(url, create_rate=1e6, create_burst=1_000_000, login_burst=1_000_000) as made:
        furnish(made)
        yield made


def furnish(made: Place) -> None:
    """Jobs in several states, and what the document's examples name."""
    app = made.app

    @app.task(name=NIGHTLY, queue=NIGHTLY)
    def nightly() -> None:
        """What the examples run."""

    app.store.enqueue([NewJob(EXAMPLE, NIGHTLY, queue=NIGHTLY)])
    for task, args in (("send", {"to": "ada"}), ("fail", {"words": "no"}), ("look", {"what": "this"})):
        made.request("POST", "/api/jobs", {"task": task, "args": args, "tags": ["seed"]})
    app.testing().drain()
    app.schedules.add(nightly, Manual(), NIGHTLY)
    app.definitions.save(NIGHTLY, nightly)


def examine(made: Place, examples: int, *, seed: int = 1, words: Sequence[str] = ()) -> Findings:
    """Run it against this server."""
    with tempfile.TemporaryDirectory(prefix="tidemill-schemas-") as folder:
        report, config = Path(folder, "report.json"), Path(folder, "schemathesis.toml")
        counts = Path(folder, "counts.json")
        config.write_text(CONFIG)
        command = [
            *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
            *("--config-file", str(config), "run"),
            f"{made.serving.url}/api/openapi.json",
            *("--header", f"Authorization: Bearer {made.serving.token}"),
            *("--checks", "all", "--mode", "all", "--exclude-path-regex", "/events$"),
            *("--max-examples", str(examples), "--seed", str(seed), "--generation-database", "none"),
            *("--continue-on-failure", "--no-color", "--workers", str(ROUTES_AT_ONCE)),
            *("--suppress-health-check", "all", "--request-timeout", "30", "--warnings", "off"),
            *("--report-json-path", str(report)),
            *words,
        ]
        around = {**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS), "TIDEMILL_COUNTS": str(counts)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=around)
        told = json.loads(report.read_text()) if report.exists() else {}
        counted = json.loads(counts.read_text()) if counts.exists() else {}
        return Findings(done.returncode, told, done.stdout + done.stderr, counted)


def thorough(
    made: Place, examples: int, *, seed: int, words: Sequence[str] = ()
) -> tuple[int, dict[str, Asked]]:
    """Ask every route so many different questions, or all there are; the worst exit code, and what was asked."""
    found = examine(made, examples, seed=seed, words=words)
    print(found.text, flush=True)
    worst, asked = found.exit_code, {label: Asked() for label in found.counts}
    for label, told in found.counts.items():
        asked[label].add(told)
    for number in range(1, MOST_ROUNDS):
        short = [label for label, each in asked.items() if len(each.distinct) < examples and each.barren < 2]
        if not short:
            break
        print(f"round {number + 1}: {len(short)} routes are asked more", flush=True)
        chosen = [word for label in short for word in ("--include-name", label)]
        again = examine(made, examples, seed=seed + number, words=["--phases", "fuzzing", *chosen, *words])
        if again.exit_code:
            print(again.text, flush=True)
        worst = max(worst, again.exit_code)
        for label in short:
            asked[label].add(
                again.counts.get(label, {"cases": 0, "seconds": 0.0, "statuses": {}, "distinct": []})
            )
    return worst, asked


def table(asked: dict[str, Asked], examples: int) -> str:
    """What was asked, route by route, and whether that is all there is to ask."""
    width = max((len(label) for label in asked), default=0)
    lines = [f"{'':<{width}}  {'requests':>8}  {'different':>9}  {'seconds':>7}  answers"]
    for label, each in sorted(asked.items(), key=lambda pair: pair[0].split()[::-1]):
        answers = " ".join(f"{status}:{number}" for status, number in sorted(each.statuses.items()))
        line = (
            f"{label:<{width}}  {each.cases:>8,}  {len(each.distinct):>9,}  {each.seconds:>7.1f}  {answers}"
        )
        if len(each.distinct) < examples:
            why = "there are no more" if each.barren >= 2 else f"not found in {MOST_ROUNDS} runs"
            line += f"  (fewer than {examples:,}: {why})"
        lines.append(line)
    total = sum(each.cases for each in asked.values())
    lines.append(
        f"{len(asked)} routes, {total:,} requests, {sum(each.seconds for each in asked.values()):,.0f} s"
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="different questions for each route")
    parser.add_argument("--store", default="memory", help="memory, sqlite, or a URL")
    parser.add_argument("--seed", type=int, default=1)
    given, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="tidemill-schemas-") as folder:
        urls = {"memory": "memory://", "sqlite": f"sqlite:///{folder}/jobs.db"}
        with furnished(urls.get(given.store, given.store)) as made:
            worst, asked = thorough(made, given.examples, seed=given.seed, words=rest)
    print(table(asked, given.examples))
    return worst


if __name__ == "__main__":
    sys.exit(main())
