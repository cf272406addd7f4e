"""``tidemill jobs`` verbs that change jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tidemill.cli.completion import job_ids, queue_names
from tidemill.cli.context import CommandContext, ask_first, with_context
from tidemill.cli.filters import Where, filtered
from tidemill.cli.job_views import one
from tidemill.cli.known_names import refuse_similar
from tidemill.cli.parsers import duration, instant
from tidemill.cli.screen import clean, console, print_json, print_lines, thousands
from tidemill.client.jobs.actions import BATCH
from tidemill.client.jobs.api import Acted
from tidemill.client.jobs.handle import Job
from tidemill.domain.decide import Action, expected
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import CHANGEABLE
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.errors import BadFilter, JobError, JobNotFound

_PAST = {"cancel": "cancelled", "retry": "retried", "delete": "deleted", "change": "changed"}

One = Callable[[Job[object]], object]
Many = Callable[..., Acted]


def _yes(command: Callable[..., None]) -> Callable[..., None]:
    return click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")(command)


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=job_ids)
@click.option("--reason", metavar="TEXT", help="Reason, stored with the job.")
@click.option(
    "--children", is_flag=True, help="Also cancel the jobs that these enqueued, recursively; only with ids."
)
@filtered
@_yes
@with_context
def cancel(
    context: CommandContext, ids: tuple[str, ...], reason: str | None, children: bool, where: Where, yes: bool
) -> None:
    """Cancel jobs, by id or by filter.

    Waiting jobs end at once. Running jobs are asked to stop.
    """
    allowed = expected(Action.CANCEL) | HELD
    if children and not ids:
        raise click.UsageError("--children needs the ids of jobs")

    def cancel_one(job: Job[object]) -> object:
        return job.cancel(reason, children=children)

    def many(**conditions: Any) -> Acted:
        return context.jobs.cancel(reason=reason, **conditions)

    _decide(context, "cancel", ids, where, allowed, cancel_one, many, yes=yes)


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=job_ids)
@filtered
@_yes
@with_context
def retry(context: CommandContext, ids: tuple[str, ...], where: Where, yes: bool) -> None:
    """Retry jobs that ended without success, by id or by filter.

    The attempts start from zero again.
    """
    _decide(context, "retry", ids, where, expected(Action.RETRY), Job.retry, context.jobs.retry, yes=yes)


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=job_ids)
@filtered
@_yes
@with_context
def delete(context: CommandContext, ids: tuple[str, ...], where: Where, yes: bool) -> None:
    """Delete ended jobs with their logs, by id or by filter."""
    _decide(context, "delete", ids, where, ENDED, Job.delete, context.jobs.delete, yes=yes)


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=job_ids)
@click.option("--priority", type=click.IntRange(-100, 100), help="The new priority; higher runs first.")
@click.option("--to-queue", metavar="NAME", shell_complete=queue_names, help="The new queue.")
@click.option("--new", is_flag=True, help="Allow a new queue with a similar name.")
@filtered
@_yes
@with_context
def change(
    context: CommandContext,
    ids: tuple[str, ...],
    priority: int | None,
    to_queue: str | None,
    new: bool,
    where: Where,
    yes: bool,
) -> None:
    """Change priority or queue of waiting jobs, by id or by filter."""
    if priority is None and to_queue is None:
        raise click.UsageError(
            "give the new priority with --priority, the new queue with --to-queue, or both"
        )
    if ids and where.has("queue"):
        raise BadFilter("change takes ids or a filter, and --queue is a filter; the new queue is --to-queue")
    if to_queue is not None and not new:
        refuse_similar(context, to_queue)

    def change_one(job: Job[object]) -> object:
        return job.change(priority=priority, queue=to_queue)

    def many(**conditions: Any) -> Acted:
        return context.jobs.change(priority=priority, to_queue=to_queue, **conditions)

    _decide(context, "change", ids, where, CHANGEABLE, change_one, many, yes=yes)


@click.command("run-now")
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=job_ids)
@with_context
def run_now(context: CommandContext, ids: tuple[str, ...]) -> None:
    """Run scheduled jobs and pending retries now."""
    _each(context, "run now", ids, Job.run_now)


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=job_ids)
@click.option("--at", type=instant, metavar="INSTANT", help="New time, such as 2026-03-01T06:00Z.")
@click.option("--in", "delay", type=duration, metavar="DURATION", help="New time from now, such as 30m.")
@with_context
def reschedule(
    context: CommandContext, ids: tuple[str, ...], at: datetime | None, delay: timedelta | None
) -> None:
    """Change the time of jobs that have not started."""
    when = at if at is not None else delay
    if when is None or (at is not None and delay is not None):
        raise click.UsageError("give the new time with --at or with --in")
    _each(context, "reschedule", ids, lambda job: job.reschedule(when))


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=job_ids)
@with_context
def rerun(context: CommandContext, ids: tuple[str, ...]) -> None:
    """Run jobs under review again, with all their attempts."""
    _each(context, "rerun", ids, Job.rerun)


@click.command()
@click.argument("id", shell_complete=job_ids)
@click.option("--comment", metavar="TEXT", help="Comment, stored with the job.")
@with_context
def approve(context: CommandContext, id: str, comment: str | None) -> None:
    """Complete a job under review."""
    _each(context, "approve", (id,), lambda job: job.approve(comment))


@click.command()
@click.argument("id", shell_complete=job_ids)
@click.option("--comment", metavar="TEXT", help="Comment, stored with the job.")
@with_context
def reject(context: CommandContext, id: str, comment: str | None) -> None:
    """Fail a job under review."""
    _each(context, "reject", (id,), lambda job: job.reject(comment))


def _decide(
    context: CommandContext,
    verb: str,
    ids: tuple[str, ...],
    where: Where,
    allowed: frozenset[JobState],
    act: One,
    many: Many,
    *,
    yes: bool,
) -> None:
    if ids and where.narrows:
        raise BadFilter(f"{verb} takes ids or a filter, not both; leave out the one or the other")
    if ids:
        _each(context, verb, ids, act)
    elif where.narrows:
        _matching(context, verb, where, allowed, many, yes=yes)
    else:
        raise BadFilter(f"say which jobs to {verb}: ids, or a filter such as --status or --task")


def _each(context: CommandContext, verb: str, ids: tuple[str, ...], act: One) -> None:
    """Act on each of these jobs; continue if one of them refuses."""
    done: list[dict[str, object]] = []
    refused: list[dict[str, object]] = []
    resolved: dict[UUID, str] = {}
    # Refuse malformed and ambiguous ids before anything is changed.
    for id in ids:
        try:
            resolved.setdefault(context.find(id)[0], id)
        except JobNotFound as error:
            refused.append({"id": id, "code": error.code, "message": error.message})
    for full, id in resolved.items():
        try:
            job = one(context, str(full))
            act(job)
        except JobError as error:
            refused.append({"id": id, "code": error.code, "message": error.message})
            continue
        now = "deleted" if verb == "delete" else job.status.value
        done.append({"id": str(job.id), "status": now})
        outcome = "asked to stop" if verb == "cancel" and not job.ended else now
        if not context.as_json:
            print_lines([(f"{job.id} {outcome}", "")])
    if context.as_json:
        print_json({"done": done, "refused": refused})
    else:
        for refusal in refused:
            click.echo(f"tidemill: {clean(refusal['message'])}", err=True)
    if refused:
        click.get_current_context().exit(1)


def _matching(
    context: CommandContext, verb: str, where: Where, allowed: frozenset[JobState], many: Many, *, yes: bool
) -> None:
    """Act on all matching jobs, in batches and oldest first. Jobs created after the start are not affected."""
    where.check_names(context)
    conditions = where.of(context)
    wanted = frozenset(JobState(name) for name in conditions.pop("status", ()))
    states = (wanted & allowed) if wanted else allowed
    began_at = context.now()
    conditions["created_before"] = min(conditions.get("created_before", began_at), began_at)
    counts = context.jobs.counts(status=states, **conditions) if states else {}
    total = sum(counts.values())
    if total and not yes:
        told = ", ".join(f"{thousands(number)} {state}" for state, number in sorted(counts.items()))
        plural = "job" if total == 1 else "jobs"
        ask_first(f"{verb} {thousands(total)} {plural} ({told})?")
    asked_for = {**conditions, "status": states}
    done = seen = 0
    cursor: str | None = None
    with _bar(total, hidden=context.as_json) as bar:
        task = bar.add_task(verb, total=total)
        while total:
            page = context.jobs.list(limit=BATCH, cursor=cursor, sort="oldest", status=states, **conditions)
            if page.items:
                acted = many(ids=[job.id for job in page.items], tenant=ALL_TENANTS, asked=asked_for)
                done, seen = done + acted.done, seen + len(page.items)
                bar.update(task, completed=seen, total=max(total, seen))
            if page.next is None:
                break
            cursor = page.next
    if context.as_json:
        print_json({"done": done, "skipped": seen - done})
        return
    words = {
        "cancel": "cancelled or asked to stop", "retry": "retried", "delete": "deleted", "change": "changed",
    }  # fmt: skip
    skipped = f"; {thousands(seen - done)} had changed by then" if seen > done else ""
    if not seen:
        skipped = f": {_reason_for_none(verb, wanted, allowed)}"
    print_lines([(f"{thousands(done)} {words[verb]}{skipped}", "")])


def _reason_for_none(verb: str, wanted: frozenset[JobState], allowed: frozenset[JobState]) -> str:
    """Explain why a filter left no job to act on."""
    possible = ", ".join(state for state in JobState if state in allowed)
    if wanted and not wanted & allowed:
        names = " and ".join(state for state in JobState if state in wanted)
        return f"{names} jobs cannot be {_PAST[verb]}; the filter can match {possible}"
    return f"no job matches the filter in a status that allows it ({possible})"


def _bar(total: int, *, hidden: bool) -> Progress:
    screen = console(err=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=screen,
        transient=True,
        disable=hidden or not screen.is_terminal or total <= BATCH,
    )
