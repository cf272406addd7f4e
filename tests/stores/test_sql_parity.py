"""Tests that both SQL dialects agree, and that SQL is in .sql files only."""

from __future__ import annotations

import ast
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.pq import ExecStatus

from tidemill.stores.open import open_store
from tidemill.stores.sql import named_queries
from tidemill.stores.sql.named_queries import Column, NamedQuery, parameters, substitute
from tidemill.stores.sql.sqlite import connection as sqlite_connection
from tidemill.stores.sql.sqlite.settings import SqliteSettings

STORES = Path(__file__).resolve().parents[2] / "src" / "tidemill" / "stores"
DIALECTS = ["postgres", "sqlite"]

ONE_SIDED = {
    "enqueue_alike": "saves PostgreSQL fourteen arrays; SQLite receives one row at a time in any case",
    "enqueue_one": "saves PostgreSQL all arrays; SQLite receives one row at a time in any case",
    "wake": "SQLite's wake-ups do not use the database",
    "claim_counted": "saves PostgreSQL round trips while it holds locks; SQLite runs in the same process",
    "step_handoff": "a form of `step` for jobs with limits",
    "step_done": "a short form of `step`",
    "deal": "saves PostgreSQL a second write of each job; SQLite claims and reassigns in the same process",
    **dict.fromkeys(
        ("finish_tied", "count_ends", "lock_ends"),
        "counts ends in one statement; SQLite, which has no statement that writes to several tables, counts row by row",
    ),
    "step": "SQLite has no statement that writes to several tables; the store runs finish and claim in one transaction",
}

ONE_SIDED_LINES = {
    "finish": frozenset({"counted"}),
    **dict.fromkeys(("beat", "log", "renew", "report", "start", "write_streams"), frozenset({"alone"})),
}
"""Lines that only PostgreSQL has: a finish also releases limits, which SQLite does in a separate statement; and a setting for
commits without a synchronous standby, which SQLite does not have.
"""

SQL_IN_PYTHON = {
    "sql/migrations.py": "builds the script for other tools",
    "sql/postgres/driver.py": "session settings",
    "sql/postgres/advisory_locks.py": "advisory locks and session settings",
    "sql/postgres/schema.py": "the table of migrations, which is read before other tables exist",
    "sql/postgres/server.py": "settings and activity of the server, which SQLite does not have",
    "sql/postgres/wakeups.py": "LISTEN",
    "sql/sqlite/connection.py": "pragmas that configure a connection",
    "sql/sqlite/driver.py": "statements that begin and end a transaction",
    "sql/sqlite/schema.py": "the table of migrations, which is read before other tables exist",
    "sql/sqlite/session.py": "statements that begin a transaction, and pragmas",
}
"""The files whose strings may contain SQL, each with the reason."""

OIDS = {
    "bool": 16, "int8": 20, "int2": 21, "int4": 23, "text": 25, "float8": 701, "timestamptz": 1184, "interval": 1186,
    "uuid": 2950, "json": 3802,
}  # fmt: skip
ARRAYS = {"bool": 1000, "int2": 1005, "int4": 1007, "text": 1009, "int8": 1016, "float8": 1022, "timestamptz": 1185,
          "interval": 1187, "uuid": 2951}  # fmt: skip

SAMPLES: dict[str, Any] = {
    "uuid": b"0123456789abcdef", "text": "x", "int2": 1, "int4": 1, "int8": 1, "float8": 1.0, "bool": 0,
    "timestamptz": 1, "interval": 1, "uuids": "[]", "texts": "[]", "int8s": "[]",
}  # fmt: skip
"""A value of each type, as SQLite stores it."""

WORDS = {"kind": "queue", "rule_kind": "rate", "level": "info", "state": "active", "details": "{}", "metadata": "{}", "scope": "cluster",
         "source": "stored", "role": "viewer", "condition": "success", "pairs": "[]", "status": "open"}  # fmt: skip
"""Parameters that a CHECK or a JSON function inspects."""

NAMES = sorted(set(named_queries.load("postgres")) & set(named_queries.load("sqlite")))


def both(name: str) -> tuple[NamedQuery, NamedQuery]:
    return named_queries.load("postgres")[name], named_queries.load("sqlite")[name]


def variants(query: NamedQuery) -> list[frozenset[str]]:
    """Return calls without optional parameters, and with all of them in each page order."""
    orders = query.optional & {"newest", "oldest"}
    return [frozenset(), *(query.optional - (orders - {order}) for order in orders or {""})]


# --------------------------------------------------------------------------------------------------- the .sql files


def test_both_dialects_have_the_same_queries() -> None:
    held = [set(named_queries.load(dialect)) for dialect in DIALECTS]
    assert held[0] ^ held[1] == set(ONE_SIDED)


@pytest.mark.parametrize("name", NAMES)
def test_a_query_has_the_same_parameters_and_columns_in_both_dialects(name: str) -> None:
    ours, theirs = both(name)
    assert (ours.takes, ours.items, ours.gives) == (theirs.takes, theirs.items, theirs.gives)


@pytest.mark.parametrize("name", NAMES)
def test_optional_lines_depend_on_the_same_parameters_in_both_dialects(name: str) -> None:
    ours, theirs = both(name)
    assert ours.optional - ONE_SIDED_LINES.get(name, frozenset()) == theirs.optional


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_query_starts_with_a_description(dialect: str) -> None:
    for name, query in named_queries.load(dialect).items():
        first = query.body.splitlines()[0]
        assert re.match(rf"^-- {name}: \S.*[.]( .*)?$", first), f"{dialect}/{name}: {first}"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_query_uses_exactly_the_parameters_of_its_header(dialect: str) -> None:
    for query in named_queries.load(dialect).values():
        text = "\n".join(line for line in query.body.splitlines() if not line.startswith("--"))
        mentioned = set(parameters(re.sub(r"-- .*$", "", text, flags=re.M)))
        named = [name for name, _ in query.takes + query.items]
        assert mentioned == set(named)
        assert len(named) == len(set(named)), query.name


def test_a_header_that_contradicts_the_body_is_refused() -> None:
    with pytest.raises(Exception, match="disagree about b"):
        named_queries.parse("q", "-- q: a sentence.\n-- takes: a text\nselect :a, :b")


# ------------------------------------------------------------------------------------------------- the databases


@pytest.fixture(scope="module")
def postgres_connection(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    store = open_store(postgres_url)
    store.migrate()
    store.close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def sqlite_writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = str(tmp_path_factory.mktemp("parity") / "jobs.db")
    store = open_store(f"sqlite:///{path}")
    store.migrate()
    store.close()
    with closing(sqlite_connection.connect(path)) as connection:
        sqlite_connection.make_writer(connection, SqliteSettings(), sqlite_connection.LockTimeout(1.0, path))
        yield connection


def described(
    connection: psycopg.Connection[Any], query: NamedQuery, present: frozenset[str]
) -> tuple[Any, list[str]]:
    """Return PostgreSQL's description of a statement, which is not run, and the order of its parameters."""
    (text,) = query.statements(present)
    names = parameters(text)
    numbered = substitute(text, {name: f"${place}" for place, name in enumerate(names, start=1)})
    prepared = connection.pgconn.prepare(b"", numbered.encode())
    assert prepared.status == ExecStatus.COMMAND_OK, f"{query.name}: {prepared.error_message.decode()}"
    return connection.pgconn.describe_prepared(b""), names


@pytest.mark.parametrize("name", sorted(named_queries.load("postgres")))
def test_postgres_returns_the_columns_of_the_header(
    postgres_connection: psycopg.Connection[Any], name: str
) -> None:
    query = named_queries.load("postgres")[name]
    for present in variants(query):
        answer, _ = described(postgres_connection, query, present)
        columns = [(answer.fname(n).decode(), answer.ftype(n)) for n in range(answer.nfields)]
        assert columns == [(column, OIDS[kind]) for column, kind in query.gives]


@pytest.mark.parametrize("name", sorted(named_queries.load("postgres")))
def test_postgres_parameters_have_the_types_of_the_header(
    postgres_connection: psycopg.Connection[Any], name: str
) -> None:
    query = named_queries.load("postgres")[name]
    wanted = {column: accepted(column, kind) for column, kind in query.takes}
    wanted |= {column: {ARRAYS[kind]} for column, kind in query.items}
    for present in variants(query):
        answer, names = described(postgres_connection, query, present)
        odd = [name for place, name in enumerate(names) if answer.param_type(place) not in wanted[name]]
        assert odd == []


def accepted(column: str, kind: str) -> set[int]:
    if column == "limit":
        # LIMIT is a bigint in PostgreSQL; the header declares a smaller type.
        return {OIDS["int8"]}
    if column == "metadata":
        # JSON is sent as text.
        return {OIDS["text"], OIDS["json"]}
    return {ARRAYS[kind[:-1]] if kind.endswith("s") else OIDS[kind]}


def sample(query: str, column: Column) -> Any:
    name, kind = column
    if query.startswith("restore") and name in ("state", "execution"):
        return "failed"  # the state of an ended job and of its execution
    if query == "put_archived_flow" and name == "state":
        return "completed"  # only flows that ended are archived
    if query in ("put_groups", "put_archived_flow") and name == "kind":
        return "flow"  # other tables have kinds of their own
    if query == "put_sources" and name == "kind":
        return "event"
    if query in ("place", "copy_placement") and name == "state":
        return "placed"
    return WORDS.get(name, SAMPLES[kind]) if kind == "text" else SAMPLES[kind]


@pytest.mark.parametrize("name", sorted(named_queries.load("sqlite")))
def test_sqlite_returns_the_columns_of_the_header(sqlite_writer: sqlite3.Connection, name: str) -> None:
    query = named_queries.load("sqlite")[name]
    values = {column[0]: sample(name, column) for column in query.takes + query.items}
    for present in variants(query):
        sqlite_writer.execute("begin immediate")
        description: Any = None
        try:
            for statement in query.statements(present):
                description = sqlite_writer.execute(statement, values).description or description
        finally:
            sqlite_writer.execute("rollback")
        assert [column[0] for column in description or ()] == [column for column, _ in query.gives]


# ------------------------------------------------------------------------------------------------- the Python code

_SQL = re.compile(
    r"^\s*(select|insert|update|delete|with|create|drop|alter|truncate|lock|listen|notify|pragma|set|begin|savepoint"
    r"|release|copy|vacuum|analyze|attach)\s+[\w\"'*(]|^\s*(begin|commit|rollback)\b\s*;?\s*$",
    re.IGNORECASE,
)


def strings(source: str) -> Iterator[str]:
    """Yield every string of a module except docstrings; of an f-string, its beginning."""
    tree = ast.parse(source)
    idle = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            idle.update(id(part) for part in node.values[1:])
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in idle:
            yield node.value


def holding_sql() -> dict[str, list[str]]:
    files = {}
    for path in sorted(STORES.rglob("*.py")):
        if some := [text for text in strings(path.read_text(encoding="utf-8")) if _SQL.match(text)]:
            files[path.relative_to(STORES).as_posix()] = some
    return files


def test_python_strings_contain_sql_only_in_listed_files() -> None:
    files = holding_sql()
    assert {file: texts for file, texts in files.items() if file not in SQL_IN_PYTHON} == {}
    assert set(SQL_IN_PYTHON) - set(files) == set()


@pytest.mark.parametrize(
    "text",
    ["select 1", "SELECT * from t", "  insert into t values (1)", "with x as (select 1) select 1", "commit"],
)
def test_a_string_with_sql_is_detected(text: str) -> None:
    assert [string for string in strings(f"x = {text!r}\ny = f'{{x}}'") if _SQL.match(string)] == [text]


@pytest.mark.parametrize("text", ["delete", "selected", "update", "with", "created_at", "a select statement"])
def test_a_plain_word_is_not_detected_as_sql(text: str) -> None:
    assert not _SQL.match(text)


def queries_in_use() -> set[str]:
    """Return the names of queries that Python runs."""
    names = set()
    for path in (STORES / "sql").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and (
                    getattr(node.func, "attr", None) in ("run", "_insert", "prepare")
                    or getattr(node.func, "id", None) == "QueryCall"
                )
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                names.add(str(node.args[0].value))
    return names


def test_python_runs_every_query_and_only_existing_ones() -> None:
    assert queries_in_use() == set(named_queries.load("postgres")) | set(named_queries.load("sqlite"))


GOLDEN = Path(__file__).parent / "golden" / "postgres.sql"
TABLE = re.compile(r"create table tidemill\.(\w+)\((.*?)\);", re.DOTALL)


def columns_sorted_by_locale() -> set[tuple[str, str]]:
    """Return text columns that PostgreSQL sorts by the locale of the database, as pairs of table and column."""
    return {
        (table, column)
        for table, body in TABLE.findall(GOLDEN.read_text("utf-8"))
        for column, rest in re.findall(r"(\w+) text\b([^,]*)", body)
        if "collate" not in rest
    }


def test_text_is_sorted_by_code_point_in_every_locale() -> None:
    local, looked_at = columns_sorted_by_locale(), 0
    assert ("checkpoints", "name") in local
    for name, query in named_queries.load("postgres").items():
        for text in query.statements(query.optional):
            tables = set(re.findall(r"tidemill\.(\w+)", text))
            depth = [text[:place].count("(") - text[:place].count(")") for place in range(len(text))]
            for match in re.finditer(r"\border by ([^()]+?)(?= limit\b| for\b|$)", text, re.DOTALL):
                # The order inside a subquery is not visible.
                if depth[match.start()]:
                    continue
                for term in match[1].split(","):
                    looked_at += 1
                    column = term.split()[0].rpartition(".")[2]
                    sorted_locally = any((table, column) in local for table in tables)
                    assert not sorted_locally or 'collate "C"' in term, f"{name}: order by {term}"
    assert looked_at > 40
