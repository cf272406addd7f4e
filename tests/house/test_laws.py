"""The laws of CONTRIBUTING.md about stores, the clock of the domain, and names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.domain.job import Transition
from tidemill.domain.states import ENDED, RELEASED, ExecutionState, JobState
from tidemill.stores.sql.named_queries import NamedQuery, load

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tidemill"
STORES = SOURCE / "stores"
GOLDEN = ROOT / "tests" / "stores" / "golden" / "postgres.sql"


def modules(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


# ----------------------------------------------------------------------------------- the domain decides, stores apply

DECIDING = {"decide", "limited_turns", "misfits", "outcome", "retry", "runner_health", "schedule_fires"}
"""Modules of the domain that decide about jobs or schedules."""

OUTCOMES = {state.name for state in ENDED - {JobState.COMPLETED}}
"""States that a decision gives to a job. A completed job succeeded; no store has to decide that."""


def decisions(tree: ast.Module) -> Iterator[str]:
    """Yield everything in a module that decides about a job."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            room = node.module.removeprefix("tidemill.domain.")
            names = {alias.name for alias in node.names} - {"COMPLETED"}
            if room in DECIDING and room != node.module and names:
                yield f"imports {', '.join(sorted(names))} from {node.module}"
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in OUTCOMES
            and ast.unparse(node.value) == "JobState"
        ):
            yield f"names JobState.{node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Transition":
            yield "creates a Transition"


def test_the_code_of_stores_decides_no_outcome() -> None:
    assert {path.stem for path in (SOURCE / "domain").glob("*.py")} >= DECIDING
    assert {name: odd for name, tree in modules(STORES) if (odd := list(decisions(tree)))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from tidemill.domain.decide import decide",
        "from tidemill.domain.retry import RetryPolicy",
        "state = JobState.CANCELLED",
        "change = Transition(state, execution)",
    ],
)
def test_a_decision_in_a_store_is_detected(source: str) -> None:
    assert list(decisions(ast.parse(source)))


WRITTEN = re.compile("'(" + "|".join(sorted(ENDED)) + ")'")
COMPARED = re.compile(r"(?:in \([^()]*\)|(?:<>|!=|=) '\w+')")

LITERAL_OUTCOMES = {"postgres/step_done": {"completed"}}
"""Queries that write the state of an ended job themselves: ``step_done`` is for the transition ``COMPLETED`` only."""


def outcomes(sql: str) -> set[str]:
    """Return the ended states that a statement contains, except where it only compares a state with them."""
    return set(WRITTEN.findall(COMPARED.sub("", sql)))


def written(query: NamedQuery) -> list[str]:
    """Return the statements of a query that write."""
    texts = query.statements(query.optional)
    return [text for text in texts if re.search(r"\b(insert into|update) (temp\.)?tidemill", text)]


def test_the_statements_of_stores_write_no_outcome_of_their_own() -> None:
    found = {
        f"{dialect}/{name}": states
        for dialect in ("postgres", "sqlite")
        for name, query in load(dialect).items()
        if (states := {state for text in written(query) for state in outcomes(text)})
    }
    assert found == LITERAL_OUTCOMES


@pytest.mark.parametrize(
    ("sql", "states"),
    [
        ("select case when cancel_reason is null then to_state else 'cancelled' end", {"cancelled"}),
        ("select id from jobs where state in ('completed', 'failed') and state <> 'completed'", set()),
    ],
)
def test_an_outcome_in_a_statement_is_detected(sql: str, states: set[str]) -> None:
    assert outcomes(sql) == states


@pytest.mark.parametrize("state", sorted(set(JobState) - {JobState.CLAIMED, JobState.RUNNING}))
def test_the_domain_decides_what_a_late_cancel_request_changes(state: JobState) -> None:
    expected = JobState.CANCELLED if state in RELEASED else None
    assert Transition(state, ExecutionState.FAILED).on_cancel is expected


# --------------------------------------------------------------------------------------- at most eight verbs in a class

MOST_VERBS = 8


def verbs(tree: ast.Module) -> dict[str, list[str]]:
    """Return the abstract methods of each class of a module."""
    return {
        node.name: [
            item.name
            for item in node.body
            if isinstance(item, ast.FunctionDef)
            and any(ast.unparse(decorator) == "abstractmethod" for decorator in item.decorator_list)
        ]
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def test_no_base_class_of_the_store_has_more_than_eight_verbs() -> None:
    found = {name: names for file, tree in modules(STORES) for name, names in verbs(tree).items() if names}
    assert {"LifecycleStore", "JobQueries", "LimitStore", "FireStore"} <= set(found)
    assert {name: names for name, names in found.items() if len(names) > MOST_VERBS} == {}


def test_the_verbs_of_a_class_are_counted() -> None:
    source = "class A(ABC):\n    @abstractmethod\n    def a(self): ...\n    def b(self): ...\n"
    assert verbs(ast.parse(source)) == {"A": ["a"]}


# ---------------------------------------------------------------------------------------- the domain is given its time

CLOCKS = {"domain/triggers/base.py": ["present"]}
"""The one clock that the domain may call: the app provides it for previews without a start."""


def clocks(tree: ast.Module) -> list[str]:
    """Return the variables, fields and parameters of a module that hold a function which returns an instant."""
    held = [
        (node.target.id, node.annotation)
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    held += [
        (node.arg, node.annotation)
        for node in ast.walk(tree)
        if isinstance(node, ast.arg) and node.annotation
    ]
    return [name for name, annotation in held if "Callable[[], datetime]" in ast.unparse(annotation)]


def test_only_a_preview_without_a_start_calls_a_clock_in_the_domain() -> None:
    assert {name: found for name, tree in modules(SOURCE / "domain") if (found := clocks(tree))} == CLOCKS
    owners = {"Trigger", "type(self)", "self", "cls"}
    readers = {
        name
        for name, tree in modules(SOURCE)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "present" and ast.unparse(node.value) in owners
    }
    assert readers == {"domain/triggers/base.py", "schedule_triggers.py"}


@pytest.mark.parametrize(
    "source",
    [
        "def f(now: Callable[[], datetime]) -> None: ...",
        "clock: ClassVar[Callable[[], datetime] | None] = None",
    ],
)
def test_a_clock_in_the_domain_is_detected(source: str) -> None:
    assert clocks(ast.parse(source))


# ----------------------------------------------------------------------------------------------------------- the names


def test_columns_of_instants_end_in_at() -> None:
    names = set(re.findall(r"(\w+) timestamptz", GOLDEN.read_text(encoding="utf-8")))
    assert "created_at" in names
    assert {name for name in names if name != "at" and not name.endswith("_at")} == set()


def texts() -> Iterator[tuple[str, str]]:
    for suffix in ("py", "sql", "html", "js", "css"):
        for path in SOURCE.rglob(f"*.{suffix}"):
            yield path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")


def test_cancelled_has_the_british_spelling() -> None:
    # Other libraries and protocols have their own spelling.
    american = re.compile(r"\bcanceled\b|\bCanceled\b|\bcanceling\b")
    assert sorted(name for name, text in texts() if american.search(text)) == []


def test_most_files_have_fewer_than_250_lines() -> None:
    lengths = [len(text.splitlines()) for name, text in texts() if name.endswith(".py")]
    assert sum(length < 250 for length in lengths) > len(lengths) / 2
