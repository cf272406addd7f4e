"""Tests that the fast path of the codec gives the same answers as the full path."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any

import pytest
from pydantic import BeforeValidator, Field, PlainSerializer

from tidemill.errors import BadArguments
from tidemill.tasks.codec import ResultCodec, arguments_codec


class Level(IntEnum):
    HIGH = 1


class Loud(str):
    __slots__ = ()


PLAIN: list[Any] = [None, int, str, bool, int | None, list[int], dict[str, bool], dict[str, list[str | None]]]
VALUES: list[Any] = [
    None, 0, -1, 2**70, 10**5000, True, "", "é\u2028", "\ud800", Loud("x"), Level.HIGH, 1.0, float("nan"), b"x",
    [], [1, "2"], [True], (1,), {}, {"a": True}, {1: True}, {"a": ["b", None]}, {"\ud800": True}, ["x" * 5000], object(),
]  # fmt: skip
TEXTS = [
    '{"value":1}', '{"value":"1"}', '{"value":true}', '{"value":null}', '{"value":[1]}', '{"value":{"a":true}}', "{}",
    '{"value":1.0}', '{"value":1,"more":2}', '{"value":1', '{"value":{"a":["b",null]}}', "[]", '{"value":1,"value":2}',
]  # fmt: skip


def said(act: Any, given: Any) -> tuple[str, object]:
    try:
        return "well", act(given)
    except BadArguments as error:
        return "refused", str(error)


def results(annotation: Any) -> tuple[ResultCodec, ResultCodec]:
    """A codec, and one that always takes the full path."""
    short, long = ResultCodec("task", annotation), ResultCodec("task", annotation)
    long.prepare().short_write = None
    return short, long


@pytest.mark.parametrize("annotation", PLAIN, ids=str)
def test_a_result_of_a_plain_type_is_handled_as_on_the_full_path(annotation: Any) -> None:
    short, long = results(annotation)
    assert short.prepare().short_write is not None
    for value in VALUES:
        assert said(short.dump, value) == said(long.dump, value)


@pytest.mark.parametrize("annotation", PLAIN, ids=str)
def test_arguments_of_a_plain_type_are_handled_as_on_the_full_path(annotation: Any) -> None:
    def task(value: Any) -> None: ...

    task.__annotations__["value"] = annotation
    short, long = (arguments_codec("task", task, method=False) for _ in range(2))
    assert short.prepare().short_read is not None
    long.prepare().short_read = None
    for text in TEXTS:
        assert said(short.load, text) == said(long.load, text)


@pytest.mark.parametrize(
    "annotation",
    [
        Any,
        float,
        dict[int, bool],
        Annotated[int, Field(gt=3)],
        Annotated[int, Field(strict=False)],
        Annotated[int, Field(alias="other")],
        list[Annotated[str, Field(max_length=2)]],
        Annotated[int, BeforeValidator(int)],
        Annotated[int, PlainSerializer(str)],
    ],
    ids=str,
)
def test_any_change_to_how_a_type_is_read_or_written_disables_the_fast_path(annotation: Any) -> None:
    def task(value: Any) -> None: ...

    task.__annotations__["value"] = annotation
    assert results(annotation)[0].prepare().short_write is None
    assert arguments_codec("task", task, method=False).prepare().short_read is None
