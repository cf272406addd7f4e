"""Output of confined processes, passed on without control characters."""

from __future__ import annotations

import contextlib
import os

_MOST = 64 * 1024
_KEPT = {ord("\t"), ord("\n")}
_ESCAPED = {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160)) if number not in _KEPT}
_ESCAPED |= {
    number: f"\\u{number:04x}" for number in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029)
}


def without_controls(text: str) -> str:
    r"""Replace control characters, which a terminal would execute, by their codes.

    >>> print(without_controls("a\x1b[31mb"))
    a\x1b[31mb
    """
    return text.translate(_ESCAPED)


def relay(source: int, target: int) -> None:
    """Copy text from a pipe to another descriptor until the last writer has closed it."""
    while data := os.read(source, _MOST):
        text = data.decode("utf-8", "replace")
        with contextlib.suppress(OSError):
            os.write(target, without_controls(text).encode())
    os.close(source)
