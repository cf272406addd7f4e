"""Bulk actions on jobs: confirmation first, then execution in batches.

The form sends the ids of selected rows, or the conditions in the address for all matching jobs. Jobs that are created
after the confirmation page was shown are not affected.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from starlette.responses import Response

from tidemill.client.jobs.actions import BATCH, check_change
from tidemill.client.jobs.api import Acted
from tidemill.dashboard import job_filter
from tidemill.dashboard.form_state import FormError, read_reason, refuse_to_look
from tidemill.dashboard.job_actions import in_a_sentence, read_change
from tidemill.dashboard.job_filter import FilterInput, in_words
from tidemill.dashboard.jobs_undo import before
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.decide import Action, expected
from tidemill.domain.job import CHANGEABLE
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.errors import UsageError
from tidemill.web.problems import Problem
from tidemill.web.text_parsers import read_coming, read_span

pages = PageRoutes()

EXACT = 10_000
"""Jobs are counted up to this number; the page shows larger counts as "more than"."""

PART = 2_000
"""Maximum number of jobs per request."""

SECONDS = 4.0
"""Maximum number of seconds per request."""

LOOKS = 3


class BulkAction(NamedTuple):
    """A bulk action: the states it applies to, the role it needs, and its texts."""

    name: str
    states: frozenset[JobState]
    role: Role
    done: str
    words: str


ACTS = {
    act.name: act
    for act in (
        BulkAction("retry", expected(Action.RETRY), Role.OPERATOR, "retried",
            "They start over with all their attempts; their results and errors are discarded."),
        BulkAction("run-now", expected(Action.RUN_NOW), Role.OPERATOR, "made due now",
            "They start as soon as a worker is free, instead of at their time."),
        BulkAction("reschedule", expected(Action.RESCHEDULE), Role.OPERATOR, "rescheduled",
            "They wait until the new time."),
        BulkAction("cancel", expected(Action.CANCEL) | HELD, Role.OPERATOR, "cancelled or asked to stop",
            "Jobs that are not running end immediately; running jobs are asked to stop."),
        BulkAction("change", CHANGEABLE, Role.OPERATOR, "changed",
            "They keep their place among jobs of the same priority. Enter a queue, a priority, or both."),
        BulkAction("delete", ENDED, Role.ADMIN, "deleted",
            "They are removed with their logs and executions. This cannot be undone."),
    )
}  # fmt: skip


_PERMISSIONS = {"run-now": "retry", "reschedule": "change"}
"""Permissions of actions that are not named after one."""


class Impact(NamedTuple):
    """How many jobs an action affects."""

    counts: dict[JobState, int]
    total: int
    at_least: bool  #: there may be more
    others: int = 0  #: selected jobs in a state that does not allow the action

    @property
    def number(self) -> str:
        """Format the number of jobs as exactly as it is known."""
        if self.total > EXACT:
            return f"more than {EXACT:,}"
        return f"at least {self.total:,}" if self.at_least else f"{self.total:,}"

    @property
    def by_state(self) -> str:
        return in_words(self.counts)


@pages.get("/jobs/bulk", role=Role.OPERATOR)
async def choose(request: PageRequest) -> Response:
    """Show the possible actions for all matching jobs, with the number of jobs."""
    refuse_to_look(request)
    act = _act(request, request.query.get("act") or "retry")
    return await _ask(request, act, _filter_input(request), _ids(request))


@pages.post("/jobs/bulk", role=Role.OPERATOR)
async def bulk(request: PageRequest) -> Response:
    """Ask for confirmation, then perform the action."""
    act = _act(request, request.form.get("act") or "")
    filter_input, ids = _filter_input(request), _ids(request)
    sure = request.form.get("sure") == "1"
    if not ids and request.form.get("scope") != "all":
        return request.back("/jobs", "Select jobs first.", good=False, **filter_input.address)
    if not sure:
        return await _ask(request, act, filter_input, ids)
    try:
        _check(request, act)
    except (FormError, UsageError, ValueError) as error:
        return request.back("/jobs", in_a_sentence(error), good=False, **filter_input.address)
    if ids:
        jobs_before = await request.read(request.inspection.live_jobs, ids, tenant=request.tenant)
        acted: Acted = await request.act(_do, request, act, ids, {"ids": ids})
        return request.back(
            "/jobs",
            _summary(act, acted.done, len(ids) - acted.done),
            undo=before(act.name, jobs_before) if acted.done else None,
            **filter_input.address,
        )
    return await _go_on(request, act, filter_input)


def _check(request: PageRequest, act: BulkAction) -> None:
    """Refuse invalid values of the form before anything is done."""
    match act.name:
        case "change":
            check_change(*read_change(request))
        case "reschedule":
            _coming(request)
        case "retry":
            _spread(request)
        case _:
            pass


def _coming(request: PageRequest) -> datetime:
    return read_coming(request.form.get("at") or "", request.now())


def _spread(request: PageRequest) -> timedelta | None:
    text = request.form.get("spread")
    return None if text is None else read_span(text)


async def _ask(request: PageRequest, act: BulkAction, filter_input: FilterInput, ids: list[UUID]) -> Response:
    """Show the confirmation page with the number of jobs and the consequences."""
    if not ids and not filter_input.narrows:
        raise Problem(422, None, "No jobs are selected: choose a filter on the Jobs page first.")
    return request.render(
        "jobs_bulk.html",
        act=act,
        acts=[action for action in ACTS.values() if request.may(action.role)],
        filter_input=filter_input,
        chips=filter_input.chips(),
        ids=ids,
        impact=await request.read(impact, request, act, filter_input, ids),
        until=request.now().isoformat(),
        so_far=None,
    )


def impact(request: PageRequest, act: BulkAction, filter_input: FilterInput, ids: list[UUID]) -> Impact:
    """Count the jobs that an action would affect, by state and up to a limit."""
    jobs = request.app.jobs
    if ids:
        counts = jobs.counts(ids=ids, status=list(act.states), tenant=request.tenant)
        total = sum(counts.values())
        return Impact(counts, total, False, len(ids) - total)
    where = _narrowed(request, act, filter_input)
    if where is None:
        return Impact({}, 0, False)
    if not filter_input.scans:
        counts = jobs.counts(most=EXACT + 1, **where)
        return Impact(counts, sum(counts.values()), False)
    totals: Counter[JobState] = Counter()
    cursor = None
    for _ in range(LOOKS):
        page = jobs.list(limit=1_000, cursor=cursor, sort="oldest", **where)
        totals.update(job.status for job in page.items)
        cursor = page.next
        if cursor is None:
            break
    return Impact(dict(totals), totals.total(), cursor is not None)


async def _go_on(request: PageRequest, act: BulkAction, filter_input: FilterInput) -> Response:
    """Process one batch; if jobs remain, show a page that asks whether to continue."""
    if not filter_input.narrows:
        raise Problem(422, None, "No jobs are selected: choose a filter on the Jobs page first.")
    where = _narrowed(request, act, filter_input)
    form = request.form
    done, skipped = form.whole_number("done", 0, most=10**12), form.whole_number("skipped", 0, most=10**12)
    cursor, until = form.get("cursor"), _moment(request)
    if where is not None and act.name == "retry" and _spread(request) is not None:
        return await _spread_out(request, act, filter_input, where, until)
    if where is not None:
        where["created_before"] = min(where.get("created_before", until), until)
        seen, clock = 0, request.app.clock
        began = clock.monotonic()
        # Workers start with the oldest jobs, so cancel the newest first.
        sort = "newest" if act.name == "cancel" else "oldest"
        while seen < PART and clock.monotonic() - began < SECONDS:
            page = await request.read(request.app.jobs.list, limit=BATCH, cursor=cursor, sort=sort, **where)
            if page.items:
                acted = await request.act(
                    _do, request, act, [job.id for job in page.items], filter_input.where
                )
                done, skipped = done + acted.done, skipped + len(page.items) - acted.done
                seen += len(page.items)
            cursor = page.next
            if cursor is None:
                break
        else:
            return request.render(
                "jobs_bulk.html",
                act=act,
                acts=[act],
                filter_input=filter_input,
                chips=filter_input.chips(),
                ids=[],
                impact=None,
                until=until.isoformat(),
                so_far={"done": done, "skipped": skipped, "cursor": cursor},
            )
    return request.back("/jobs", _summary(act, done, skipped), **filter_input.address)


async def _spread_out(
    request: PageRequest, act: BulkAction, filter_input: FilterInput, where: dict[str, Any], until: datetime
) -> Response:
    """Retry all jobs in one request, because their number decides the time between two of them."""
    where["created_before"] = min(where.get("created_before", until), until)
    ids: list[UUID] = []
    cursor = None
    while len(ids) < EXACT:
        page = await request.read(request.app.jobs.list, limit=1_000, cursor=cursor, sort="oldest", **where)
        ids += [job.id for job in page.items]
        cursor = page.next
        if cursor is None:
            break
    acted = await request.act(_do, request, act, ids[:EXACT], filter_input.where)
    more = f" Only the first {EXACT:,} jobs; repeat the action for the rest." if cursor else ""
    return request.back("/jobs", _summary(act, acted.done, acted.skipped) + more, **filter_input.address)


def _do(request: PageRequest, act: BulkAction, ids: list[UUID], audited: dict[str, Any]) -> Acted:
    where: dict[str, Any] = {"ids": ids, "tenant": request.tenant, "asked": audited}
    jobs = request.app.jobs
    match act.name:
        case "retry":
            return jobs.retry(spread=_spread(request), **where)
        case "run-now":
            return jobs.run_now(**where)
        case "reschedule":
            return jobs.reschedule(at=_coming(request), **where)
        case "cancel":
            return jobs.cancel(reason=read_reason(request.form), **where)
        case "change":
            queue, priority = read_change(request)
            return jobs.change(priority=priority, to_queue=queue, **where)
        case _:
            return jobs.delete(**where)


def _narrowed(request: PageRequest, act: BulkAction, filter_input: FilterInput) -> dict[str, Any] | None:
    """Restrict the conditions to states that allow the action; return None if there is no such state."""
    wanted = frozenset(filter_input.where.get("status", ()))
    states = (wanted & act.states) if wanted else act.states
    return {**filter_input.where, "status": list(states), "tenant": request.tenant} if states else None


def _summary(act: BulkAction, done: int, skipped: int) -> str:
    jobs = "1 job" if done == 1 else f"{done:,} jobs"
    rest = f" {skipped:,} changed status or do not allow it." if skipped else ""
    return f"{jobs} {act.done}.{rest}"


def _act(request: PageRequest, name: str) -> BulkAction:
    act = ACTS.get(name)
    if act is None:
        raise Problem(422, None, f"unknown action {name[:40]!r}; expected one of {', '.join(ACTS)}")
    request.need(f"jobs.{_PERMISSIONS.get(act.name, act.name)}")
    return act


def _filter_input(request: PageRequest) -> FilterInput:
    filter_input = job_filter.read(request.query, request.now())
    if filter_input.wrong:
        raise Problem(422, None, "; ".join(filter_input.wrong.values()))
    request.check_selection(filter_input.where)
    return filter_input


def _ids(request: PageRequest) -> list[UUID]:
    try:
        only = request.query.get("only")
        return list(dict.fromkeys(UUID(text) for text in ([only] if only else request.form.all("id"))))
    except ValueError:
        raise Problem(422, None, "one of the ids is not a job's id") from None


def _moment(request: PageRequest) -> datetime:
    """Return when the confirmation page was shown, but never a time after now."""
    now = request.now()
    try:
        shown_at = datetime.fromisoformat(request.form.get("until") or "")
    except ValueError:
        return now
    return min(shown_at, now) if shown_at.tzinfo is not None else now
