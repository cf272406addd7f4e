"""``docs/reference/errors.md``: every error class with its code and HTTP status."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from tidemill import errors
from tools.reference.internals import CODES, STATUSES
from tools.reference.markdown import code, prose, table

HEAD = """# Error codes

Every error of Tidemill is a class in `tidemill.errors` with a stable `code`.
The HTTP API answers with the same code in a problem document (RFC 9457, `application/problem+json`), and the dashboard and the command line show its message.
Details are attributes of the exception: `error.details` has all of them.

A base class catches its whole group: `except StoreError` catches `StoreBusy` and the others below it.
`UsageError` means that repeating the call will not help, `JobError` concerns one job, and `StoreError` concerns the database.
"""

HTTP = """## Codes of the HTTP API alone

These codes belong to the request itself and have no exception class.
"""

RAISED = """## Exceptions for your tasks

A task raises these to direct its own job.
`PermanentError` is an `Exception`; the others are signals and derive from `BaseException`, so that `except Exception` in a task does not catch them.
"""

EXIT = """## Exit codes of the command line

| code | meaning |
|---|---|
| 0 | success |
| 1 | failure: the message on stderr begins with `tidemill:` |
| 2 | wrong usage |
| 130 | Ctrl-C |
"""


def page() -> str:
    """The text of the page."""
    parts = [HEAD]
    for group in (errors.UsageError, errors.JobError, errors.StoreError):
        parts += [f"## {group.__name__}\n", prose(inspect.getdoc(group) or "") + "\n"]
        rows = [(code(c.__name__), code(vars(c)["code"]), str(status(c)), summary(c)) for c in family(group)]
        parts.append(table(("class", "code", "HTTP", "meaning"), rows) + "\n")
    parts.append(HTTP)
    own = sorted(set(CODES.items()))
    parts.append(table(("code", "HTTP"), [(code(name), str(number)) for number, name in own]) + "\n")
    parts.append(RAISED)
    raised = [errors.PermanentError, *family(errors.Signal)[1:]]
    parts.append(table(("class", "effect"), [(code(c.__name__), summary(c)) for c in raised]) + "\n")
    parts.append(EXIT)
    return "\n".join(parts)


def family(base: type) -> list[type]:
    """A class and those that derive from it, in source order."""
    return [
        found
        for found in vars(errors).values()
        if inspect.isclass(found) and issubclass(found, base) and found.__module__ == errors.__name__
    ]


def status(error: type) -> int:
    """The HTTP status of an error class: its own, or that of its nearest base class."""
    return next(STATUSES[base] for base in _bases(error) if base in STATUSES)


def _bases(error: type) -> Iterator[type[errors.TidemillError]]:
    yield from (base for base in error.__mro__ if issubclass(base, errors.TidemillError))


def summary(found: type) -> str:
    """The first paragraph of a docstring."""
    return (inspect.getdoc(found) or "").partition("\n\n")[0].replace("``", "`")
