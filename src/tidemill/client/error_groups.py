"""``app.errors``: failures by their cause, and what people say about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.client._base import async_twin
from tidemill.client.access import TenantApi, note, who
from tidemill.client.core import Client
from tidemill.client.jobs.api import Acted, Jobs
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.failures import (
    KEPT,
    MOST_GROUPS,
    ErrorMark,
    ErrorStatus,
    FailureCount,
    FailureGroup,
    FailurePart,
    MarkStatus,
    is_new,
    is_regressed_since,
    marks_of,
    status_of,
)
from tidemill.domain.releases import Deploy
from tidemill.domain.stats import check_reach
from tidemill.errors import BadFilter, ErrorGroupNotFound
from tidemill.stores.base import Store

DAY = timedelta(days=1)
STEPS = 30
"""Steps of the trend of a group."""


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failures with one cause: the class of the error and the innermost frame of the user's code.

    Failures without such a frame form one group for each task and class. The counts are exact, whatever happened to the
    jobs since. ``message`` is that of the latest failure, with addresses, paths, quoted texts and numbers masked.
    """

    fingerprint: str
    type: str | None  #: class of the error; None if no error was raised
    place: str | None  #: file and function in the user's code
    message: str
    task: str  #: of the latest failure
    jobs: int  #: failures within the window
    tasks: int
    tenants: int
    first_at: datetime  #: also before the window
    last_at: datetime
    status: ErrorStatus
    is_new: bool  #: it failed for the first time since the latest deploy
    regressed_since_deploy: bool
    marked_at: datetime | None  #: when it was muted, resolved or reopened
    marked_by: str | None
    example: UUID | None  #: the job that failed last, if it may still be stored
    trend: tuple[int, ...]  #: failures in equal steps of the window, oldest first


class ErrorGroups(TenantApi):
    """The failures of an app, grouped by cause.

    A failure is an execution that ended its job as failed, timed out or dead-lettered. A status belongs to the tenant that
    set it; one that was set for all tenants also applies to every tenant that has set none since.

    >>> from tidemill import App
    >>> app = App("memory://")
    >>> list(app.errors.list())
    []
    >>> app.close()
    """

    def __init__(self, client: Client, jobs: Jobs) -> None:
        super().__init__(client)
        self._jobs = jobs

    def list(
        self,
        window: Duration = DAY,
        *,
        status: str | Sequence[str] | None = None,
        task: str | None = None,
        limit: int = 100,
        tenant: str | None = None,
        store: str | None = None,
    ) -> Sequence[ErrorGroup]:
        """Return the groups with failures within the window, most failures first; optionally with one of these statuses."""
        wanted = _statuses(status)
        rows = error_groups(
            self._client.reader(store),
            self._at(store),
            read_reach(window),
            tenant=self._tenant(tenant),
            task=task,
            limit=limit if wanted is None else MOST_GROUPS,
        )
        return [row for row in rows if wanted is None or row.status in wanted][:limit]

    def get(
        self,
        fingerprint: str,
        window: Duration = KEPT,
        *,
        tenant: str | None = None,
        store: str | None = None,
    ) -> ErrorGroup:
        """Return one group, or raise ``ErrorGroupNotFound``."""
        target, at = self._client.reader(store), self._at(store)
        rows = error_groups(
            target, at, read_reach(window), tenant=self._tenant(tenant), fingerprint=fingerprint
        )
        if not rows:
            raise _unknown(fingerprint)
        return rows[0]

    def parts(
        self,
        fingerprint: str,
        part: str = "variant",
        window: Duration = KEPT,
        *,
        limit: int = 20,
        tenant: str | None = None,
        store: str | None = None,
    ) -> Sequence[FailureCount]:
        """Return the failures of a group by ``"variant"`` (masked message), ``"task"`` or ``"tenant"``, most first.

        Raise ``ErrorGroupNotFound`` if there is no such group.
        """
        if part not in set(FailurePart):
            raise BadFilter(f"part is {part!r}; choose variant, task or tenant", field="part")
        rows = self._client.reader(store).failure_counts(
            fingerprint,
            FailurePart(part),
            read_reach(window),
            tenant=self._tenant(tenant),
            limit=limit,
            now=self._at(store),
        )
        if not rows:
            self.get(fingerprint, tenant=tenant, store=store)
        return rows

    def deploys(self, *, limit: int = 20, store: str | None = None) -> Sequence[Deploy]:
        """Return when each release of the apps started first, latest first.

        An app has releases if it is created with ``release=``, or ``TIDEMILL_RELEASE`` is set.
        """
        return self._client.store(store).deploys(limit=limit)

    def mute(self, fingerprint: str, *, tenant: str | None = None, store: str | None = None) -> ErrorGroup:
        """Mute a group: its failures are counted, and the list of errors leaves it out."""
        return self._mark(fingerprint, MarkStatus.MUTED, tenant, store)

    def unmute(self, fingerprint: str, *, tenant: str | None = None, store: str | None = None) -> ErrorGroup:
        """Open a muted group again."""
        return self._mark(fingerprint, MarkStatus.OPEN, tenant, store)

    def resolve(self, fingerprint: str, *, tenant: str | None = None, store: str | None = None) -> ErrorGroup:
        """Mark a group as resolved. If it fails again, its status is ``regressed``."""
        return self._mark(fingerprint, MarkStatus.RESOLVED, tenant, store)

    def unresolve(
        self, fingerprint: str, *, tenant: str | None = None, store: str | None = None
    ) -> ErrorGroup:
        """Open a resolved group again."""
        return self._mark(fingerprint, MarkStatus.OPEN, tenant, store)

    def retry(
        self,
        fingerprint: str,
        *,
        spread: Duration | None = None,
        tenant: str | None = None,
        store: str | None = None,
    ) -> Acted:
        """Give every job whose last failure is in the group another chain of attempts.

        Raise ``ErrorGroupNotFound`` if there is neither such a group nor such a job.
        """
        acted = self._jobs.retry(error_group=fingerprint, spread=spread, tenant=tenant, store=store)
        if not acted.done and not acted.skipped:
            self.get(fingerprint, tenant=tenant, store=store)
        return acted

    def _mark(
        self, fingerprint: str, status: MarkStatus, tenant: str | None, store: str | None
    ) -> ErrorGroup:
        target, owner = self._client.store(store), self._tenant(tenant)
        before = self.get(fingerprint, tenant=owner, store=store)
        with target.transaction():
            target.put_error_marks([ErrorMark(owner, fingerprint, status, by=who())], now=self._pin)
            self._note_in(target, before, status, owner)
        return self.get(fingerprint, tenant=owner, store=store)

    def _note_in(self, target: Store, before: ErrorGroup, status: MarkStatus, tenant: str) -> None:
        note(
            target,
            f"error.{_VERBS[status]}",
            f"error:{before.fingerprint}",
            tenant,
            before={"status": before.status.value, "type": before.type, "place": before.place},
            after={"status": status.value},
            now=self._pin,
        )

    def _at(self, store: str | None) -> datetime:
        return self._pin or self._client.store(store).now()

    # Async twins -------------------------------------------------------------------------------------------------------

    alist = async_twin(list)  # noqa: A003  (the method above)
    aget = async_twin(get)
    aparts = async_twin(parts)
    adeploys = async_twin(deploys)
    amute = async_twin(mute)
    aunmute = async_twin(unmute)
    aresolve = async_twin(resolve)
    aunresolve = async_twin(unresolve)
    aretry = async_twin(retry)


_VERBS = {MarkStatus.OPEN: "reopened", MarkStatus.MUTED: "muted", MarkStatus.RESOLVED: "resolved"}


def error_groups(
    store: Store,
    at: datetime,
    window: timedelta,
    *,
    tenant: str,
    fingerprint: str | None = None,
    task: str | None = None,
    limit: int = 100,
) -> list[ErrorGroup]:
    """Return the groups with failures within the window, with their statuses and trends."""
    rows = store.failure_groups(
        window, tenant=tenant, fingerprint=fingerprint, task=task, limit=limit, now=at
    )
    if not rows:
        return []
    trends = store.failure_series(
        window, STEPS, tenant=tenant, fingerprints=[row.fingerprint for row in rows], now=at
    )
    marks = marks_of(store.error_marks(tenant=tenant), tenant)
    deployed_at = next((deploy.deployed_at for deploy in store.deploys(limit=1)), None)
    return [_group(row, marks.get(row.fingerprint), deployed_at, trends[row.fingerprint]) for row in rows]


def _group(
    row: FailureGroup, mark: ErrorMark | None, deployed_at: datetime | None, trend: Sequence[int]
) -> ErrorGroup:
    return ErrorGroup(
        fingerprint=row.fingerprint,
        type=row.type,
        place=row.place,
        message=row.message,
        task=row.task,
        jobs=row.jobs,
        tasks=row.tasks,
        tenants=row.tenants,
        first_at=row.first_at,
        last_at=row.last_at,
        status=status_of(mark, row.last_at),
        is_new=is_new(row.first_at, deployed_at),
        regressed_since_deploy=is_regressed_since(mark, row.last_at, deployed_at),
        marked_at=None if mark is None else mark.at,
        marked_by=None if mark is None else mark.by,
        example=row.example,
        trend=tuple(trend),
    )


def read_reach(window: Duration) -> timedelta:
    """Return a window, or raise ``BadFilter``."""
    reach = read_duration("window", window, error=BadFilter, field="window")
    check_reach("window", reach)
    if reach <= timedelta(0):
        raise BadFilter(f"the window is {reach}; give a duration longer than zero", field="window")
    return min(reach, KEPT)


def _statuses(given: str | Sequence[str] | None) -> frozenset[ErrorStatus] | None:
    if given is None:
        return None
    names = [given] if isinstance(given, str) else given
    unknown = sorted(set(names) - set(ErrorStatus))
    if unknown:
        raise BadFilter(
            f"there is no error status {unknown[0]!r}; there are {', '.join(ErrorStatus)}", field="status"
        )
    return frozenset(map(ErrorStatus, names))


def _unknown(fingerprint: str) -> ErrorGroupNotFound:
    return ErrorGroupNotFound(
        f"no job failed with the error {fingerprint[:40]!r} in the last {KEPT.days} days; see tidemill errors list",
        fingerprint=fingerprint,
    )
