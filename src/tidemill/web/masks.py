"""Masking of values that look like secrets, for viewers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

_SECRET = re.compile(
    r"pass(?:word|wd|phrase|code)|pwd|secret|token|api_?key|access_?key|private_?key|credential|authori[sz]ation"
    r"|cookie|session_?id|bearer|^(?:auth|pin|otp|cvv|iban)$",
    re.IGNORECASE,
)


def looks_secret(name: str) -> bool:
    """Whether only operators may see a value with this name.

    >>> looks_secret("api-key"), looks_secret("accessToken"), looks_secret("destination")
    (True, True, False)
    """
    return _SECRET.search(name.replace("-", "_").replace(" ", "_")) is not None


def masked(value: Any) -> Any:
    """Replace values that look like secrets by ``***`` at any depth.

    >>> masked({"to": "ada", "password": "x", "headers": [{"Authorization": "Bearer x"}]})
    {'to': 'ada', 'password': '***', 'headers': [{'Authorization': '***'}]}
    """
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if item is not None and looks_secret(str(name)) else masked(item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    return value
