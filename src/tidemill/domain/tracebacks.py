"""Splitting of tracebacks into the user's own frames and library frames.

A stored traceback may be truncated, or the text may not be a traceback. Such text is shown unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tidemill.domain.source_files import is_users

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>.+))?$')
_FOLDERS = (
    r"[\\/](?:site|dist)-packages",
    r"[\\/]lib(?:64|exec)?[\\/]python\d(?:\.\d+)?",
    r"[\\/]Python\d*[\\/]Lib",
    r"[\\/]src",
)


class TracebackPart(NamedTuple):
    """Consecutive frames or other lines of the same origin."""

    ours: bool  #: the user's own code or the error message, never folded
    text: str
    frames: int
    files: tuple[str, ...]

    @property
    def summary(self) -> str:
        """Return the line that represents the part while it is folded."""
        number = "1 frame" if self.frames == 1 else f"{self.frames} frames"
        names = list(dict.fromkeys(package_of(file) for file in self.files))
        return f"{number} in {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"


class FrameLocation(NamedTuple):
    """The position in the user's code where an error occurred."""

    file: str
    line: int
    name: str | None


def package_of(file: str) -> str:
    """Return the name of the package that a file belongs to.

    >>> package_of("/venv/lib/python3.11/site-packages/httpx/_client.py"), package_of("/usr/lib/python3.12/asyncio/tasks.py")
    ('httpx', 'asyncio')
    """
    for pattern in _FOLDERS:
        match = re.search(pattern + r"[\\/]([^\\/]+)", file, re.IGNORECASE)
        if match is not None:
            return match[1].removesuffix(".py")
    return re.split(r"[\\/]", file)[-1].removesuffix(".py")


def users_place(text: str) -> FrameLocation | None:
    """Return the innermost frame in the user's own code.

    >>> users_place('  File "/srv/pay.py", line 7, in charge\\n    x()\\n  File "/usr/lib/python3.12/json/x.py", line 1, in y')
    FrameLocation(file='/srv/pay.py', line=7, name='charge')
    """
    last = None
    for line in text.splitlines():
        match = _FRAME.match(line)
        if match is not None and is_users(match["file"]):
            last = FrameLocation(match["file"], int(match["line"][:9]), match["name"])
    return last


def parts(text: str) -> list[TracebackPart]:
    """Split a traceback wherever it changes between the user's frames and library frames."""
    pieces: list[TracebackPart] = []
    for part in _pieces(text):
        last = pieces[-1] if pieces else None
        if last is not None and last.ours == part.ours:
            pieces[-1] = TracebackPart(
                part.ours, f"{last.text}\n{part.text}", last.frames + part.frames, last.files + part.files
            )
        else:
            pieces.append(part)
    # Fold nothing if the traceback has no frame in the user's code.
    if not any(part.ours and part.frames for part in pieces):
        return [TracebackPart(True, text.rstrip("\n"), 0, ())] if text.strip() else []
    return pieces


def _pieces(text: str) -> Iterator[TracebackPart]:
    """Yield each frame with its source lines, and each run of other lines."""
    lines: list[str] = []
    file: str | None = None
    depth = 0

    def made() -> TracebackPart:
        users = file is None or is_users(file)
        return TracebackPart(
            users, "\n".join(lines), 0 if file is None else 1, () if file is None else (file,)
        )

    for line in text.rstrip("\n").splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            if lines:
                yield made()
            lines, file, depth = [line], frame["file"], len(line) - len(line.lstrip())
        elif file is not None and len(line) - len(line.lstrip()) <= depth - (depth > 0) and line.strip():
            # This line is the error message, or the start of another traceback.
            yield made()
            lines, file = [line], None
        else:
            lines.append(line)
    if lines:
        yield made()
