"""What tasks say, made plain: progress, details of log lines, and exceptions as data.

Pure functions of what they are given. None of them may fail because of what a user's objects do.
"""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tidemill.domain.estimate import fraction_of
from tidemill.domain.job import ErrorInfo, Progress
from tidemill.domain.payload import ERROR_MESSAGE_LENGTH, clip, clip_error
from tidemill.errors import UsageError

MESSAGE_LENGTH = 500
_OURS = str(Path(__file__).resolve().parents[1] / "_")[:-1]


def read_progress(value: float, rest: Sequence[Any], total: int | None, message: str | None) -> Progress:
    """The arguments of ``Context.progress``: a fraction and words, or a step, a total and words."""
    given = list(rest)
    steps = total is not None or len(given) > 1 or (bool(given) and isinstance(given[0], int))
    if steps and given:
        total = given.pop(0)
    if given:
        message = given.pop(0)
    if given or not (message is None or isinstance(message, str)):
        raise UsageError("progress takes a fraction and a message, or a step, a total and a message")
    words = None if message is None else clip(message, MESSAGE_LENGTH)
    if not steps:
        return Progress(fraction=_fraction(value), message=words)
    if not (_is_whole(value) and (total is None or (_is_whole(total) and total >= 0))):
        raise UsageError(f"step {value!r} of {total!r} is no progress; give whole numbers", total=total)
    step = max(int(value), 0)
    if total is None:
        return Progress(step=step, message=words)
    step = min(step, total)
    return Progress(fraction_of(step, total) if total else 1.0, step, total, words)


def plain(details: Mapping[str, object]) -> dict[str, object]:
    """Details as JSON holds them: a line must not fail its job because of what stands in it."""
    from pydantic_core import from_json, to_json

    try:
        made: dict[str, object] = from_json(to_json(details, serialize_unknown=True, inf_nan_mode="strings"))
    except Exception:  # noqa: BLE001  (a user's objects may do anything)
        return _replaced(details)
    return made


def _replaced(details: Mapping[str, object]) -> dict[str, object]:
    """The same for what UTF-8 cannot say: lone surrogates become question marks, and nothing else is lost."""
    try:
        text = json.dumps(details, default=repr, ensure_ascii=False).encode("utf-8", "replace")
        made: dict[str, object] = json.loads(text, parse_constant=str)
    except Exception as why:  # noqa: BLE001  (the same objects)
        return {"unreadable": type(why).__name__}
    return made


def reason_of(said: object) -> str | None:
    """The reason a signal gives, within what a store keeps; None where it gives none."""
    return None if said is None else clip(str(said), ERROR_MESSAGE_LENGTH)


def text_of(error: BaseException) -> str:
    """An exception's own words, if it can say them."""
    try:
        return str(error)
    except Exception as why:  # noqa: BLE001  (a user's __str__ may do anything)
        return f"<its text cannot be read: {type(why).__name__}>"


def type_of(error: BaseException) -> str:
    """An exception's type by its full name; Python's own go without their module.

    >>> type_of(ValueError())
    'ValueError'
    """
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def error_info(error: BaseException) -> ErrorInfo:
    """An exception as data: what it is, what it says, and where it came from, the user's frames only."""
    return clip_error(ErrorInfo(type_of(error), text_of(error), _traceback(error)))


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without our own frames at its top; the whole if there are no others."""
    rest = trace
    while rest is not None and rest.tb_frame.f_code.co_filename.startswith(_OURS):
        rest = rest.tb_next
    return rest or trace


def _traceback(error: BaseException) -> str | None:
    try:
        seen = traceback.TracebackException(type(error), error, users_part(error.__traceback__), compact=True)
        return "".join(seen.format())
    except Exception:  # noqa: BLE001  (the exception, its cause or its notes may do anything)
        return None


def _fraction(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise UsageError(f"{value!r} is no fraction; give a number from 0 to 1", value=value)
    return min(max(float(value), 0.0), 1.0)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
