"""Texts of users without characters that control a terminal."""

from __future__ import annotations

import re

# C0, DEL, C1, line and paragraph separators, bidirectional controls, and lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def clean(value: object, *, lines: bool = False) -> str:
    r"""Escape control characters; with ``lines``, keep line breaks.

    >>> print(clean("\x1b[31mred\nx"))
    \x1b[31mred\nx
    """
    text = str(value)
    if lines:
        return "\n".join(clean(line) for line in text.splitlines())
    return _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
