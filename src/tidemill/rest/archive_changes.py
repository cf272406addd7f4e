"""Restoring and erasing archived jobs."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.client.stats.reports import document
from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.errors import BadFilter
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_models import Reference
from tidemill.rest.models import MOST, BodyModel, Document
from tidemill.rest.routes import Routes

routes = Routes("archive")


class RestoreBody(BodyModel):
    """Archived jobs to restore."""

    ids: list[UUID] = Field(min_length=1, max_length=MOST)
    retry: bool = Field(False, description="Also give the jobs another chain of attempts.")


class RestoredDocument(Document):
    """Result of restoring jobs: each id is in one of the first four lists."""

    restored: list[UUID]
    live: list[UUID] = Field(description="A live job has this id; nothing was changed.")
    missing: list[UUID] = Field(description="No tier has this job.")
    damaged: list[UUID] = Field(description="The document differs from its fingerprint.")
    retried: list[UUID] = Field(description="Restored jobs that are pending again.")


@routes.post("/api/archive/restore", role=Role.ADMIN, body=RestoreBody, answer=RestoredDocument)
async def restore_jobs(request: ApiRequest) -> Response:
    """Put archived jobs with their executions and logs back into the live tables."""
    body: RestoreBody = request.body
    done = await request.act(request.app.archive.restore, body.ids, retry=body.retry, tenant=request.tenant)
    return request.reply(document(done))


class EraseBody(BodyModel):
    """Jobs to erase. All conditions must match."""

    ids: list[UUID] = Field([], max_length=MOST)
    reference: Reference | None = Field(None, description="As `kind:id`, or as a pair.")
    metadata: dict[str, str] = Field({})
    whole_tenant: bool = Field(
        False, description="Erase every job of the tenant that the query parameter `tenant` or the key names."
    )
    dry_run: bool = Field(True, description="Only count; send false to erase.")


class ErasedDocument(Document):
    """Result of an erasure."""

    jobs: int
    tiers: dict[str, int] = Field(description="Copies by tier; `live` are rows of the live tables.")
    dry_run: bool


@routes.post("/api/archive/erase", role=Role.ADMIN, body=EraseBody, answer=ErasedDocument)
async def erase_jobs(request: ApiRequest) -> Response:
    """Erase ended jobs in every tier, with their executions, logs, documents and file contents.

    Without `dry_run: false`, this only counts. The audit log keeps the ids and the counts. A job that has not ended is refused
    with 409, and nothing is erased.
    """
    body: EraseBody = request.body
    conditions = body.model_dump(exclude={"dry_run", "whole_tenant"}, exclude_defaults=True)
    if not conditions and (not body.whole_tenant or request.tenant == ALL_TENANTS):
        raise BadFilter("give ids, a reference, metadata, or whole_tenant together with a tenant")
    request.check_selection(conditions)
    done = await request.act(
        request.app.archive.erase, dry_run=body.dry_run, tenant=request.tenant, **conditions
    )
    return request.reply(document(done))
