"""Which jobs are meant: filters, and cursors that page through them in a steady order.

Jobs are listed by id, which is the order of their creation. The tenant is a mandatory part of every filter; only
``ALL_TENANTS`` says "whoever's", and it must be said.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from tidemill.domain.bounds import text_flaw
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter

T = TypeVar("T")

ALL_TENANTS = "*"
"""Stands for every tenant; no tenant may be named so."""

MAX_PAGE = 1_000

LOOK = 20_000
"""Jobs that match all else and are looked at for a text, for one page."""

NO_COUNT = "jobs with a text are not counted, as each would have to be looked at; list them page by page"

MAX_TEXT = 200
ID_DIGITS = 8
"""So many digits of an id, or more, find a job by them; fewer are in nearly every one."""


class Sort(StrEnum):
    """The order of a listing, by creation."""

    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Every given condition must hold; an empty one does not restrict."""

    tenant: str
    states: frozenset[JobState] = frozenset()
    tasks: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    ids: frozenset[UUID] = frozenset()
    correlation_id: str | None = None
    parent_id: UUID | None = None
    reference: tuple[str, str] | None = None
    tag: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    created_after: datetime | None = None
    created_before: datetime | None = None
    text: str | None = None  #: in the id, the task's name, a tag, the arguments or the error; see ``Needle``
    text_in_args: bool = True  #: whether the arguments are looked into
    look: int = LOOK  #: how many jobs one page looks at for the text

    def __post_init__(self) -> None:
        if not self.tenant:
            raise BadFilter("a filter needs a tenant; give its name, or ALL_TENANTS")
        for name in ("created_after", "created_before"):
            value: datetime | None = getattr(self, name)
            if value is not None and value.tzinfo is None:
                raise BadFilter(f"{name} has no time zone; give an aware datetime", field=name)
        for name in ("correlation_id", "tag", "text"):
            if getattr(self, name) == "":  # most likely a variable that nobody filled: it is not every job
                raise BadFilter(f"{name} is empty; give one, or leave it out", field=name)
        if self.text is not None:
            check_text(self.text)
        self._check_storable()

    def _check_storable(self) -> None:
        """No job has what no store can hold, and a store would not understand the question."""
        said: dict[str, Iterable[str | None]] = {
            "tenant": (self.tenant,),
            "task": self.tasks,
            "queue": self.queues,
            "correlation_id": (self.correlation_id,),
            "tag": (self.tag,),
            "reference": self.reference or (),
            "metadata": (*self.metadata, *self.metadata.values()),
        }
        for name, texts in said.items():
            for text in texts:
                if text is not None and (flaw := text_flaw(text)):
                    raise BadFilter(f"{name} is {text!r}, which has {flaw}; no job has that", field=name)

    @property
    def narrows(self) -> bool:
        """Whether there is any condition beside the tenant."""
        return any((
            self.states, self.tasks, self.queues, self.ids, self.correlation_id, self.parent_id, self.reference, self.tag,
            self.metadata, self.created_after, self.created_before, self.text,
        ))  # fmt: skip


def check_text(text: str) -> None:
    """Refuse a text that no job can hold."""
    if len(text) > MAX_TEXT:
        raise BadFilter(f"the text has {len(text)} characters; give at most {MAX_TEXT}", field="text")
    if flaw := text_flaw(text):
        raise BadFilter(f"the text has {flaw}; no job has that", field="text")


class Needle(NamedTuple):
    """A text as it is looked for: capitals A to Z are as good as small letters, and nothing in it is a wildcard.

    Names and tags are compared as they are. The arguments and the error (its type, message and traceback) are JSON text, in which
    a text is found as it is, or as JSON writes it.

    >>> needle('Zoë "x"')
    Needle(plain='zoë "x"', escaped='zo\\\\u00eb \\\\"x\\\\"', digits=None)
    >>> needle("01890A5D-AC96").digits
    '01890a5dac96'
    """

    plain: str
    escaped: str  #: in ASCII, as our own JSON is written
    digits: str | None  #: of an id, if it may be that


def needle(text: str) -> Needle:
    """What is looked for."""
    digits = fold(text.replace("-", ""))
    is_id = ID_DIGITS <= len(digits) <= 32 and not digits.strip("0123456789abcdef")
    return Needle(fold(text), fold(json.dumps(text)[1:-1]), digits if is_id else None)


def fold(text: str) -> str:
    """The text with its capitals A to Z made small, as every database does it alike.

    >>> fold("ÄB-Ñandú")
    'Äb-Ñandú'
    """
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items, and the cursor that continues after them; None at the end. A page of a search for a text may hold fewer items
    than were asked for, even none, and still have a cursor.
    """

    items: list[T]
    next: str | None = None


def encode_cursor(sort: Sort, last: UUID) -> str:
    """The text a caller hands back to go on."""
    return base64.urlsafe_b64encode(b"1" + sort.value[:1].encode() + last.bytes).decode().rstrip("=")


def decode_cursor(sort: Sort, cursor: str) -> UUID:
    """Where a listing in this order stopped.

    >>> some = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
    >>> decode_cursor(Sort.NEWEST, encode_cursor(Sort.NEWEST, some)) == some
    True
    """
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 18 or raw[:1] != b"1" or base64.urlsafe_b64encode(raw).decode().rstrip("=") != cursor:
        raise BadFilter("this cursor is not one of ours; start again without it", cursor=cursor)
    if raw[1:2] != sort.value[:1].encode():
        raise BadFilter(
            "this cursor belongs to a listing in the other order; start again without it", cursor=cursor
        )
    return UUID(bytes=raw[2:])


def page_size(limit: int) -> int:
    """A page holds 1 to 1,000 items."""
    if not 1 <= limit <= MAX_PAGE:
        raise BadFilter(f"limit is {limit}; give 1 to {MAX_PAGE}", limit=limit)
    return limit
