"""Tests of the parts that SQL queries share, and of undeclared parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.errors import StoreCorrupt
from tidemill.stores.open import open_store
from tidemill.stores.sql import named_queries

STORES = Path(__file__).resolve().parents[2] / "src" / "tidemill" / "stores"
DIALECTS = ["postgres", "sqlite"]

ONE_SIDED_PARTS = {
    **dict.fromkeys(
        ("claim_jobs", "claim_lanes", "claimed_row", "lane_jobs", "live_worker"),
        "PostgreSQL claims in five statements, SQLite in one",
    ),
    **dict.fromkeys(
        ("end_jobs", "ended_columns", "fenced", "step_claim", "step_result"),
        "SQLite runs finish and claim instead of a step",
    ),
    **dict.fromkeys(
        ("count_ends", "count_result", "finish_jobs", "free_jobs", "lock_counters"),
        "PostgreSQL counts ends in one statement, which two queries share; SQLite counts row by row",
    ),
    "taken": "PostgreSQL enqueues in several forms, SQLite in one",
    "released_jobs": "SQLite has statements of their own for jobs that return to a queue, PostgreSQL has lines of one",
    "finished_executions": "SQLite reads executions without a row in history apart; PostgreSQL has one list of all that end",
    "compaction_bound": "SQLite computes the bound in each statement, PostgreSQL once in its only statement",
    **dict.fromkeys(
        ("finished_failures", "record_failures"),
        "PostgreSQL records failures in the statement that ends the jobs, SQLite in one of its own",
    ),
    "journal_alike_ends": "PostgreSQL counts completed jobs that are alike in the statement `step_done`",
    "finishing": "SQLite reads the same join for every table; PostgreSQL reads the rows that it deleted",
}
"""Parts that only one dialect has, each with the reason."""


def parts(dialect: str) -> dict[str, str]:
    folder = STORES / "sql" / dialect / "queries" / "parts"
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.sql"))}


def included(dialect: str) -> list[str]:
    """Return the names of all parts that a line includes, once for each line."""
    return [name for name, _ in includes(dialect)]


def includes(dialect: str) -> list[tuple[str, str]]:
    """Return the name of the part, and the flag if there is one, of every line that includes a part."""
    files = (STORES / "sql" / dialect / "queries").rglob("*.sql")
    line = re.compile(r"^ *-- include: (\w+)(?:\(.*\))?(?: -- when (\w+))?", flags=re.M)
    return [pair for path in files for pair in line.findall(path.read_text(encoding="utf-8"))]


def test_both_dialects_have_the_same_parts() -> None:
    assert set(parts("postgres")) ^ set(parts("sqlite")) == set(ONE_SIDED_PARTS)


@pytest.mark.parametrize("name", sorted(set(parts("postgres")) & set(parts("sqlite"))))
def test_a_part_has_the_same_arguments_and_columns_in_both_dialects(name: str) -> None:
    ours, theirs = parts("postgres")[name], parts("sqlite")[name]
    assert set(re.findall(r"\{\w+\}", ours)) == set(re.findall(r"\{\w+\}", theirs))
    assert (
        re.findall(r"^-- \w+: .*$", ours, flags=re.M)[1:]
        == re.findall(r"^-- \w+: .*$", theirs, flags=re.M)[1:]
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_part_starts_with_a_description_and_is_included_more_than_once(dialect: str) -> None:
    uses = included(dialect)
    # A part with a flag keeps a group of statements in one place, so that one line of its user has the flag.
    optional = {name for name, flag in includes(dialect) if flag}
    for name, text in parts(dialect).items():
        assert re.match(rf"^-- {name}: \S.*[.]$", text.splitlines()[0]), f"{dialect}/{name}"
        assert uses.count(name) > 1 or name in optional, f"{dialect}/{name}"
    assert set(uses) == set(parts(dialect))


def lists_of_job_columns(dialect: str) -> set[str]:
    """Return the files and parts that list the columns of a job."""
    return {
        path.stem
        for path in (STORES / "sql" / dialect / "queries").rglob("*.sql")
        if re.search(r"\bmax_attempts, (\w\.)?(crashes|created_at)\b", path.read_text(encoding="utf-8"))
    }


def test_the_columns_of_a_job_are_listed_once_for_each_form() -> None:
    # Jobs that are enqueued one by one, or are similar, have fewer columns.
    fewer = {"enqueue_one", "enqueue_alike"}
    assert (
        lists_of_job_columns("postgres")
        == {"job_columns", "job_row", "held_row", "claimed_row", "restore"} | fewer
    )
    # A restored job brings all columns of an ended one along, which no other verb receives.
    assert lists_of_job_columns("sqlite") == {"job_columns", "job_row", "held_row", "claim", "restore"}


PARTS = {
    "two": "-- two: two columns.\na, b",
    "three": "-- three: three columns.\n-- gives: a int4\n-- include: two\n, c -- when c",
    "among": "-- among: a condition.\nwhere {column} in ({values})",
    "deep": "-- deep: a condition on y.\n-- include: among(column={name}; values=1, 2)",
}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("select\n  -- include: two\nfrom t", "select\n  a, b\nfrom t"),
        ("-- include: two(prefix=x)", "x.a, x.b"),
        ("-- include: two -- when d", "a, b -- when d"),
        ("-- include: three", "-- gives: a int4\na, b\n, c -- when c"),
        ("-- include: among(column=f(x); values=1, 2)", "where f(x) in (1, 2)"),
        ("-- include: deep(name=y)", "where y in (1, 2)"),
        ("select 1 -- no part", "select 1 -- no part"),
    ],
)
def test_a_part_takes_the_place_of_the_line_that_includes_it(text: str, expanded: str) -> None:
    assert named_queries.expand(text, PARTS.__getitem__) == expanded


@pytest.mark.parametrize("line", ["among(column=x)", "among(column=x; values=1; more=2)", "two(column=x)"])
def test_missing_and_unused_arguments_of_a_part_are_refused(line: str) -> None:
    with pytest.raises(StoreCorrupt, match="missing or unused argument"):
        named_queries.expand(f"-- include: {line}", PARTS.__getitem__)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_text_of_a_query_for_readers_contains_its_parts(dialect: str) -> None:
    for name, query in named_queries.load(dialect).items():
        text = query.text()
        assert "include:" not in text
        again = named_queries.parse(name, text)
        assert (again.takes, again.items, again.gives) == (query.takes, query.items, query.gives)
        for present in (frozenset(), query.optional):
            assert again.statements(present) == query.statements(present)


# ------------------------------------------------------------------------------------------------- undeclared parameters


@pytest.fixture(params=DIALECTS)
def any_store(request: pytest.FixtureRequest) -> Iterator[Any]:
    where = {"postgres": "migrated_postgres_url", "sqlite": "tmp_path"}[request.param]
    value = request.getfixturevalue(where)
    store = open_store(value if isinstance(value, str) else f"sqlite:///{value}/jobs.db")
    store.migrate()
    yield store
    store.close()


@pytest.mark.parametrize(
    ("call", "unknown"),
    [
        (("get", {"ids": [], "names": []}), "names"),
        (("get", {"ids": [], "colour": None}), "colour"),
        (("start", {"now": None}, {"id": [], "token": [], "worker": [], "node": []}), "node"),
        (("logs", {"id": None}, None, ("sideways",)), "sideways"),
    ],
)
def test_a_parameter_that_the_file_does_not_declare_is_refused(
    any_store: Any, call: tuple[Any, ...], unknown: str
) -> None:
    with pytest.raises(TypeError, match=f"query {call[0]} has no parameter {unknown}; expected "):
        any_store._db.run(*call)
