"""A task function's parameters and result, and checks of given values.

The checks find values that JSON cannot represent. This module imports no validator, so that declaring tasks stays
cheap.
"""

from __future__ import annotations

import collections.abc
import inspect
import math
import reprlib
import typing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, time
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

from tidemill.domain.payload import clip
from tidemill.errors import BadSettings
from tidemill.tasks.providers import Provider, marker_of, read_provider
from tidemill.tasks.resolution import Resolver, function_signature, is_context, refuse_parameter
from tidemill.tasks.secret_values import Secret, holds_secret, secret_type

SHOWN_LENGTH = 60
DEEPEST = 100
_SHORT = reprlib.Repr()
# Longer than shown: ``got`` cuts texts to their final length.
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 2 * SHOWN_LENGTH
_LEAVES = (str, int, float, bytes, datetime, type(None))
_LISTS = (list, tuple, deque)


class Fault(NamedTuple):
    """A fault in one field, which is given as a path such as ``points.0.x``."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a job. The function applies its default; here it is only shown in forms."""

    name: str
    annotation: Any
    required: bool = True
    default: Any = None
    keyword_only: bool = False
    is_secret: bool = False  #: ``annotation`` is that of the value inside ``Secret``


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of a job, in order, and the name of the function's context parameter."""

    parameters: tuple[Parameter, ...]
    context_parameter: str | None = None
    extra: Parameter | None = None  #: ``**name: T``: further arguments, all of one type
    providers: tuple[tuple[str, Provider], ...] = ()  #: of the parameters that the worker fills in
    names: tuple[str, ...] = field(init=False)
    positional: tuple[str, ...] = field(init=False)
    secrets: tuple[str, ...] = field(init=False)  #: arguments that are sealed in the store

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(p.name for p in self.parameters))
        object.__setattr__(self, "secrets", tuple(p.name for p in self.parameters if p.is_secret))
        object.__setattr__(self, "positional", tuple(p.name for p in self.parameters if not p.keyword_only))

    def defaults(self) -> dict[str, Any]:
        """Return the defaults of optional arguments, with None for those that JSON cannot represent."""
        left_out = [parameter for parameter in self.parameters if not parameter.required]
        return {
            parameter.name: parameter.default if is_plain(parameter.default) else None
            for parameter in left_out
        }

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
        """Return the arguments by name, in the signature's order, and faults in the call itself.

        Missing required arguments are not reported here: the validator reports them with all other faults.
        """
        faults: list[Fault] = []
        given = kwargs
        if args:
            given = dict(zip(self.positional, args, strict=False)) | dict(kwargs)
            if len(args) > len(self.positional):
                faults.append(Fault("arguments", self._too_many(len(args))))
            twice = [name for name in self.positional[: len(args)] if name in kwargs]
            faults += [Fault(name, "given twice, by position and by name") for name in twice]
        values = {name: given[name] for name in self.names if name in given}
        if len(values) != len(given):
            for name in sorted((n for n in given if n not in values), key=str):
                if name == self.context_parameter:
                    faults.append(Fault(name, "the worker gives the context; leave it out"))
                elif name in dict(self.providers):
                    faults.append(Fault(name, "its provider gives the value; leave it out"))
                elif self.extra is None or not isinstance(name, str):
                    known = ", ".join(self.names) or "none"
                    faults.append(Fault(str(name), f"there is no such argument; there are {known}"))
                else:
                    values[name] = given[name]
        return self._revealed(values), faults

    def _too_many(self, given: int) -> str:
        """Say which arguments may be given by position, and which need their name."""
        message = f"at most {len(self.positional)} may be given by position, {given} were"
        named = [name for name in self.names if name not in self.positional]
        hints = [f"in this order: {', '.join(self.positional)}"] if self.positional else []
        hints += [f"by name: {', '.join(named)}"] if named else []
        return f"{message}; {'; '.join(hints)}" if hints else message

    def _revealed(self, values: dict[str, Any]) -> dict[str, Any]:
        """Replace each ``Secret`` by its value, which is validated and then sealed."""
        for name in self.secrets:
            if isinstance(given := values.get(name), Secret):
                values[name] = given.reveal()
        return values


def read_signature(task: str, function: Callable[..., Any], *, method: bool) -> Signature:
    """Read the arguments of a task's jobs. Raises for a parameter that cannot be an argument."""
    given = list(function_signature(task, function).parameters.values())
    if method and not inspect.ismethod(function):
        if not given or given[0].kind not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            raise BadSettings(f"task {task}: its run method has no self", task=task)
        given = given[1:]
    resolve = Resolver(task, function)
    parameters: list[Parameter] = []
    contexts: list[str] = []
    providers: dict[str, Provider] = {}
    extra = None
    for parameter in given:
        name, kind = parameter.name, parameter.kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            refuse_parameter(task, f"*{name}", "a job's arguments have names; take a list instead")
        if kind is inspect.Parameter.POSITIONAL_ONLY:
            refuse_parameter(
                task, name, "it is positional-only and a job's arguments are passed by name; remove the /"
            )
        annotation = resolve(name, parameter.annotation)
        marker = marker_of(annotation, parameter.default)
        if kind is inspect.Parameter.VAR_KEYWORD:
            extra = _extra(task, name, annotation)
        elif marker is not None:
            providers[name] = read_provider(task, name, marker)
        elif is_context(task, name, annotation):
            contexts.append(name)
        else:
            required = parameter.default is inspect.Parameter.empty
            default = None if required else parameter.default
            keyword_only = kind is inspect.Parameter.KEYWORD_ONLY
            is_secret, annotation = _secret(task, name, annotation, default)
            parameters.append(Parameter(name, annotation, required, default, keyword_only, is_secret))
    if len(contexts) > 1:
        refuse_parameter(task, contexts[1], f"{contexts[0]} is the context already; a task has one")
    return Signature(tuple(parameters), contexts[0] if contexts else None, extra, tuple(providers.items()))


def _extra(task: str, name: str, annotation: Any) -> Parameter:
    """Return the parameter of further arguments, ``**name: T``."""
    if typing.get_origin(annotation) is typing.Unpack or is_context(task, name, annotation):
        refuse_parameter(task, f"**{name}", "only one plain type for all of them can be checked")
    if holds_secret(annotation):
        refuse_parameter(task, f"**{name}", "a secret argument needs a name of its own")
    return Parameter(name, annotation, required=False)


def _secret(task: str, name: str, annotation: Any, default: Any) -> tuple[bool, Any]:
    """Return whether the argument is secret, and the annotation of its value."""
    is_secret, annotation = secret_type(annotation)
    if isinstance(default, Secret):
        refuse_parameter(task, name, "a default is part of the code and cannot be secret; use None")
    if holds_secret(annotation):
        refuse_parameter(
            task, name, "only a whole argument can be secret: Secret[list[str]], not list[Secret[str]]"
        )
    return is_secret, annotation


def read_result(task: str, function: Callable[..., Any]) -> Any:
    """Return the type of the function's result once awaited; ``Any`` if there is no annotation or it is None."""
    annotation = Resolver(task, function)("return", function_signature(task, function).return_annotation)
    if typing.get_origin(annotation) in (collections.abc.Awaitable, collections.abc.Coroutine):
        annotation = typing.get_args(annotation)[-1]
    if annotation in (type(None), NoReturn, typing.Never):
        return Any
    return annotation


# ------------------------------------------------------------------------------------------- values given


def problems(value: Any, path: str, above: tuple[int, ...] = ()) -> Iterator[Fault]:
    """Find everything inside a value that JSON cannot represent or another machine could misread."""
    match value:
        case None | int() | bytes():
            pass
        case str():
            if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
                yield Fault(path, f"the text has a lone surrogate, which is not a character {got(value)}")
        case float() | Decimal():
            if not (math.isfinite(value) if isinstance(value, float) else value.is_finite()):
                yield Fault(path, f"{value} is not a number in JSON; give a finite one")
        case datetime():
            if value.utcoffset() is None:
                yield Fault(path, f"it has no UTC offset; give an aware datetime {got(value)}")
        case time():
            pass  # a wall-clock time belongs to no instant
        case _ if id(value) in above or len(above) >= DEEPEST:
            yield Fault(path, f"it contains itself, or is nested deeper than {DEEPEST} levels")
        case _:
            for key, part in _parts(value):
                inner = _inside(path, key)
                if isinstance(value, Mapping):
                    yield from problems(key, inner, (*above, id(value)))
                yield from problems(part, inner, (*above, id(value)))


def differences(given: Any, loaded: Any, path: str) -> Iterator[Fault]:
    """Find where a value would be read back differently, such as an object reduced to its base class."""
    if type(given) in _LEAVES and type(given) is type(loaded) and given == loaded:
        return  # fast path for most values
    if isinstance(given, Mapping) and isinstance(loaded, Mapping):
        same = given.keys() == loaded.keys()
    elif isinstance(given, _LISTS) and isinstance(loaded, _LISTS):
        same = len(given) == len(loaded)
    elif _is_object(given):
        same = type(given) is type(loaded)
    else:
        identity: Any = object.__eq__
        comparable = type(given) is not type(loaded) or type(given).__eq__ is not identity
        if isinstance(given, bool) is not isinstance(loaded, bool) or (comparable and given != loaded):
            yield Fault(path, f"a worker would read {got(loaded)[5:-1]} instead {got(given)}")
        return
    if not same:
        yield Fault(path, f"a worker would read {got(loaded)[5:-1]} instead {got(given)}")
        return
    others = dict(_parts(loaded))
    for key, part in _parts(given):
        if key in others:
            yield from differences(part, others[key], _inside(path, key))


def is_plain(value: Any) -> bool:
    """Whether a value is as ``json.loads`` returns it: no subclasses, no tuples, string keys only."""
    if type(value) is dict:
        return all(type(key) is str and is_plain(part) for key, part in value.items())
    if type(value) is list:
        return all(map(is_plain, value))
    return value is None or type(value) in (str, int, float, bool)


def got(value: Any) -> str:
    """Format a value for a message, with its type and cut to length."""
    if value is None:
        return "(got None)"
    try:
        shown = _SHORT.repr(value)
    except ValueError:  # an integer of more digits than Python prints
        shown = "of great length"
    return f"(got {type(value).__name__} {clip(shown, SHOWN_LENGTH)})"


def _inside(path: str, key: object) -> str:
    text = str(key)
    return f"{path}.{text if len(text) <= SHOWN_LENGTH and text.isascii() else clip(text, SHOWN_LENGTH)}"


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, (*_LISTS, set, frozenset)):
        return enumerate(value)
    if isinstance(value, Mapping):
        return value.items()
    if not _is_object(value):
        return ()
    if hasattr(value, "__pydantic_fields__"):
        return {**vars(value), **(getattr(value, "__pydantic_extra__", None) or {})}.items()
    return ((f.name, getattr(value, f.name, None)) for f in fields(value) if f.init)


def _is_object(value: Any) -> bool:
    """Whether a value is an instance of a dataclass or a pydantic model."""
    return not isinstance(value, type) and (is_dataclass(value) or hasattr(value, "__pydantic_fields__"))
