"""Schemathesis over the whole OpenAPI document, against a real server: ``python -m tests.interfaces.rest.schemas --examples 1000``.

Requests are made from the document, right ones and wrong ones; every answer must be one that the document promises, and none a
server's error. Event streams are left out: they do not end. ``--store`` is memory, sqlite, or the URL of a database to write in.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
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


class Findings(NamedTuple):
    """What came of it."""

    exit_code: int
    report: dict[str, Any]
    text: str

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
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        told = json.loads(report.read_text()) if report.exists() else {}
        return Findings(done.returncode, told, done.stdout + done.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="for each route")
    parser.add_argument("--store", default="memory", help="memory, sqlite, or a URL")
    parser.add_argument("--seed", type=int, default=1)
    given, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="tidemill-schemas-") as folder:
        urls = {"memory": "memory://", "sqlite": f"sqlite:///{folder}/jobs.db"}
        with furnished(urls.get(given.store, given.store)) as made:
            found = examine(made, given.examples, seed=given.seed, words=rest)
    print(found.text)
    return found.exit_code


if __name__ == "__main__":
    sys.exit(main())
