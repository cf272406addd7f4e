"""What comes in and goes out, as models: strict where it is read, descriptive where it is only shown in the OpenAPI document."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Generic, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from tidemill.domain.bounds import FIRST_YEAR, LAST_YEAR

T = TypeVar("T")

_NUMBER = re.compile(r"\s*[-+]?[\d_.]+(?:[eE][-+]?\d+)?\s*")

MOST = 500
"""Items on one page."""

Limit = Annotated[int, Field(ge=1, le=MOST, description=f"Items on a page, at most {MOST}.")]
Cursor = Annotated[
    str | None, Field(max_length=500, description="Where to go on: the `next` of the page before.")
]
Seconds = Annotated[float, Field(ge=0, le=10 * 366 * 86400, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Words = Annotated[str, Field(max_length=2_000)]


def _within_reach(value: datetime) -> datetime:
    """Instants in UTC that every store can hold; those at the edges of the calendar have no UTC, or no place in a table."""
    if not FIRST_YEAR <= value.year <= LAST_YEAR:
        raise ValueError(f"the year must be between {FIRST_YEAR} and {LAST_YEAR}")
    return value.astimezone(UTC)


def _as_text(value: object) -> object:
    """Instants are ISO texts; a number, also one in a text, would be guessed to be seconds since 1970."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return value
    raise ValueError("give an instant with its zone, such as 2026-11-16T09:30:00Z")


Instant = Annotated[
    AwareDatetime, Field(strict=False), BeforeValidator(_as_text), AfterValidator(_within_reach)
]


class NoQuery(BaseModel):
    """Nothing may stand after the ``?``: for routes that are open to everybody, and know no tenant."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Query(NoQuery):
    """What may stand after the ``?``. Values arrive as texts and are converted; unknown names are refused."""

    tenant: str | None = Field(
        None, max_length=200, description="For keys of all tenants: only this tenant's."
    )


class Body(BaseModel):
    """A JSON body: no type is guessed, and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Document(BaseModel):
    """The shape of an answer. Answers are not made of it, so that they stay cheap; tests compare the two."""

    model_config = ConfigDict(extra="forbid")


class Items(Document, Generic[T]):
    """One page: the items, and the cursor of the next page or null."""

    items: list[T]
    next: str | None = Field(None, description="Give it as `cursor` to go on; null at the end.")


class ProblemDocument(Document):
    """An error, as RFC 9457 has it. Programs read `code`, people read `detail`."""

    model_config = ConfigDict(extra="allow", title="Problem")

    type: str = Field(examples=["urn:tidemill:problem:job_not_found"])
    title: str = Field(examples=["There is no such job in this tenant."])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no job 01890a5d-ac96-774b-bcce-b302099a8057"])
    code: str = Field(examples=["job_not_found"])
    instance: str = Field(description="The request, as in the header `x-correlation-id`.")
