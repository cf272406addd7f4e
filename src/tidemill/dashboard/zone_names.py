"""Time zone names offered by forms, read once from the system."""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import available_timezones

_ODD = ("posix/", "right/", "SystemV/", "Etc/", "posixrules", "localtime", "Factory")


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """Return names such as ``Europe/Berlin``, sorted, with UTC first."""
    names = sorted(name for name in available_timezones() if "/" in name and not name.startswith(_ODD))
    return ("UTC", *names)
