"""Base classes and field types of request and response models.

Request models validate strictly. Response models only describe documents in OpenAPI.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Generic, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from tidemill.domain.bounds import FIRST_YEAR, LAST_YEAR

T = TypeVar("T")

_NUMBER = re.compile(r"\s*[-+]?[\d_.]+(?:[eE][-+]?\d+)?\s*")

MOST = 500
"""Maximum number of items per page."""

Limit = Annotated[int, Field(ge=1, le=MOST, description=f"Items per page, at most {MOST}.")]
Cursor = Annotated[str | None, Field(max_length=500, description="The `next` of the previous page.")]
Seconds = Annotated[float, Field(ge=0, le=10 * 366 * 86400, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Words = Annotated[str, Field(max_length=2_000)]


def _within_reach(value: datetime) -> datetime:
    """Convert to UTC, and refuse years that a store cannot represent or that overflow in UTC."""
    if not FIRST_YEAR <= value.year <= LAST_YEAR:
        raise ValueError(f"the year must be between {FIRST_YEAR} and {LAST_YEAR}")
    return value.astimezone(UTC)


def _as_text(value: object) -> object:
    """Accept only ISO strings. Pydantic would parse a number, also as a string, as seconds since 1970."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return value
    raise ValueError("expected an ISO date and time with a time zone, such as 2026-11-16T09:30:00Z")


Instant = Annotated[
    AwareDatetime, Field(strict=False), BeforeValidator(_as_text), AfterValidator(_within_reach)
]


class NoQuery(BaseModel):
    """No query parameters, for public routes without a tenant."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class QueryModel(NoQuery):
    """Query parameters. Values are converted from text; unknown names are refused."""

    tenant: str | None = Field(
        None, max_length=200, description="Restrict to this tenant; only for keys of all tenants."
    )
    store: str | None = Field(
        None,
        max_length=200,
        description="Address this store of the app, by its name; also the header `Tidemill-Store`.",
    )


class BodyModel(BaseModel):
    """A JSON body. Types are not coerced; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Document(BaseModel):
    """Schema of a response. Responses are not built from it, to stay fast; tests compare the two."""

    model_config = ConfigDict(extra="forbid")


class Items(Document, Generic[T]):
    """One page of items, and the cursor of the next page or null."""

    items: list[T]
    next: str | None = Field(
        None, description="Pass it as `cursor` to get the next page; null on the last page."
    )


class ProblemDocument(Document):
    """An error as defined by RFC 9457. `code` is for programs, `detail` for people."""

    model_config = ConfigDict(extra="allow", title="Problem")

    type: str = Field(examples=["urn:tidemill:problem:job_not_found"])
    title: str = Field(examples=["There is no such job in this tenant."])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no job 01890a5d-ac96-774b-bcce-b302099a8057"])
    code: str = Field(examples=["job_not_found"])
    instance: str = Field(description="Id of the request, as in the `x-correlation-id` header.")
