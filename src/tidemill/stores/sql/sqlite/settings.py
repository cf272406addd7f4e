"""URL options of an SQLite store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.errors import BadSettings

_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """The parsed options."""

    #: "full": accepted changes survive a power failure; "normal": all but the most recent ones do.
    synchronous: str = "full"
    busy_timeout: float = 30.0  #: seconds for which a verb waits to write before it raises StoreBusy
    shared: bool = False  #: Tidemill's tables may be created in a file that has others
    force: bool = False  #: a network file system is accepted


def read_settings(options: Mapping[str, str], url: str) -> SqliteSettings:
    """The settings of these options; an unknown or invalid one is refused.

    >>> read_settings({"synchronous": "normal", "shared": "1"}, "sqlite:///jobs.db").synchronous
    'normal'
    """
    readers = {"synchronous": _synchronous, "busy_timeout": _seconds, "shared": _flag, "force": _flag}
    values: dict[str, object] = {}
    for name, text in options.items():
        if name not in readers:
            raise BadSettings(
                f"{url}: unknown option {name!r}; expected one of {', '.join(readers)}", option=name
            )
        values[name] = readers[name](name, text, url)
    return SqliteSettings(**values)  # type: ignore[arg-type]


def _synchronous(name: str, text: str, url: str) -> str:
    if text.lower() not in ("full", "normal"):
        raise BadSettings(f"{url}: {name} is {text!r}; choose full or normal", option=name)
    return text.lower()


def _seconds(name: str, text: str, url: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _MOST:  # the timeout of a lock is limited
        raise BadSettings(
            f"{url}: {name} is {text!r}; give seconds from 0 to {_MOST:,}, such as 30", option=name
        )
    return seconds


def _flag(name: str, text: str, url: str) -> bool:
    words = {"": True, "1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if text.lower() not in words:
        raise BadSettings(f"{url}: {name} is {text!r}; give 1 or 0", option=name)
    return words[text.lower()]
