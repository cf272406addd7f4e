"""Values of steps: results and caught errors as JSON, and fingerprints of calls."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

from tidemill.domain.bounds import check_size, text_flaw
from tidemill.domain.steps import MOST_RESULT, PREFIX
from tidemill.engine.sanitize import scrubbed
from tidemill.errors import BadArguments, StepFailed, TidemillError, UsageError
from tidemill.tasks.codec import ResultCodec, result_codec
from tidemill.tasks.secret_values import seal_result

_PLAIN = (str, int, float, bool, type(None))
_MOST_ARGUMENTS = 4_096  # characters of a caught error's arguments


@lru_cache(maxsize=1_000)
def _cached_codec(fn: Callable[..., Any]) -> ResultCodec:
    try:
        return result_codec(f"step {name_of(fn)}", fn)
    except TidemillError:
        # A function of another package may have annotations that JSON cannot represent: its result is plain JSON.
        return ResultCodec(f"step {name_of(fn)}", Any)


def _codec(fn: Callable[..., Any]) -> ResultCodec:
    try:
        return _cached_codec(getattr(fn, "__func__", fn))
    except TypeError:  # it has no hash
        return ResultCodec(f"step {name_of(fn)}", Any)


def name_of(fn: Callable[..., Any]) -> str:
    """The name of a function, for people."""
    while hasattr(fn, "func") and not hasattr(fn, "__qualname__"):
        fn = fn.func
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__


def dumped(name: str, fn: Callable[..., Any], value: Any, job: UUID) -> str:
    """The result of a step as JSON, by the function's return annotation. A ``Secret`` is sealed."""
    try:
        codec = _codec(fn)
        text = codec.dump(value)
        if codec.is_secret:
            text = seal_result(text, job, PREFIX + name)
    except BadArguments as error:
        raise UsageError(f"step {name}: {error.message}") from None
    check_size(f"the result of step {name}", text, MOST_RESULT)
    if flaw := text_flaw(text):
        raise UsageError(f"the result of step {name} has {flaw}; leave it out")
    return text


def loaded(name: str, fn: Callable[..., Any], text: str, job: UUID) -> Any:
    """A recorded result. The first execution returns the same value as every replay: the one that was read back."""
    try:
        return _codec(fn).load(text, job, PREFIX + name)
    except BadArguments as error:
        raise UsageError(
            f"step {name}: its recorded result no longer fits the function: {error.message}; give the new step another name"
        ) from None


def fingerprint_of(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The function's name and a hash of its arguments, the same in every process."""
    if not args and not kwargs:
        return name_of(fn)
    if not kwargs and all(type(value) in _PLAIN for value in args):
        # A short cut for nearly all steps; the text is the same in every process.
        return f"{name_of(fn)}:{hashlib.blake2b(repr(args).encode('utf-8', 'replace'), digest_size=6).hexdigest()}"
    from pydantic_core import to_json

    try:
        data = to_json(
            [_ordered(args), _ordered(kwargs.items())], fallback=_type_name, inf_nan_mode="constants"
        )
    except Exception:  # noqa: BLE001  (a user's object may raise anything when it is serialized)
        data = repr((len(args), sorted(kwargs))).encode()
    return f"{name_of(fn)}:{hashlib.blake2b(data, digest_size=6).hexdigest()}"


def _ordered(values: Any) -> list[Any]:
    """The values; a set, whose order differs between processes, as a sorted list."""
    return [sorted(map(repr, value)) if isinstance(value, set | frozenset) else value for value in values]


def _type_name(value: object) -> str:
    return type(value).__qualname__


# Errors ------------------------------------------------------------------------------------------------------------------


def type_path(error: BaseException) -> str:
    """The module and the name of an error's class."""
    return f"{type(error).__module__}:{type(error).__qualname__}"


def error_arguments(error: BaseException) -> list[Any] | None:
    """The arguments of an error if all of them are plain values without a secret."""
    plain = (
        all(isinstance(value, _PLAIN) for value in error.args) and len(repr(error.args)) <= _MOST_ARGUMENTS
    )
    if not plain or text_flaw(text := repr(error.args)) or scrubbed(text) != text:
        return None
    return list(error.args)


def rebuilt_error(name: str, note: Mapping[str, Any]) -> Exception:
    """The recorded error of a step, of its own class if the class is loaded; otherwise ``StepFailed``.

    The constructor of the class is not called: its parameters are unknown.
    """
    module, _, path = str(note["type"]).partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, Exception):
        arguments = note["arguments"] if note["arguments"] is not None else [note["message"]]
        try:
            error = found.__new__(found, *arguments)
            error.args = tuple(arguments)
        except Exception:  # noqa: BLE001  (a class with its own __new__)
            error = None
        if isinstance(error, Exception):
            for field in ("message", "details"):
                if isinstance(error, TidemillError):
                    setattr(error, field, note["message"] if field == "message" else {})
            return error
    return StepFailed(f"step {name} failed: {path}: {note['message']}", type=path, step=name)
