"""The names of time zones that a form offers. They come from the system's zone data, and are read once."""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import available_timezones

_ODD = ("posix/", "right/", "SystemV/", "Etc/", "posixrules", "localtime", "Factory")


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """Names such as ``Europe/Berlin``, sorted, and UTC first."""
    found = sorted(name for name in available_timezones() if "/" in name and not name.startswith(_ODD))
    return ("UTC", *found)
