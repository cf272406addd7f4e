"""Masking of values that look like secrets: the one rule of every interface."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from tidemill.errors import BadSettings

HIDDEN = "***"

_SECRET = re.compile(
    r"pass(?:w|phrase|code)|pwd|secret|token|api_?key|access_?key|private_?key|credential|authori[sz]ation"
    r"|cookie|session_?id|bearer|private|^(?:auth|pin|otp|cvv|iban)$",
    re.IGNORECASE,
)


_NAME = re.compile(r"[\w][\w -]{0,99}")


class _Declared:
    """Further names of secrets, which the apps of this process declared."""

    names: frozenset[str] = frozenset()


def declare_secret_names(names: Iterable[str]) -> None:
    """Treat values with these names as secret, too. Case, ``-`` and ``_`` make no difference.

    The names are those of the whole process: a text to scrub does not say which app it comes from.
    """
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise BadSettings(
                f"{name[:100]!r} is not a name of a secret; give letters, digits, -, _ and spaces",
                setting="secret_names",
            )
    _Declared.names |= {_normal(name) for name in names}


def _normal(name: str) -> str:
    return name.replace("-", "_").replace(" ", "_").lower()


_DIGEST = re.compile(r"~[0-9a-f]{32}\b")


def looks_secret(name: str) -> bool:
    """Whether only operators may see a value with this name.

    >>> looks_secret("api-key"), looks_secret("accessToken"), looks_secret("destination")
    (True, True, False)
    """
    normal = _normal(name)
    return _SECRET.search(normal) is not None or normal in _Declared.names


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


def hidden(value: Any) -> Any:
    """Replace data by ``***``, also the whole of it; the names at the top level remain.

    >>> hidden({"to": "ada", "size": 3}), hidden([1, 2]), hidden(None)
    ({'to': '***', 'size': '***'}, '***', None)
    """
    if isinstance(value, Mapping):
        return dict.fromkeys(value, HIDDEN)
    return None if value is None else HIDDEN


def masked_key(value: str) -> str:
    """The part of a limit's name for a value that looks secret: a marked digest, which keeps jobs with one value together.

    >>> masked_key("hunter2")
    '~f52fbd32b2b3b86ff88ef6c490628285'
    """
    return "~" + hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def masked_name(name: str) -> str:
    """A limit's name as viewers see it. Even a digest would reveal a short value to a viewer who tries them all.

    >>> masked_name("pay.limit.pin/~f52fbd32b2b3b86ff88ef6c490628285"), masked_name("queue/mail")
    ('pay.limit.pin/***', 'queue/mail')
    """
    return _DIGEST.sub(HIDDEN, name)


def masked_unique_key(key: str | None) -> str | None:
    """A unique key as viewers see it: without the digest of the arguments.

    >>> masked_unique_key("mail:5e88489")
    'mail:***'
    """
    return None if key is None else f"{key.rpartition(':')[0] or HIDDEN}:{HIDDEN}"


_NAMES = (
    r"pass(?:word|wd|phrase|code)|pwd|[\w-]*secret[\w-]*|[\w-]*token|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|session[_-]?id|authorization"
)


@lru_cache(maxsize=8)
def _scrubber(declared: frozenset[str]) -> re.Pattern[str]:
    own = (re.escape(name).replace("_", "[-_ ]?") for name in sorted(declared, key=len, reverse=True))
    names = "|".join((_NAMES, *own))
    return re.compile(
        # name=value and "name": "value"
        rf"""(?P<name>\b(?:{names})['"]?\s*(?:=|:(?=\s*['"]))\s*)(?:(?P<quote>['"]).*?(?P=quote)|[^\s,;&'")\]}}]+)"""
        # Authorization headers, and passwords in addresses
        r"|(?P<scheme>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{8,}"
        r"|(?P<user>://[^\s/:@'\"]*:)[^\s/@'\"]+(?=@)",
        re.IGNORECASE,
    )


def scrub(text: str) -> str:
    """Remove values from a text that their name or form shows to be secret.

    >>> scrub("login failed: password=hunter2, user=ada")
    'login failed: password=***, user=ada'
    >>> scrub("GET postgres://ada:hunter2@db/x with Authorization: Bearer abcdefghij")
    'GET postgres://ada:***@db/x with Authorization: Bearer ***'
    """
    return _scrubber(_Declared.names).sub(_scrubbed, text)


def _scrubbed(match: re.Match[str]) -> str:
    start = match["name"] or match["scheme"] or match["user"]
    quote = match["quote"] or ""
    return f"{start}{quote}{HIDDEN}{quote}"
