"""Which jobs are meant: filters, and cursors that page through them in a steady order.

Jobs are listed by id, which is the order of their creation. The tenant is a mandatory part of every filter; only
``ALL_TENANTS`` says "whoever's", and it must be said.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar
from uuid import UUID

from tidemill.domain.states import JobState
from tidemill.errors import BadFilter

T = TypeVar("T")

ALL_TENANTS = "*"
"""Stands for every tenant; no tenant may be named so."""

MAX_PAGE = 1_000


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

    def __post_init__(self) -> None:
        if not self.tenant:
            raise BadFilter("a filter needs a tenant; give its name, or ALL_TENANTS")
        for name in ("created_after", "created_before"):
            value: datetime | None = getattr(self, name)
            if value is not None and value.tzinfo is None:
                raise BadFilter(f"{name} has no time zone; give an aware datetime", field=name)

    @property
    def about_details(self) -> bool:
        """Whether any condition looks at what is kept in the details."""
        return bool(self.correlation_id or self.parent_id or self.reference or self.tag or self.metadata)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items, and the cursor that continues after them; None at the end."""

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
