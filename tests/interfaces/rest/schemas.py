"""Schemathesis runs over the OpenAPI document, in this process.

``python -m tests.interfaces.rest.schemas --examples 1000`` sends at least 1,000 generated requests to every route. The
requests are valid and invalid ones of the document. Every response must be one that the document describes, and none
may be a server error. ``--store`` is memory, sqlite or postgres (a private server), or several of them with commas.

Generating a request takes longer than answering it, so each request is generated once and sent to every store. A
request that names an object by its path gets the id of an existing one in three of four cases, and a valid body gets
the fields of a body that the route accepts in every second case, so that requests pass the validation. Each route
begins with new stores, and a route that changes objects gets new ones after every 100 requests. The client leaves an
event stream after its first events.

A route with few parameters has few different requests. They are sent again until the number is reached; the table at
the end shows how many were distinct. ``--step`` lets all routes advance together, and ``--processes`` processes share
them. ``--minutes`` ends the run early; routes that were not reached are listed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import FailureGroup
from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
from schemathesis.generation.overrides import with_config_headers
from tests.interfaces.rest.schema_targets import HOOK, KEY, Target, new_targets

from tidemill.rest.api import _document, all_routes
from tidemill.rest.routes import ApiOperation

STORES = ("memory", "sqlite", "postgres")

RENEWED = 100
"""Requests after which a route that changes objects gets new stores."""

SENDING_CHECKS = frozenset({"ignored_auth", "object_level_authorization"})
"""Checks that send requests of their own. ``test_guard`` and ``test_grants`` cover what they look for."""

CONFIG: dict[str, Any] = {
    "headers": {"Authorization": KEY},
    "checks": {
        # A request that fits the document may not fit the task, the trigger or the state of the object.
        "positive_data_acceptance": {
            "expected-statuses": ["2xx", 401, 403, 404, 409, 413, 422, 429],
        },
        "negative_data_rejection": {
            "expected-statuses": [400, 401, 403, 404, 405, 406, 409, 413, 414, 415, 422, 429, 431],
        },
    },
}


load_all_checks()


class OutOfTime(BaseException):
    """The time of the run is over. Hypothesis handles no exception of this kind."""


@dataclass
class Answers:
    """The requests to one route and its responses."""

    route: str
    requests: int = 0
    distinct: set[str] = field(default_factory=set)
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    problems: dict[str, str] = field(default_factory=dict)  #: by their first line

    def add(self, store: str, response: schemathesis.Response) -> None:
        """Count the response of one store."""
        self.statuses[str(response.status_code)] += 1
        if response.status_code >= 500:
            self.add_problem(f"{store}: status {response.status_code}", _shown(response))

    def add_problem(self, title: str, text: str) -> None:
        self.problems.setdefault(title, text)

    def data(self) -> dict[str, Any]:
        """The counts as JSON data."""
        return {
            "route": self.route,
            "requests": self.requests,
            "distinct": len(self.distinct),
            "statuses": dict(sorted(self.statuses.items())),
            "seconds": round(self.seconds, 1),
            "problems": self.problems,
        }


def _shown(response: schemathesis.Response) -> str:
    asked = response.request
    body: Any = asked.body or b""
    body = body[:2_000]
    return f"{asked.method} {asked.url}\n{dict(asked.headers)}\n{body!r}\n{response.content[:2_000]!r}"


class Examination:
    """Sends the requests of one route to one API on each store."""

    def __init__(
        self,
        route: ApiOperation,
        stores: Mapping[str, Callable[[], contextlib.AbstractContextManager[Target]]],
        *,
        seed: int,
        until: float | None = None,
        random_only: bool = False,
    ) -> None:
        self._route, self._stores = route, stores
        self._seed, self._until, self._random_only = seed, until, random_only
        self._targets: dict[str, Target] = {}
        self._open = contextlib.ExitStack()
        self._excluded: list[Any] = [check for check in CHECKS.get_all() if check.__name__ in SENDING_CHECKS]
        self.answers = Answers(f"{route.method} {route.path}")

    def run(self, examples: int) -> Answers:
        """Send requests up to this number in total. Raise ``OutOfTime`` at the end of the run."""
        operation = schema()[self._route.shown_path][self._route.method]
        began = time.monotonic()
        try:
            with self._open:
                self._renew()
                if not self.answers.requests and not self._random_only:
                    self._send_all(operation, [HypothesisTestMode.EXAMPLES, HypothesisTestMode.COVERAGE], 1)
                while (rest := examples - (before := self.answers.requests)) > 0:
                    self._send_all(operation, [HypothesisTestMode.FUZZING], rest)
                    self._seed += 1
                    assert self.answers.requests > before, f"no requests for {self.answers.route}"
        finally:
            self.answers.seconds += time.monotonic() - began
        return self.answers

    def _renew(self) -> None:
        """Open targets on new stores."""
        self._open.close()
        for store, target in self._stores.items():
            self._targets[store] = self._open.enter_context(target())

    def _send_all(self, operation: Any, modes: list[HypothesisTestMode], examples: int) -> None:
        settings = hypothesis.settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
            verbosity=hypothesis.Verbosity.quiet,
        )

        def one(case: schemathesis.Case[Any]) -> None:
            self._send(case)

        config = HypothesisTestConfig(
            project=operation.schema.config,
            modes=modes,
            settings=settings,
            seed=self._seed,
            apply_ci_profile=False,
            override=with_config_headers(operation.schema.config, operation=operation),
        )
        create_test(operation=operation, test_func=one, config=config)()

    def _send(self, case: schemathesis.Case[Any]) -> None:
        if self._until is not None and time.monotonic() > self._until:
            raise OutOfTime
        answers, number = self.answers, self.answers.requests
        if self._route.mutates and number % RENEWED == RENEWED - 1:
            self._renew()
        answers.requests += 1
        generated = dict(case.path_parameters)
        for store, target in self._targets.items():
            self._name_objects(case, target, generated, number)
            response = target.send(case, everywhere=self._route.everywhere or number % 8 == 7)
            if store == next(iter(self._targets)):
                answers.distinct.add(_fingerprint(response.request, generated))
            answers.add(store, response)
            try:
                case.validate_response(response, excluded_checks=self._excluded)
            except FailureGroup as group:
                for failure in group.exceptions:
                    if is_text(str(failure)):
                        continue
                    words = " ".join(str(failure).split())[:120]
                    answers.add_problem(f"{store}: {words}", f"{failure}\n{_shown(response)}")

    def _name_objects(
        self, case: schemathesis.Case[Any], target: Target, generated: Mapping[str, Any], number: int
    ) -> None:
        """Let a request name objects of this target, and give it a body that the route accepts."""
        if generated and number % 4:
            known = target.parameters(self._route)
            named = known[number % len(known)]
            case.path_parameters.update({name: named[name] for name in generated if name in named})
        body = target.body(self._route)
        if body is not None and number % 2 and isinstance(case.body, dict) and _is_positive(case):
            case.body = {**_some(case.body, number), **body}


def is_text(failure: str) -> bool:
    """Whether a failure only says that a text of a query was accepted where the document has a text.

    A query has no types: after ``task=false`` nothing shows that the generator meant a boolean, and "false" is a task's name.
    """
    violations = [line for line in failure.splitlines() if line.strip().startswith("- violates")]
    return (
        failure.startswith("Schema-violating request accepted")
        and " in query" in failure
        and bool(violations)
        and all(_TEXT_EXPECTED.search(line) for line in violations)
    )


_TEXT_EXPECTED = re.compile(r"violates `type` at .* \(was (array|null|string), became \w+\)$")


def _some(fields: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Up to two fields of a body. All of them together almost always contradict each other."""
    names = sorted(fields)
    begin = number // 2 % max(len(names), 1)
    return {name: fields[name] for name in (names + names)[begin : begin + 2]}


def _is_positive(case: schemathesis.Case[Any]) -> bool:
    return case.meta is not None and case.meta.generation.mode.is_positive


def _fingerprint(request: Any, generated: Mapping[str, Any]) -> str:
    """A hash of a request, with the generated parameters instead of the ids of a store."""
    headers = {
        name: value for name, value in request.headers.items() if not name.lower().startswith("x-schema")
    }
    text = f"{request.method} {request.url} {sorted(generated.items())} {sorted(headers.items())}"
    body = request.body or b""
    given = body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text.encode("utf-8", "surrogatepass") + b"\0" + given).hexdigest()[:16]


_schema: list[Any] = []


def schema() -> Any:
    """The document as schemathesis reads it."""
    if not _schema:
        config = schemathesis.Config.from_dict(CONFIG)
        _schema.append(schemathesis.openapi.from_dict(json.loads(json.dumps(_document(""))), config=config))
    return _schema[0]


def routes(only: str = "") -> list[ApiOperation]:
    """The routes whose method and path match."""
    return [route for route in all_routes() if re.search(only, f"{route.method} {route.path}")]


def examine(
    chosen: Sequence[ApiOperation],
    stores: Sequence[str],
    *,
    examples: int,
    step: int | None = None,
    seed: int = 1,
    until: float | None = None,
    random_only: bool = False,
) -> Iterator[Answers]:
    """Send requests to each of the routes, and yield its responses so far after each step."""
    os.environ.setdefault(*HOOK)
    with contextlib.ExitStack() as around:
        opened = {store: around.enter_context(new_targets(store)) for store in stores}
        examinations = [
            Examination(route, opened, seed=seed, until=until, random_only=random_only) for route in chosen
        ]
        for most in range(step or examples, examples + 1, step or examples):
            for examination in examinations:
                if examination.answers.requests >= most:
                    continue
                try:
                    yield examination.run(most)
                except OutOfTime:
                    yield examination.answers
                    return


def table(found: Sequence[Mapping[str, Any]], chosen: Sequence[ApiOperation], examples: int) -> str:
    """The requests and responses of each route, and the routes that were not reached."""
    width = max((len(row["route"]) for row in found), default=0)
    lines = [f"{'':<{width}}  {'requests':>8}  {'distinct':>8}  {'seconds':>7}  responses"]
    for row in sorted(found, key=lambda row: row["route"].split()[::-1]):
        statuses = " ".join(f"{status}:{number}" for status, number in row["statuses"].items())
        line = f"{row['route']:<{width}}  {row['requests']:>8,}  {row['distinct']:>8,}  {row['seconds']:>7.1f}  {statuses}"
        if row["requests"] < examples:
            line += f"  (fewer than {examples:,}: out of time)"
        lines.append(line)
    reached = {row["route"] for row in found}
    lines += [
        f"not reached: {name}" for route in chosen if (name := f"{route.method} {route.path}") not in reached
    ]
    total = sum(row["requests"] for row in found)
    responses = sum(sum(row["statuses"].values()) for row in found)
    errors = sum(number for row in found for status, number in row["statuses"].items() if status >= "500")
    lines.append(
        f"{len(reached)} of {len(chosen)} routes, {total:,} requests, {responses:,} responses, {errors} server errors"
    )
    return "\n".join(lines)


def _part(given: argparse.Namespace) -> int:
    """Examine one part of the routes, and write a line of JSON for each."""
    part, of = (int(word) for word in given.part.split("/"))
    until = None if given.minutes is None else time.monotonic() + given.minutes * 60
    chosen = routes(given.only)[part - 1 :: of]
    for answers in examine(
        chosen,
        given.store.split(","),
        examples=given.examples,
        step=given.step,
        seed=given.seed,
        until=until,
        random_only=given.random_only,
    ):
        row = answers.data()
        print(json.dumps(row), flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=100, help="requests to each route")
    parser.add_argument("--store", default="memory", help="memory, sqlite, postgres; several with commas")
    parser.add_argument("--step", type=int, help="let all routes advance by so many requests  [default: all]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--random-only",
        action="store_true",
        help="leave out the fixed cases, for a further run with another seed",
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", metavar="REGEX", help="only routes such as 'POST /api/jobs$'")
    parser.add_argument("--minutes", type=float, help="end the run early")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        return _part(given)
    with tempfile.TemporaryDirectory(prefix="tidemill-schemas-") as folder:
        files = [Path(folder, f"{number}.jsonl") for number in range(1, given.processes + 1)]
        command = [sys.executable, "-m", "tests.interfaces.rest.schemas", *sys.argv[1:]]
        running = []
        for number, file in enumerate(files, 1):
            words = [*command, "--part", f"{number}/{given.processes}"]
            running.append(subprocess.Popen(words, stdout=file.open("w")))
        try:
            codes = [process.wait() for process in running]
        finally:
            for process in running:
                process.terminate()
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    found = list({row["route"]: row for row in lines}.values())
    for row in found:
        for title, text in row["problems"].items():
            print(f"\n== {row['route']}: {title}\n{text}")
    print(table(found, routes(given.only), given.examples), flush=True)
    return int(any(codes) or any(row["problems"] for row in found))


if __name__ == "__main__":
    sys.exit(main())
