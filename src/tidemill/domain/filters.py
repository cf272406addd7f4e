"""Job filters, and cursors that page through results in a stable order.

Jobs are listed by id, which is the order of creation. Every filter names a tenant; to list all tenants, pass
``ALL_TENANTS`` explicitly.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from tidemill.domain.bounds import text_flaw
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter

T = TypeVar("T")

ALL_TENANTS = "*"
"""Matches every tenant; not a valid tenant name."""

MAX_PAGE = 1_000

LOOK = 20_000
"""How many jobs, matching the other conditions, one page scans for a text."""

NO_COUNT = "jobs cannot be counted by a text, an id suffix, an argument, an error, a worker or a run time; list them page by page"

UNARCHIVED = (
    "parent_ids",
    "definition_id",
    "schedule_id",
    "flow_id",
    "reference",
    "tag",
    "metadata",
    "error_group",
)
"""Conditions that no archive can judge: what they ask for is inside the archived document."""

MAX_TEXT = 200
ID_DIGITS = 8
"""Minimum number of hex digits that search for an id; fewer match nearly every id."""


class Sort(StrEnum):
    """The order of a listing, by creation."""

    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The conjunction of all given conditions; an empty condition does not restrict."""

    tenant: str
    states: frozenset[JobState] = frozenset()
    tasks: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    ids: frozenset[UUID] = frozenset()
    correlation_id: str | None = None
    parent_id: UUID | None = None
    parent_ids: frozenset[UUID] = frozenset()
    definition_id: UUID | None = None
    definition_version: int | None = None  #: only with ``definition_id``
    schedule_id: UUID | None = None
    fire_at: datetime | None = None  #: only with ``schedule_id``
    flow_id: UUID | None = None  #: of a flow or batch
    reference: tuple[str, str] | None = None
    tag: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    created_after: datetime | None = None
    created_before: datetime | None = None
    text: str | None = None  #: searched in the id, task name, tags, arguments and error; see ``Needle``
    text_in_args: bool = True  #: whether to search the arguments
    args: Mapping[str, str] = field(
        default_factory=dict
    )  #: values of top-level arguments; see ``argument_text``
    error: str | None = None  #: class of the error, with or without its module
    error_group: str | None = None  #: fingerprint of the group of the failure that ended the job
    workers: frozenset[UUID] = frozenset()  #: of which one ran the last execution
    took_over: timedelta | None = None  #: the last execution ended and took longer
    look: int = LOOK  #: how many jobs one page scans for the conditions of ``scans``
    tiers: frozenset[str] = frozenset()  #: of archived jobs; live jobs have none
    rare: bool = False  #: few jobs wait in these queues, so that an index finds them best; changes no result
    id_suffix: str | None = None  #: last hexadecimal digits of the id, without dashes

    def __post_init__(self) -> None:
        if not self.tenant:
            raise BadFilter("a filter needs a tenant; give its name, or ALL_TENANTS")
        for name, needs in (("definition_version", "definition_id"), ("fire_at", "schedule_id")):
            if getattr(self, name) is not None and getattr(self, needs) is None:
                raise BadFilter(f"{name} needs {needs.removesuffix('_id')}; give both", field=name)
        for name in ("created_after", "created_before", "fire_at"):
            value: datetime | None = getattr(self, name)
            if value is not None and value.tzinfo is None:
                raise BadFilter(f"{name} has no time zone; give an aware datetime", field=name)
        for name in ("correlation_id", "tag", "text", "error", "error_group"):
            # Most likely an unset variable, which must not match every job.
            if getattr(self, name) == "":
                raise BadFilter(f"{name} is empty; give one, or leave it out", field=name)
        if self.text is not None:
            check_text(self.text)
        if self.id_suffix is not None and not re.fullmatch("[0-9a-f]{1,32}", self.id_suffix):
            raise BadFilter(
                f"id_suffix is {self.id_suffix!r}; give 1 to 32 hexadecimal digits", field="id_suffix"
            )
        self._check_args()
        self._check_storable()

    def _check_args(self) -> None:
        """Refuse names that an SQL store cannot put into a JSON path."""
        for name in self.args:
            if not name or len(name) > MAX_TEXT or '"' in name or "\\" in name:
                raise BadFilter(f"{name[:40]!r} is not the name of an argument", field="args")

    def _check_storable(self) -> None:
        """Refuse texts that no job can contain, because a store would fail on them."""
        texts_by_name: dict[str, Iterable[str | None]] = {
            "tenant": (self.tenant,),
            "task": self.tasks,
            "queue": self.queues,
            "correlation_id": (self.correlation_id,),
            "tag": (self.tag,),
            "reference": self.reference or (),
            "metadata": (*self.metadata, *self.metadata.values()),
            "args": (*self.args, *self.args.values()),
            "error": (self.error,),
            "error_group": (self.error_group,),
        }
        for name, texts in texts_by_name.items():
            for text in texts:
                if text is not None and (flaw := text_flaw(text)):
                    raise BadFilter(f"{name} is {text!r}, which has {flaw}; no job has that", field=name)

    @property
    def scans(self) -> bool:
        """Whether each job has to be looked at, so that a page looks at no more than ``look`` of them."""
        return any(
            (
                self.text is not None,
                self.id_suffix is not None,
                self.args,
                self.error,
                self.workers,
                self.took_over is not None,
            )
        )

    @property
    def narrows(self) -> bool:
        """Whether there is a condition other than the tenant."""
        return any((
            self.states, self.tasks, self.queues, self.ids, self.correlation_id, self.parent_id, self.parent_ids, self.definition_id,
            self.schedule_id, self.flow_id, self.reference, self.tag, self.metadata, self.created_after, self.created_before, self.text,
            self.id_suffix, self.args, self.error, self.error_group, self.workers, self.took_over is not None,
        ))  # fmt: skip


def check_text(text: str) -> None:
    """Refuse a search text that no job can contain."""
    if len(text) > MAX_TEXT:
        raise BadFilter(f"the text has {len(text)} characters; give at most {MAX_TEXT}", field="text")
    if flaw := text_flaw(text):
        raise BadFilter(f"the text has {flaw}; no job has that", field="text")


class Needle(NamedTuple):
    """A search text: ASCII letters match in either case, and there are no wildcards.

    Names and tags are compared directly. Arguments and errors (type, message and traceback) are JSON text, which is searched
    for the text both as written and as escaped by JSON.

    >>> needle('Zoë "x"')
    Needle(plain='zoë "x"', escaped='zo\\\\u00eb \\\\"x\\\\"', digits=None)
    >>> needle("01890A5D-AC96").digits
    '01890a5dac96'
    """

    plain: str
    escaped: str  #: in ASCII, as escaped by JSON
    digits: str | None  #: the hex digits, if the text may be part of an id


def needle(text: str) -> Needle:
    """The parsed search text."""
    digits = fold(text.replace("-", ""))
    is_id = ID_DIGITS <= len(digits) <= 32 and not digits.strip("0123456789abcdef")
    return Needle(fold(text), fold(json.dumps(text)[1:-1]), digits if is_id else None)


def fold(text: str) -> str:
    """The text with A to Z in lower case; all databases fold only these letters in the same way.

    >>> fold("ÄB-Ñandú")
    'Äb-Ñandú'
    """
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items, and the cursor of the next page; None at the end.

    A page of a text search may hold fewer items than requested, or none, and still have a cursor. A page of jobs ends early
    when their arguments and results exceed ``PAGE_BYTES``. ``missing`` names the shards that did not answer.
    """

    items: list[T]
    next: str | None = None
    missing: tuple[str, ...] = ()


def encode_cursor(sort: Sort, last: UUID) -> str:
    """The cursor that continues a listing after this id."""
    return base64.urlsafe_b64encode(b"1" + sort.value[:1].encode() + last.bytes).decode().rstrip("=")


def decode_cursor(sort: Sort, cursor: str) -> UUID:
    """The id after which a listing in this order continues.

    >>> some = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
    >>> decode_cursor(Sort.NEWEST, encode_cursor(Sort.NEWEST, some)) == some
    True
    """
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 18 or raw[:1] != b"1" or base64.urlsafe_b64encode(raw).decode().rstrip("=") != cursor:
        raise BadFilter("invalid cursor; start again without it", cursor=cursor)
    if raw[1:2] != sort.value[:1].encode():
        raise BadFilter(
            "this cursor belongs to a listing in the other order; start again without it", cursor=cursor
        )
    return UUID(bytes=raw[2:])


PAGE_BYTES = 8 * 1024 * 1024
"""Bytes of arguments and results after which a page of jobs ends, regardless of its limit."""


def bytes_of(text: str | None) -> int:
    """The size of a text in a store, in bytes."""
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def fitting(sizes: Iterable[int]) -> int:
    """How many items of these sizes fit on one page; at least one, so that every listing ends.

    >>> fitting([5_000_000, 3_000_000, 1_000_000]), fitting([9_000_000, 1]), fitting([])
    (2, 1, 0)
    """
    total = count = 0
    for size in sizes:
        total += size
        if count and total > PAGE_BYTES:
            break
        count += 1
    return count


def page_size(limit: int) -> int:
    """The limit, if it is between 1 and 1,000."""
    if not 1 <= limit <= MAX_PAGE:
        raise BadFilter(f"limit is {limit}; give 1 to {MAX_PAGE}", limit=limit)
    return limit
