"""Round-trip tests of the codec, exact to type, microsecond and last digit.

``TIDEMILL_ROUND_TRIPS=1000000 python3 dev.py test tests/tasks/test_codec_roundtrip.py`` runs a million of
them.
"""

from __future__ import annotations

import collections
import os
import typing
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, cast
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from tidemill.errors import BadArguments
from tidemill.tasks.codec import arguments_codec, result_codec

TOTAL = int(os.environ.get("TIDEMILL_ROUND_TRIPS") or (20_000 if os.environ.get("CI") else 2_000))


class Colour(Enum):
    RED = "red"
    BLUE = 2
    NOTHING = None


class Level(IntEnum):
    LOW = -1
    HIGH = 10


class Word(StrEnum):
    YES = "yes"
    EMPTY = ""


@dataclass(frozen=True)
class Spot:
    x: float
    y: Decimal
    seen: datetime | None = None
    raw: bytes = b""


@dataclass
class Tree:
    name: str
    spots: list[Spot]
    below: list[Tree]


class Room(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    number: int
    open_at: time
    by_day: dict[date, list[timedelta]]
    spot: Spot | None = None


class Options(TypedDict):
    path: Path
    level: NotRequired[Level]


class Pair(NamedTuple):
    left: UUID
    right: tuple[int, bytes]


# Subscripted at run time, which no type checker can follow.
LIST, TUPLE, DICT, SET, OPTIONAL = cast("tuple[Any, ...]", (list, tuple, dict, set, typing.Optional))
Kind = tuple[Any, st.SearchStrategy[Any]]

ZONES = st.builds(timezone, st.integers(-1439, 1439).map(lambda minutes: timedelta(minutes=minutes)))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BYTES = st.binary(max_size=20)
DATETIMES = st.datetimes(timezones=ZONES, allow_imaginary=False)
TIMES = st.times(timezones=ZONES)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20).map(Path)
SPOTS = st.builds(Spot, FLOATS, DECIMALS, st.none() | DATETIMES, BYTES)
TREES = st.recursive(
    st.builds(Tree, TEXT, st.lists(SPOTS, max_size=2), st.just([])),
    lambda below: st.builds(Tree, TEXT, st.lists(SPOTS, max_size=2), st.lists(below, max_size=2)),
    max_leaves=4,
)
ROOMS = st.builds(
    Room,
    number=st.integers(),
    open_at=TIMES,
    by_day=st.dictionaries(st.dates(), st.lists(st.timedeltas(), max_size=3), max_size=3),
    spot=st.none() | SPOTS,
)
OPTIONS = st.fixed_dictionaries({"path": PATHS}, optional={"level": st.sampled_from(Level)})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)

ABC = st.sampled_from(["a", 3, None])

# An annotation and the values it allows. The first ones are hashable, and can be keys where JSON allows them.
KEYS: list[Kind] = [
    (str, TEXT),
    (int, st.integers() | st.integers(-(2**300), 2**300)),
    (bool, st.booleans()),
    (bytes, BYTES),
    (float, FLOATS),
    (Decimal, DECIMALS),
    (date, st.dates()),
    (datetime, DATETIMES),
    (time, TIMES),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Level, st.sampled_from(Level)),
    (Word, st.sampled_from(Word)),
    (Path, PATHS),
]
LEAVES: list[Kind] = [
    *KEYS,
    (Colour, st.sampled_from(Colour)),
    (None, st.none()),
    (Literal["a", 3, None], ABC),
    (int | str | None, st.none() | st.integers() | TEXT),
    (datetime | int | list[bool], DATETIMES | st.integers() | st.lists(st.booleans(), max_size=3)),
    (Spot, SPOTS),
    (Tree, TREES),
    (Room, ROOMS),
    (Options, OPTIONS),
    (Pair, st.builds(Pair, st.uuids(), st.tuples(st.integers(), BYTES))),
    (Any, JSON),
]
NUMBERED = st.dictionaries(st.integers(), st.lists(SPOTS, max_size=2), max_size=2)
NESTED: list[Kind] = [
    (dict[str, dict[int, list[Spot]]], st.dictionaries(TEXT, NUMBERED, max_size=2)),
    (list[set[Decimal]], st.lists(st.sets(DECIMALS, max_size=3), max_size=3)),
    (frozenset[tuple[date, bytes]], st.frozensets(st.tuples(st.dates(), BYTES), max_size=3)),
    (tuple[Tree, ...], st.lists(TREES, max_size=2).map(tuple)),
    (collections.deque[UUID], st.lists(st.uuids(), max_size=3).map(collections.deque)),
]
# A kind with few values is tried in lists, because single values would be exhausted at once.
FEW = [
    (kind, values) for kind, values in LEAVES if kind in (bool, Level, Word, Colour, None) or values is ABC
]
KINDS: list[Kind] = [
    *(pair for pair in LEAVES if pair not in FEW),
    *((LIST[kind], st.lists(values, max_size=24)) for kind, values in FEW if kind is not None),
    *NESTED,
]


def inside(drawn: Kind) -> st.SearchStrategy[Kind]:
    """Containers of the drawn kind."""
    kind, values = drawn
    return st.sampled_from(
        [
            (LIST[kind], st.lists(values, max_size=3)),
            (TUPLE[kind, ...], st.lists(values, max_size=3).map(tuple)),
            (TUPLE[kind, int], st.tuples(values, st.integers())),
            (DICT[str, kind], st.dictionaries(TEXT, values, max_size=3)),
            # JSON cannot distinguish a member whose value is null from None. Such a value is refused.
            (OPTIONAL[kind], st.none() | values.filter(lambda value: value is not Colour.NOTHING)),
        ]
    )


def a_set(key: Kind) -> Kind:
    return SET[key[0]], st.sets(key[1], max_size=3)


def a_dict(both: tuple[Kind, Kind]) -> Kind:
    (key, keys), (kind, values) = both
    return DICT[key, kind], st.dictionaries(keys, values, max_size=3)


SHAPES: st.SearchStrategy[Kind] = st.recursive(
    st.sampled_from(LEAVES)
    | st.sampled_from(KEYS).map(a_set)
    | st.tuples(st.sampled_from(KEYS), st.sampled_from(LEAVES)).map(a_dict),
    lambda shapes: shapes.flatmap(inside),
    max_leaves=3,
)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal in everything a task can see, including the offset but not the name of a zone."""
    if isinstance(one, Path):
        return bool(one == other)
    if type(one) is not type(other):
        return False
    match one:
        case float():
            return repr(one) == repr(other)
        case Decimal():
            return one.as_tuple() == cast(Decimal, other).as_tuple()
        case datetime() | time():
            plain = one.replace(tzinfo=None) == other.replace(tzinfo=None)
            return bool(plain and one.utcoffset() == other.utcoffset() and one == other)
        case dict():
            keys = {key: key for key in other}
            return one.keys() == other.keys() and all(
                same(k, keys[k]) and same(one[k], other[k]) for k in one
            )
        case list() | tuple() | collections.deque():
            return len(one) == len(other) and all(map(same, one, other))
        case set() | frozenset():
            return one == other and {str(item) for item in one} == {str(item) for item in other}
        case BaseModel():
            return same(dict(one), dict(other))
        case _ if is_dataclass(one):
            return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return bool(one == other)


def shape(kind: Any) -> Any:
    """A function that takes and returns this kind."""

    def echo(value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return value

    echo.__annotations__ = {"value": kind, "return": kind}
    return echo


def often(times: int) -> settings:
    return settings(
        max_examples=max(1, times),
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


@pytest.mark.parametrize(
    ("kind", "values"), KINDS, ids=[str(getattr(kind, "__name__", kind)) for kind, _ in KINDS]
)
def test_every_kind_of_value_round_trips(kind: Any, values: st.SearchStrategy[Any]) -> None:
    arguments, result = arguments_codec("t", shape(kind), method=False), result_codec("t", shape(kind))

    @often(TOTAL * 8 // 10 // len(KINDS))
    @given(values)
    def check(value: Any) -> None:
        text = arguments.dump((value,), {}).text
        assert same(value, arguments.load(text)["value"]), text
        assert same(value, result.load(result.dump(value)))

    check()


def test_a_value_that_a_worker_would_read_as_another_is_refused() -> None:
    codec = arguments_codec("t", shape(OPTIONAL[Colour]), method=False)
    with pytest.raises(BadArguments, match="a worker would read None instead"):
        codec.dump((Colour.NOTHING,), {})


@often(TOTAL // 10)
@given(st.data(), SHAPES)
def test_every_nesting_of_kinds_round_trips(data: st.DataObject, drawn: Kind) -> None:
    kind, values = drawn
    value = data.draw(values)
    codec = arguments_codec("t", shape(kind), method=False)
    text = codec.dump((value,), {}).text
    assert same(value, codec.load(text)["value"]), text


@often(TOTAL // 10)
@given(DATETIMES, SPOTS, ROOMS, st.lists(TREES, max_size=2), st.dictionaries(st.uuids(), PATHS, max_size=3))
def test_encoding_a_decoded_text_gives_the_same_text(
    when: datetime, spot: Spot, room: Room, trees: list[Tree], files: dict[UUID, Path]
) -> None:
    text = MANY.dump((when, spot), {"room": room, "trees": trees, "files": files}).text
    assert MANY.dump((), MANY.load(text)).text == text


def _many(when: datetime, spot: Spot, room: Room, trees: list[Tree], files: dict[UUID, Path]) -> None: ...


MANY = arguments_codec("many", _many, method=False)
