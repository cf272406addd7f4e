"""Why an app cannot be imported, in one sentence."""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path

from tidemill.domain.source_files import is_users
from tidemill.engine.sanitize import text_of, type_of

_LONGEST = 1_000  # characters of the message of an exception


def described(error: BaseException) -> str:
    """Describe an exception by its type, its message, and the line of the user's code where it happened."""
    text = error.msg if isinstance(error, SyntaxError) else text_of(error)
    text = " ".join(text.split())[:_LONGEST]
    return f"{type_of(error)}: {text}{in_file(error)}" if text else f"{type_of(error)}{in_file(error)}"


def in_file(error: BaseException) -> str:
    """The innermost line of the user's own code as the end of a sentence; empty if there is none."""
    place = _users_line(error)
    if place is None:
        return ""
    file, line = place
    path = Path(file)
    with contextlib.suppress(OSError, ValueError):  # in another folder, or the working directory was deleted
        path = path.relative_to(Path.cwd())
    return f" ({path}, line {line})"


def _users_line(error: BaseException) -> tuple[str, int] | None:
    if isinstance(error, SyntaxError) and error.filename is not None and error.lineno is not None:
        return error.filename, error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if frame.lineno is not None and is_users(frame.filename)]
    if not users:
        return None
    assert users[-1].lineno is not None
    return users[-1].filename, users[-1].lineno
