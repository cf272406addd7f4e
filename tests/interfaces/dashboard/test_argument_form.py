"""Forms generated from a task's schema, and parsing of the submitted values."""

from __future__ import annotations

import datetime as dt
import enum
import json
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel

from tidemill.dashboard.argument_form import Argument, arguments_of, read_arguments, takes_more
from tidemill.tasks.codec import ArgumentsCodec, arguments_codec
from tidemill.web.parsers import Fields


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Box(BaseModel):
    width: int
    label: str | None = None


def every(
    text: str, whole: int, share: float, yes: bool, day: dt.date, at: dt.datetime, id: UUID, colour: Colour, size: Literal["s", 5],
    box: Box, boxes: list[Box], names: dict[str, int], price: Decimal, maybe: int | None, either: int | str, anything: Any,
    api_key: str = "x", count: int = 3, late: dt.date = dt.date(2026, 1, 1),
) -> None: ...  # fmt: skip


CODEC: ArgumentsCodec = arguments_codec("every", every, method=False)
ARGUMENTS: list[Argument] = arguments_of(CODEC.schema())
NAMED = {each.name: each for each in ARGUMENTS}

TYPED = {
    "text": "hello", "whole": "-7", "share": "0.25", "yes": "false", "day": "2026-11-16", "at": "2026-11-16T09:30:00Z",
    "id": "01890a5d-ac96-774b-bcce-b302099a8057", "colour": '"blue"', "size": "5", "box": '{"width": 2}', "boxes": '[{"width": 1}]',
    "names": '{"a": 1}', "price": "9.90", "either": '"x"', "anything": "[1, null]",
}  # fmt: skip


def fields(**changes: str) -> Fields:
    return Fields([(f"arg.{name}", value) for name, value in {**TYPED, **changes}.items()])


def test_every_type_has_its_kind_of_field() -> None:
    assert {name: (each.kind, each.type) for name, each in NAMED.items()} == {
        "text": ("text", "text"), "whole": ("whole", "number"), "share": ("number", "text"), "yes": ("bool", "text"),
        "day": ("text", "date"), "at": ("text", "text"), "id": ("text", "text"), "colour": ("choice", "text"),
        "size": ("choice", "text"), "box": ("json", "text"), "boxes": ("json", "text"), "names": ("json", "text"),
        "price": ("text", "text"), "maybe": ("whole", "number"), "either": ("json", "text"), "anything": ("json", "text"),
        "api_key": ("text", "password"), "count": ("whole", "number"), "late": ("text", "date"),
    }  # fmt: skip


def test_choices_come_from_the_schema() -> None:
    assert NAMED["colour"].choices == (('"red"', "red"), ('"blue"', "blue"))
    assert NAMED["size"].choices == (('"s"', "s"), ("5", "5"))
    assert NAMED["yes"].choices == (("true", "yes"), ("false", "no"))


def test_required_defaults_and_nullable_come_from_the_schema() -> None:
    assert (NAMED["text"].required, NAMED["text"].default) == (True, None)
    assert (NAMED["count"].required, NAMED["count"].default) == (False, "3")
    assert NAMED["maybe"].nullable
    assert not NAMED["text"].nullable


def test_submitted_values_match_the_task() -> None:
    text, errors = read_arguments(fields(), ARGUMENTS)
    assert errors == {}
    found = CODEC.load(text)
    assert found["day"] == dt.date(2026, 11, 16)
    assert found["at"] == dt.datetime(2026, 11, 16, 9, 30, tzinfo=dt.UTC)
    assert (found["colour"], found["size"], found["yes"]) == (Colour.BLUE, 5, False)
    assert (found["box"], found["price"], found["maybe"]) == (Box(width=2), Decimal("9.90"), None)
    assert (found["either"], found["anything"]) == ("x", [1, None])
    assert "count" not in found


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("whole", "1.5"),
        ("whole", "x"),
        ("whole", "true"),
        ("share", "much"),
        ("box", "{"),
        ("yes", "perhaps"),
        ("either", "x y"),
    ],
)
def test_an_unreadable_value_is_reported_for_its_field(name: str, typed: str) -> None:
    _, errors = read_arguments(fields(**{name: typed}), ARGUMENTS)
    assert set(errors) == {f"arg.{name}"}


def test_all_arguments_may_be_given_as_json() -> None:
    assert read_arguments(Fields([("args_json", '{"text": ""}')]), ARGUMENTS) == ('{"text": ""}', {})
    for wrong in ("{", "[]", "7"):
        assert set(read_arguments(Fields([("args_json", wrong)]), ARGUMENTS)[1]) == {"args_json"}


def test_a_task_with_arbitrary_keyword_arguments_is_recognised() -> None:
    def open_(**more: int) -> None: ...

    assert takes_more(arguments_codec("open", open_, method=False).schema())
    assert not takes_more(CODEC.schema())


def test_a_schema_that_refers_to_itself_is_read() -> None:
    whole = {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}}
    assert json.dumps([each.kind for each in arguments_of(whole)]) == '["json"]'
