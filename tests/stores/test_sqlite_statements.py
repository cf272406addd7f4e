"""Tests of how batches are bound to SQLite statements."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tidemill.ids import new_id
from tidemill.stores.sql.named_queries import parse
from tidemill.stores.sql.sqlite.statements import Program, program

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TEXT = """
-- put: an example.
-- takes: now timestamptz
-- items: id uuid, name text, note text
insert into t(id, name, note, at) values (:id, :name, coalesce(:note, :name), :now)
;
delete from t where note = :note
"""


def bound(**items: list[Any]) -> list[tuple[str, list[tuple[Any, ...]]]]:
    made: Program = program(parse("put", TEXT), frozenset())
    return [(sql, list(rows)) for sql, _, rows in made.bind({"now": NOW}, items, lambda: NOW)]


def test_every_occurrence_of_a_parameter_is_bound_for_every_item() -> None:
    first, second = new_id(), new_id()
    insert, delete = bound(id=[first, second], name=["a", "b"], note=[None, "n"])
    at = 1_893_456_000_000_000
    assert insert == (
        "insert into t(id, name, note, at) values (?, ?, coalesce(?, ?), ?)",
        [(first.bytes, "a", None, "a", at), (second.bytes, "b", "n", "b", at)],
    )
    assert delete == ("delete from t where note = ?", [(None,), ("n",)])


def test_a_column_that_is_always_null_becomes_a_literal() -> None:
    one = new_id()
    insert, _ = bound(id=[one], name=["a"], note=[None])
    assert insert[0] == "insert into t(id, name, note, at) values (?, ?, coalesce(null, ?), ?)"
    assert insert[1] == [(one.bytes, "a", "a", 1_893_456_000_000_000)]


def test_a_statement_with_only_null_parameters_runs_for_every_item() -> None:
    _, delete = bound(id=[new_id(), new_id()], name=["a", "b"], note=[None, None])
    assert delete == ("delete from t where note = ?", [(None,), (None,)])


def test_a_value_that_all_items_share_is_encoded_once() -> None:
    shared = new_id()
    insert, _ = bound(id=[shared, shared, shared], name=["a", "b", "c"], note=["n", "n", "n"])
    rows = insert[1]
    assert [row[0] for row in rows] == [shared.bytes] * 3
    assert rows[0][0] is rows[1][0] is rows[2][0]
    assert [row[1] for row in rows] == ["a", "b", "c"]


def test_a_column_with_equal_ends_keeps_the_values_between_them() -> None:
    ends, middle = new_id(), new_id()
    insert, _ = bound(id=[ends, middle, ends], name=["a", "b", "a"], note=[None, "n", None])
    assert [row[0] for row in insert[1]] == [ends.bytes, middle.bytes, ends.bytes]
    assert [row[1:4] for row in insert[1]] == [("a", None, "a"), ("b", "n", "b"), ("a", None, "a")]
