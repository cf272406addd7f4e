"""Tests of task signatures, result types and form schemas."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from tidemill.errors import BadArguments, BadSettings
from tidemill.tasks.codec import ArgumentsCodec, arguments_codec, result_codec

if TYPE_CHECKING:
    from typing import SupportsIndex as OnlyWhileChecking

NOW = datetime(2026, 3, 29, 1, 30, 0, 7, tzinfo=UTC)
NAIVE = NOW.replace(tzinfo=None)


class Context:
    __tidemill_context__ = True


class Colour(Enum):
    RED = "red"


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


class Opaque:
    pass


def backup(destination: str, size: int, tags: list[str] = []) -> None: ...  # noqa: B006 - never run


def codec(function: Callable[..., Any], *, method: bool = False) -> ArgumentsCodec:
    return arguments_codec("backup", function, method=method)


def refusal(function: Callable[..., Any], *args: Any, **kwargs: Any) -> BadArguments:
    with pytest.raises(BadArguments) as caught:
        codec(function).dump(args, kwargs)
    return caught.value


# ------------------------------------------------------------------------------------- more signatures


def test_extra_keyword_arguments_are_checked_by_their_one_type() -> None:
    def count(first: int, **more: int) -> None: ...

    assert codec(count).dump((1,), {"z": 2, "b": 3}).text == '{"first":1,"b":3,"z":2}'
    assert codec(count).load('{"first":1,"z":2}') == {"first": 1, "z": 2}
    assert refusal(count, 1, z="a").message == "task backup: z: Input should be a valid integer (got str 'a')"


def test_extra_keyword_datetimes_need_an_offset_too() -> None:
    def count(first: int, **more: datetime) -> None: ...

    assert codec(count).load(codec(count).dump((1,), {"z": NOW}).text) == {"first": 1, "z": NOW}
    assert refusal(count, 1, z=NAIVE).message.startswith("task backup: z: it has no UTC offset")


def first(ctx: Context, name: str) -> None: ...
def last(name: str, ctx: Context) -> None: ...
def optional(name: str, ctx: Context | None = None) -> None: ...
def annotated(name: str, *, ctx: Annotated[Context, "injected"]) -> None: ...


@pytest.mark.parametrize("function", [first, last, optional, annotated])
def test_the_context_is_not_an_argument(function: Callable[..., Any]) -> None:
    it = codec(function)
    assert (it.context_parameter, it.names) == ("ctx", ("name",))
    assert it.dump(("a",), {}).text == '{"name":"a"}'
    assert (
        refusal(function, "a", ctx=Context()).message
        == "task backup: ctx: the worker gives the context; leave it out"
    )


def test_a_task_without_context_has_no_context_parameter() -> None:
    assert codec(backup).context_parameter is None


def test_methods_are_read_without_self() -> None:
    class Resize:
        def run(self, width: int, ctx: Context) -> int:
            return width

        @classmethod
        def make(cls, width: int) -> None: ...

        def bare() -> None: ...  # type: ignore[misc]

    it = codec(Resize.run, method=True)
    assert (it.names, it.context_parameter) == (("width",), "ctx")
    assert codec(Resize.make, method=True).names == ("width",)
    with pytest.raises(BadSettings, match="task backup: its run method has no self"):
        codec(Resize.bare, method=True)


def test_names_local_to_the_defining_function_are_resolved() -> None:
    @dataclass
    class Local:
        x: int

    def task(value: Local, others: list[Local]) -> Local:
        return value

    it = codec(task)
    assert it.load(it.dump((Local(1), [Local(2)]), {}).text) == {"value": Local(1), "others": [Local(2)]}
    result = result_codec("backup", task)
    assert result.load(result.dump(Local(3))) == Local(3)


def unresolved(when: OnlyWhileChecking) -> None: ...
def unreturned() -> OnlyWhileChecking: ...  # type: ignore[empty-body]


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    with pytest.raises(BadSettings) as caught:
        codec(unresolved)
    assert caught.value.message.startswith(
        "task backup: parameter when: the annotation 'OnlyWhileChecking' cannot be resolved "
        "(name 'OnlyWhileChecking' is not defined); define or import its names above the task"
    )
    assert caught.value.details == {"task": "backup", "parameter": "when"}
    with pytest.raises(BadSettings, match="the return annotation 'OnlyWhileChecking' cannot be resolved"):
        result_codec("backup", unreturned)


def positional_only(a: int, /) -> None: ...
def many(*args: int) -> None: ...
def two_contexts(a: Context, b: Context | None) -> None: ...
def half_context(a: Context | int) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (positional_only, "parameter a: it is positional-only"),
        (many, "parameter *args: a job's arguments have names; take a list instead"),
        (two_contexts, "parameter b: a is the context already; a task has one"),
        (half_context, "parameter a: it is a context or something else"),
        (type, "its signature cannot be read"),
    ],
)
def test_an_invalid_task_signature_is_refused_at_declaration(
    function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(BadSettings) as caught:
        codec(function)
    assert caught.value.message.startswith(f"task backup: {message}")


def test_a_type_that_json_cannot_hold_is_refused_by_name() -> None:
    def task(fine: int, odd: Opaque) -> None: ...

    def lazy(items: Iterable[int]) -> None: ...

    with pytest.raises(
        BadSettings, match=r"task backup: parameter odd: values of .*Opaque cannot be stored as JSON"
    ):
        codec(task).prepare()
    with pytest.raises(BadSettings, match=r"task backup: parameter items: an iterable is read lazily"):
        codec(lazy).prepare()


# ------------------------------------------------------------------------------------------- results


def counted(x: int) -> int:
    return x


async def awaited(x: int) -> Stay:
    return Stay(x)


def promised(x: int) -> Awaitable[int]: ...  # type: ignore[empty-body]


def silent(x: int) -> None: ...


def test_a_result_is_read_by_its_annotation() -> None:
    assert result_codec("t", counted).dump(3) == "3"
    assert result_codec("t", promised).load("3") == 3
    it = result_codec("t", awaited)
    assert it.load(it.dump(Stay(2, NOW))) == Stay(2, NOW)


def test_without_annotation_a_result_is_plain_json() -> None:
    it = result_codec("t", silent)
    assert it.dump(None) == "null"
    assert it.load(None) is None
    assert it.load(it.dump([Stay(1), b"\xff", {"a": NOW}])) == [
        {"nights": 1, "since": None, "total": 2},
        "_w==",
        {"a": "2026-03-29T01:30:00.000007Z"},
    ]


@pytest.mark.parametrize(
    ("function", "value", "message"),
    [
        (counted, "3", "result: Input should be a valid integer (got str '3')"),
        (counted, True, "result: Input should be a valid integer (got bool True)"),
        (awaited, Stay(1, NAIVE), "result.since: it has no UTC offset"),
        (awaited, LongStay(1), "result: a worker would read Stay "),
        (silent, math.nan, "result: nan is not a number in JSON"),
        (silent, Opaque(), "result: Unable to serialize unknown type"),
        (silent, "\ud800", "result: the text has a lone surrogate"),
    ],
)
def test_a_wrong_result_is_reported_as_an_error_of_the_task(
    function: Callable[..., Any], value: Any, message: str
) -> None:
    with pytest.raises(BadArguments) as caught:
        result_codec("t", function).dump(value)
    assert caught.value.message.startswith(
        f"task t returned a value that its annotation or JSON does not allow: {message}"
    )
    advice = (
        "fits the annotation, or change"
        if function is not silent
        else "only what JSON can represent, or annotate"
    )
    assert advice in caught.value.message


def test_a_stored_result_that_no_longer_fits_is_refused() -> None:
    with pytest.raises(BadArguments, match="task t: the stored result does not fit: result: Input should be"):
        result_codec("t", counted).load('"x"')


# ------------------------------------------------------------------------------------------- schemas


def test_the_schema_has_types_defaults_and_required_fields() -> None:
    def book(stay: Stay, colour: Colour = Colour.RED, rest: Any = Opaque) -> None: ...

    schema = codec(book).schema()
    assert (schema["title"], schema["type"], schema["additionalProperties"]) == ("backup", "object", False)
    assert schema["required"] == ["stay"]
    assert schema["properties"]["stay"] == {"$ref": "#/$defs/Stay"}
    assert schema["properties"]["colour"]["default"] == "red"
    assert "default" not in schema["properties"]["rest"]
    assert schema["$defs"]["Stay"]["properties"]["nights"]["type"] == "integer"


def test_the_schema_of_a_result_is_that_of_its_type() -> None:
    assert result_codec("t", counted).schema()["type"] == "integer"
    schema = result_codec("t", awaited).schema()
    assert schema["$ref"] == "#/$defs/Stay"
    assert "Stay" in schema["$defs"]


def test_declaring_a_task_does_not_import_pydantic() -> None:
    program = (
        "import sys; from tidemill.tasks.codec import arguments_codec\n"
        "def f(a: int) -> None: ...\n"
        "arguments_codec('f', f, method=False); sys.exit('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert done.returncode == 0
