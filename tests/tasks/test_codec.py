"""Tests of the codec: accepted arguments and results, refusals and their messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, computed_field

from tidemill.errors import BadArguments
from tidemill.tasks.codec import ArgumentsCodec, Encoded, arguments_codec

NOW = datetime(2026, 3, 29, 1, 30, 0, 7, tzinfo=UTC)
NAIVE = NOW.replace(tzinfo=None)


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 1


@dataclass
class Stay:
    nights: int
    since: datetime | None = None
    total: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.total = self.nights * 2


@dataclass
class LongStay(Stay):
    garden: bool = False


class Guest(BaseModel):
    user: int = Field(alias="userId")
    weight: float | None = None
    _cache: object = PrivateAttr(default_factory=object)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return self.user * 2


class Opaque:
    pass


def backup(destination: str, size: int, tags: list[str] = []) -> None: ...  # noqa: B006 - never run


def codec(function: Callable[..., Any]) -> ArgumentsCodec:
    return arguments_codec("backup", function, method=False)


def codec_for(annotation: Any) -> ArgumentsCodec:
    def task(value): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    task.__annotations__ = {"value": annotation}
    return codec(task)


def refusal(function: Callable[..., Any], *args: Any, **kwargs: Any) -> BadArguments:
    with pytest.raises(BadArguments) as caught:
        codec(function).dump(args, kwargs)
    return caught.value


def refusal_for(annotation: Any, value: Any) -> str:
    with pytest.raises(BadArguments) as caught:
        codec_for(annotation).dump((value,), {})
    return caught.value.message.removeprefix("task backup: ")


# ------------------------------------------------------------------------------------------- encoding


def test_the_text_is_compact_and_in_the_order_of_the_signature() -> None:
    encoded = codec(backup).dump((), {"tags": ["ä"], "size": 3, "destination": "/b"})
    assert encoded == Encoded('{"destination":"/b","size":3,"tags":["ä"]}')
    assert encoded.values == {"destination": "/b", "size": 3, "tags": ["ä"]}


def test_arguments_may_be_positional() -> None:
    assert codec(backup).dump(("/b",), {"size": 3}) == codec(backup).dump(("/b", 3), {})


def test_omitted_arguments_stay_omitted_so_that_the_current_default_applies() -> None:
    text = codec(backup).dump(("/b", 3), {}).text
    assert text == '{"destination":"/b","size":3}'
    assert codec(backup).load(text) == {"destination": "/b", "size": 3}


def test_the_values_next_to_the_text_are_plain_json() -> None:
    def book(when: datetime, price: Decimal, data: bytes) -> None: ...

    encoded = codec(book).dump((NOW, Decimal("1.50"), b"\xff\xfe"), {})
    assert encoded.values == {"when": "2026-03-29T01:30:00.000007Z", "price": "1.50", "data": "__4="}


@pytest.mark.parametrize(
    ("annotation", "given", "read"),
    [
        (datetime, "2026-03-29T01:30:00.000007Z", NOW),
        (Decimal, "1.50", Decimal("1.50")),
        (Colour, "red", Colour.RED),
        (Stay, {"nights": 2}, Stay(2)),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Path, "/tmp", Path("/tmp")),
    ],
)
def test_a_json_value_is_accepted_for_the_type_it_parses_as(annotation: Any, given: Any, read: Any) -> None:
    it = codec_for(annotation)
    assert it.load(it.dump((given,), {}).text) == {"value": read}


def test_integers_are_accepted_as_floats() -> None:
    assert codec_for(float).dump((3,), {}).text == '{"value":3.0}'


def test_an_argument_without_annotation_is_any_json_value() -> None:
    def log(entry): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    it = codec(log)
    assert it.load(it.dump(([1, None, {"a": Stay(1)}],), {}).text) == {
        "entry": [1, None, {"a": {"nights": 1, "since": None, "total": 2}}]
    }


def test_computed_fields_of_a_dataclass_are_not_stored() -> None:
    encoded = codec_for(Stay).dump((Stay(2),), {})
    assert encoded.values == {"value": {"nights": 2, "since": None}}
    assert codec_for(Stay).load(encoded.text) == {"value": Stay(2)}


def test_models_with_aliases_computed_fields_and_private_attributes_round_trip() -> None:
    for given in (Guest(userId=4), {"userId": 4}, {"user": 4}):
        loaded = codec_for(Guest).load(codec_for(Guest).dump((given,), {}).text)["value"]
        assert (loaded.user, loaded.twice) == (4, 8)


def test_constraints_in_the_annotation_apply() -> None:
    it = codec_for(Annotated[int, Field(gt=3)])
    assert it.load(it.dump((4,), {}).text) == {"value": 4}
    assert refusal_for(Annotated[int, Field(gt=3)], 3) == "value: Input should be greater than 3 (got int 3)"


# --------------------------------------------------------------------------------------- refused calls


def test_every_wrong_field_is_listed() -> None:
    error = refusal(backup, 1)
    assert (
        error.message
        == "task backup: destination: Input should be a valid string (got int 1); size: required, but missing; give it a value"
    )
    assert error.details == {
        "task": "backup",
        "errors": [
            {"field": "destination", "message": "Input should be a valid string (got int 1)"},
            {"field": "size", "message": "required, but missing; give it a value"},
        ],
    }


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (int, "3", "value: Input should be a valid integer (got str '3')"),
        (int, True, "value: Input should be a valid integer (got bool True)"),
        (int, 1.0, "value: Input should be a valid integer (got float 1.0)"),
        (int, None, "value: Input should be a valid integer (got None)"),
        (str, b"x", "value: Input should be a valid string (got bytes b'x')"),
        (str, UUID(int=1), "value: Input should be a valid string (got UUID"),
        (bool, 1, "value: Input should be a valid boolean (got int 1)"),
        (list[int], (1,), "value: Input should be a valid list (got tuple (1,))"),
        (list[int], [1, True, "x"], "value.1: Input should be a valid integer (got bool True); value.2: "),
        (date, NOW, "value: Input should be a valid date (got datetime"),
        (datetime, 5, "value: Input should be a valid datetime (got int 5)"),
        (Literal["a", "b"], "c", "value: Input should be 'a' or 'b' (got str 'c')"),
        (Stay, Stay("x"), "value.nights: Input should be a valid integer (got str 'x')"),  # type: ignore[arg-type]
        (Stay, Stay(True), "value.nights: a worker would read int 1 instead (got bool True)"),
        (Stay, {"nights": 1, "nightz": 2}, "value.nightz: Unexpected keyword argument (got int 2)"),
        (dict[str, Path], {"a": 1}, "value.a: Input should be a valid string (got int 1)"),
    ],
)
def test_a_value_of_another_type_is_refused(annotation: Any, value: Any, message: str) -> None:
    assert refusal_for(annotation, value).startswith(message)


def test_a_wrong_value_inside_an_object_is_refused_even_if_its_json_is_valid() -> None:
    @dataclass
    class Note:
        text: str

    message = refusal_for(Note, Note(Path("x")))  # type: ignore[arg-type]
    assert message.startswith("value: a value inside it should be str (got Note ")


def test_unknown_duplicate_and_surplus_arguments_are_refused() -> None:
    assert refusal(backup, "/b", 1, nope=1, destination="/c").message == (
        "task backup: destination: given twice, by position and by name; "
        "nope: there is no such argument; there are destination, size, tags"
    )
    assert (
        refusal(backup, "/b", 1, [], 4).message
        == "task backup: arguments: at most 3 may be given by position, 4 were; in this order: destination, size, tags"
    )


def test_keyword_only_parameters_cannot_be_positional() -> None:
    def copy(source: str, *, target: str) -> None: ...

    assert codec(copy).dump(("a",), {"target": "b"}).text == '{"source":"a","target":"b"}'
    assert (
        "arguments: at most 1 may be given by position, 2 were; in this order: source; by name: target"
        in refusal(copy, "a", "b").message
    )


def test_long_values_are_shortened_in_the_message() -> None:
    message = refusal_for(int, "x" * 100_000)
    assert len(message) < 130
    assert "…" in message


def test_many_errors_are_cut_in_the_message_and_complete_in_the_facts() -> None:
    error = refusal(backup, "/b", 1, [1] * 1000)
    assert error.message.endswith("; and 980 more")
    assert len(error.details["errors"]) == 1000  # type: ignore[arg-type]


@pytest.mark.parametrize("annotation", [float, Any, list[float], dict[str, float], float | None])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_refused(annotation: Any, number: float) -> None:
    value: Any = {list[float]: [number], dict[str, float]: {"0": number}}.get(annotation, number)
    path = "value" if value is number else "value.0"
    assert refusal_for(annotation, value) == f"{path}: {number} is not a number in JSON; give a finite one"


def test_numbers_that_json_lacks_are_refused_inside_models_that_write_null() -> None:
    guest = Guest(userId=1, weight=math.nan)
    assert refusal_for(Guest, guest) == "value.weight: nan is not a number in JSON; give a finite one"
    assert "NaN is not a number" in refusal_for(Decimal, Decimal("NaN"))


@pytest.mark.parametrize("annotation", [str, Any])
def test_lone_surrogates_are_refused(annotation: Any) -> None:
    assert refusal_for(annotation, "a\ud800") == (
        r"value: the text has a lone surrogate, which is not a character (got str 'a\ud800')"
    )


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (datetime, NAIVE, "value"),
        (datetime, "2026-03-29T01:30:00", "value"),
        (datetime | None, NAIVE, "value"),
        (list[datetime], [NOW, NAIVE], "value.1"),
        (dict[str, datetime], {"a": NAIVE}, "value.a"),
        (dict[datetime, int], {NAIVE: 1}, "value.2026-03-29 01:30:00.000007"),
        (Stay, Stay(1, NAIVE), "value.since"),
        (Stay, {"nights": 1, "since": "2026-03-29T01:30:00"}, "value.since"),
        (Any, {"a": [NAIVE]}, "value.a.0"),
        (Any, Stay(1, NAIVE), "value.since"),
    ],
)
def test_datetimes_without_offset_are_refused_at_any_depth(annotation: Any, value: Any, path: str) -> None:
    assert refusal_for(annotation, value).startswith(
        f"{path}: it has no UTC offset; give an aware datetime (got "
    )


def test_a_time_of_day_needs_no_offset() -> None:
    codec = codec_for(time)
    assert codec.load(codec.dump((), {"value": time(9)}).text) == {"value": time(9)}


def test_a_worker_refuses_a_stored_datetime_without_offset() -> None:
    with pytest.raises(BadArguments, match="value: it has no UTC offset"):
        codec_for(datetime).load('{"value":"2026-03-29T01:30:00"}')


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Stay, LongStay(1)),  # would lose its subclass
        (str | bytes, b"abcd"),  # base64 is read as text
        (UUID | str, str(UUID(int=1))),  # this text is read as a UUID
        (dict[int | str, int], {1: 1}),  # JSON keys are strings
        (SecretStr, SecretStr("hush")),  # is written as asterisks
        (datetime, NOW.replace(tzinfo=timezone(timedelta(seconds=3601)))),  # ISO offsets have no seconds
        (Literal[1], True),
    ],
)
def test_a_value_that_a_worker_would_read_differently_is_refused(annotation: Any, value: Any) -> None:
    assert "a worker would read " in refusal_for(annotation, value)


def test_a_value_that_cannot_be_json_is_refused() -> None:
    assert refusal_for(Any, {"a": Opaque()}).startswith("value: Unable to serialize unknown type: ")
    circle: list[Any] = []
    circle.append(circle)
    assert refusal_for(Any, circle) == "value.0: it contains itself, or is nested deeper than 100 levels"
    assert "number out of range" in refusal_for(int, 10**5000)


def test_non_text_bytes_need_a_model_that_defines_their_encoding() -> None:
    class Parcel(BaseModel):
        content: bytes

    class Crate(Parcel):
        model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    class Chest(Parcel):
        model_config = ConfigDict(ser_json_bytes="base64")

    assert codec_for(Parcel).dump((Parcel(content=b"x"),), {}).text == '{"value":{"content":"x"}}'
    assert codec_for(Crate).load(codec_for(Crate).dump((Crate(content=b"\xff"),), {}).text) == {
        "value": Crate(content=b"\xff")
    }
    assert "bytes that are not text; give its model the config" in refusal_for(
        Parcel, Parcel(content=b"\xff")
    )
    assert "a worker would read bytes b'_w==' instead" in refusal_for(Chest, Chest(content=b"\xff"))


def test_subclasses_follow_the_strict_rules_of_pydantic() -> None:
    assert codec_for(int).dump((Level.HIGH,), {}).text == '{"value":1}'
    assert codec_for(Level).load('{"value":1}') == {"value": Level.HIGH}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"destination":1}',
            "destination: Input should be a valid string (got int 1); size: required, but missing; give it a value",
        ),
        ('{"destination":"a","size":1,"gone":2}', "gone: there is no such argument"),
        ("{", "arguments: Invalid JSON: "),
        ("[]", "arguments: Input should be an object (got list [])"),
        ('{"destination":"a","size":NaN}', "size: Input should be a valid integer (got float nan)"),
    ],
)
def test_a_stored_text_that_does_not_fit_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadArguments) as caught:
        codec(backup).load(text)
    assert caught.value.message.startswith(f"task backup: {message}")
