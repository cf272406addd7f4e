"""State of a submitted form: field values and error messages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tidemill.dashboard.page_request import PageRequest
from tidemill.domain.durations import parse_duration
from tidemill.domain.records import Pause
from tidemill.errors import StoreError, TidemillError
from tidemill.web.parsers import Fields
from tidemill.web.problems import Problem
from tidemill.web.sessions import LONGEST_UNDO, UndoForm
from tidemill.web.text_parsers import read_number, read_object

UNITS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}
_LONGEST_SPAN = timedelta(seconds=1e9)
"""Units of a duration, in seconds."""

LONGEST_WORDS = 2_000
"""Maximum number of characters of a reason or a comment."""


def refuse_to_look(request: PageRequest) -> None:
    """Raise 403 if the dashboard is read-only, so that it shows no forms."""
    if request.service.settings.read_only:
        raise Problem(403, "read_only", "this dashboard is read-only")


class FormError(Exception):
    """An invalid field and the message to show next to it."""

    def __init__(self, field: str, words: str) -> None:
        super().__init__(words)
        self.field, self.words = field, words


class FormState:
    """Values and error messages by field name. An error under ``""`` is about the whole form."""

    def __init__(self, values: Mapping[str, Any] | Fields, errors: Mapping[str, str] | None = None) -> None:
        self._values = values
        self.errors = dict(errors or {})

    def value(self, name: str, otherwise: str = "") -> str:
        """Return the value of a field."""
        stored = self._values.get(name)
        return otherwise if stored is None else str(stored)

    def has(self, name: str, value: str) -> bool:
        """Whether the checkbox with this name and value is checked."""
        if isinstance(self._values, Fields):
            return value in self._values.all(name)
        given = self._values.get(name)
        return value in given if isinstance(given, list | tuple) else given == value

    def error(self, name: str) -> str | None:
        """Return the error message of a field."""
        return self.errors.get(name)

    @property
    def is_wrong(self) -> bool:
        return bool(self.errors)


def complaints(
    error: TidemillError, fields: Mapping[str, str], *, arguments: str | None = None
) -> dict[str, str]:
    """Map an error to messages by form field.

    ``fields`` maps the error's field names to the form's. ``arguments`` is the prefix of the fields of a task's
    arguments, or None if the form has one field for all arguments.
    """
    if isinstance(error, StoreError):
        # A store error is not caused by the input.
        raise error
    faults = error.details.get("errors")
    if isinstance(faults, list) and faults:
        if arguments is None:
            message = "; ".join(f"{fault['field']}: {fault['message']}" for fault in faults[:10])
            return {fields.get("args", "args"): message}
        messages: dict[str, str] = {}
        for fault in faults:
            name, _, rest = str(fault["field"]).partition(".")
            message = f"{rest}: {fault['message']}" if rest else str(fault["message"])
            messages[arguments + name] = (
                f"{messages[arguments + name]}; {message}" if arguments + name in messages else message
            )
        return messages
    named = error.details.get("field") or error.details.get("option")
    return {fields.get(str(named), ""): error.message}


def read_json_field(form: Fields, field: str) -> dict[str, Any] | None:
    """Parse a field as a JSON object; return None if it is empty."""
    text = form.get(field)
    if text is None:
        return None
    try:
        return read_object(text)
    except ValueError as error:
        raise FormError(field, str(error)) from None


def read_span(form: Fields, field: str) -> timedelta | None:
    """Parse a duration: a number in the unit of its unit field, or text such as ``10m``; None if the field is empty."""
    text = form.get(field)
    if text is None:
        return None
    size = UNITS.get(form.get(f"{field}_unit") or "seconds")
    try:
        span = None if size is None else parse_duration(float(text) * size)
    except ValueError:
        span = parse_duration(text)
    if span is None or not timedelta(0) <= span <= _LONGEST_SPAN:
        raise FormError(field, f"{text[:40]!r} is not a duration; enter a number and a unit")
    return span


def shown_span(seconds: float, field: str) -> dict[str, str]:
    """Return the values of the two fields of a duration, in the largest unit that gives a whole number.

    >>> shown_span(7200, "delay"), shown_span(90, "delay")
    ({'delay': '2', 'delay_unit': 'hours'}, {'delay': '90', 'delay_unit': 'seconds'})
    """
    for unit, size in sorted(UNITS.items(), key=lambda pair: -pair[1]):
        if seconds >= size and seconds % size == 0:
            return {field: f"{seconds / size:.0f}", f"{field}_unit": unit}
    return {field: f"{seconds:g}", f"{field}_unit": "seconds"}


def read_whole(form: Fields, field: str, *, least: int, most: int) -> int | None:
    """Parse a field as an integer; return None if it is empty."""
    text = form.get(field)
    if text is None:
        return None
    try:
        return read_number(text, least, most)
    except ValueError as error:
        raise FormError(field, f"{text[:40]!r}: {error}") from None


def read_tags(form: Fields, field: str = "tags") -> list[str]:
    """Parse a comma-separated list of tags."""
    return [tag.strip() for tag in (form.get(field) or "").split(",") if tag.strip()]


def undo_resume(path: str, ended: Pause | None) -> UndoForm | None:
    """Return the form that pauses again what was resumed; None if it was not paused."""
    if ended is None:
        return None
    return UndoForm(path, {"name": ended.name, "reason": (ended.reason or "")[:LONGEST_UNDO]})


def read_reason(form: Fields, field: str = "reason") -> str | None:
    """Return the reason or comment in a field, truncated to the maximum length."""
    reason = form.get(field)
    return None if reason is None else reason[:LONGEST_WORDS]
