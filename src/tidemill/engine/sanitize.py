"""Sanitising of user data: progress, details of log lines, and exceptions.

These functions are pure and never fail because of the behaviour of user objects.
"""

from __future__ import annotations

import json
import math
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tidemill.domain.estimate import fraction_of
from tidemill.domain.job import ErrorInfo, Progress
from tidemill.domain.masks import scrub
from tidemill.domain.payload import ERROR_MESSAGE_LENGTH, clip, clip_error, cut
from tidemill.errors import UsageError
from tidemill.tasks.secret_values import without_opened

MESSAGE_LENGTH = 500
_OURS = str(Path(__file__).resolve().parents[1] / "_")[:-1]


_SLACK = 1e-6  # tolerance for rounding in sums of fractions


def read_progress(value: float, rest: Sequence[Any], total: int | None, message: str | None) -> Progress:
    """Read the arguments of ``Context.progress``: a fraction and a message, or a step, a total and a message."""
    given = list(rest)
    steps = total is not None or len(given) > 1 or (bool(given) and isinstance(given[0], int))
    if steps and given:
        total = given.pop(0)
    if given:
        message = given.pop(0)
    if given or not (message is None or isinstance(message, str)):
        raise UsageError("progress takes a fraction and a message, or a step, a total and a message")
    words = None if message is None else clip(scrubbed(message), MESSAGE_LENGTH)
    if not steps:
        return Progress(fraction=_fraction(value), message=words)
    if not (_is_whole(value) and (total is None or (_is_whole(total) and total >= 0))):
        raise UsageError(
            f"step {value!r} of {total!r} is not valid progress; give whole numbers", total=total
        )
    step = max(int(value), 0)
    if total is None:
        return Progress(step=step, message=words)
    step = min(step, total)
    return Progress(fraction_of(step, total) if total else 1.0, step, total, words)


def plain(details: Mapping[str, object]) -> dict[str, object]:
    """Convert details to JSON values. Unserialisable content must not fail the job."""
    from pydantic_core import from_json, to_json

    try:
        made: dict[str, object] = from_json(to_json(details, serialize_unknown=True, inf_nan_mode="strings"))
    except Exception:  # noqa: BLE001  (a user's objects may raise anything)
        return _replaced(details)
    return made


def scrubbed(text: str) -> str:
    """Remove secrets from a text that is stored or logged: the values of opened ``Secret`` arguments, and those that their
    name or form shows to be secret.
    """
    return scrub(without_opened(text))


def scrubbed_details(value: Any) -> Any:
    """Remove secrets from the texts of details, at any depth."""
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, dict):
        return {name: scrubbed_details(part) for name, part in value.items()}
    return [scrubbed_details(part) for part in value] if isinstance(value, list) else value


def within(details: dict[str, object], most: int) -> dict[str, object]:
    """Limit details to about ``most`` bytes of JSON.

    Strings are cut; other values are replaced by a note of the size.
    """
    sizes = {name: len(name) + len(json.dumps(value)) for name, value in details.items()}
    if sum(sizes.values()) <= most:
        return details
    kept: dict[str, object] = {}
    left = most
    for place, (name, value) in enumerate(details.items()):
        if left <= len(name):
            kept["…"] = f"{len(details) - place:,} more entries cut"
            break
        if sizes[name] <= left:
            kept[name] = value
        elif isinstance(value, str):
            kept[name] = cut(value, left - len(name))
        else:
            kept[name] = f"… ({sizes[name] - len(name):,} bytes cut)"
        left -= min(sizes[name], left)
    return kept


def _replaced(details: Mapping[str, object]) -> dict[str, object]:
    """Convert details that are not valid UTF-8: lone surrogates become question marks."""
    try:
        text = json.dumps(details, default=repr, ensure_ascii=False).encode("utf-8", "replace")
        made: dict[str, object] = json.loads(text, parse_constant=str)
    except Exception as why:  # noqa: BLE001  (the same user objects)
        return {"unreadable": type(why).__name__}
    return made


def reason_of(reason: object) -> str | None:
    """Return the reason that a signal gives, cut to the length a store keeps; None if it gives none."""
    return None if reason is None else clip(scrubbed(str(reason)), ERROR_MESSAGE_LENGTH)


def text_of(error: BaseException) -> str:
    """Return an exception's message, or a placeholder if it cannot be read."""
    try:
        return scrubbed(str(error))
    except BaseException as why:  # noqa: BLE001  (a user's __str__ may raise anything, including SystemExit)
        _let_ctrl_c_through(why)
        return f"<its text cannot be read: {type(why).__name__}>"


def _let_ctrl_c_through(error: BaseException) -> None:
    """Raise an interrupt that the user may have sent. Python delivers Ctrl-C to the main thread only.

    A ``CancelledError`` needs no such exception: asyncio delivers a cancellation at an ``await``, and nothing here
    awaits.
    """
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error


def type_of(error: BaseException) -> str:
    """Return the full name of an exception's type; built-in types have no module prefix.

    >>> type_of(ValueError())
    'ValueError'
    """
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def error_info(error: BaseException) -> ErrorInfo:
    """Convert an exception to data: type, message, and traceback of the user's frames only."""
    return clip_error(ErrorInfo(type_of(error), text_of(error), _traceback(error)))


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the Tidemill frames at its top, or unchanged if there are no others."""
    rest = trace
    while rest is not None and rest.tb_frame.f_code.co_filename.startswith(_OURS):
        rest = rest.tb_next
    return rest or trace


def _traceback(error: BaseException) -> str | None:
    try:
        seen = traceback.TracebackException(type(error), error, users_part(error.__traceback__), compact=True)
        return scrubbed("".join(seen.format()))
    except BaseException as why:  # noqa: BLE001  (the exception, its cause or its notes may raise anything)
        _let_ctrl_c_through(why)
        return None


def _fraction(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise UsageError(f"{value!r} is not a fraction; give a number from 0 to 1", value=value)
    if not -_SLACK <= value <= 1 + _SLACK:
        raise UsageError(
            f"progress({value!r}): a fraction is from 0 to 1; write progress({value!r}, total) for steps",
            value=value,
        )
    return min(max(float(value), 0.0), 1.0)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
