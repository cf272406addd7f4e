"""``tidemill jobs cancel``, ``retry``, ``delete``, ``approve`` and ``reject``: a person decides about jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tidemill.cli.desk import Desk, ask_first, at_desk
from tidemill.cli.filters import Where, filtered
from tidemill.cli.jobs_read import one
from tidemill.cli.screen import clean, console, print_json, print_lines, thousands
from tidemill.client.handle import Job
from tidemill.client.jobs import BATCH, Acted
from tidemill.client.options import id_of
from tidemill.domain.decide import Action, expected
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.errors import BadFilter, JobError

One = Callable[[Job[object]], object]
Many = Callable[..., Acted]


def _yes(command: Callable[..., None]) -> Callable[..., None]:
    return click.option("--yes", "-y", is_flag=True, help="Do not ask first.")(command)


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--reason", metavar="TEXT", help="Why; it is kept with the job.")
@filtered
@_yes
@at_desk
def cancel(desk: Desk, ids: tuple[str, ...], reason: str | None, where: Where, yes: bool) -> None:
    """Cancel jobs, by id or by filter: those nobody holds end, running ones are asked to stop."""
    allowed = expected(Action.CANCEL) | HELD

    def each(job: Job[object]) -> object:
        return job.cancel(reason)

    def many(**conditions: Any) -> Acted:
        return desk.jobs.cancel(reason=reason, **conditions)

    _decide(desk, "cancel", ids, where, allowed, each, many, yes=yes)


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filtered
@_yes
@at_desk
def retry(desk: Desk, ids: tuple[str, ...], where: Where, yes: bool) -> None:
    """Give ended jobs another chain of attempts, by id or by filter."""
    _decide(desk, "retry", ids, where, expected(Action.RETRY), Job.retry, desk.jobs.retry, yes=yes)


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filtered
@_yes
@at_desk
def delete(desk: Desk, ids: tuple[str, ...], where: Where, yes: bool) -> None:
    """Remove ended jobs with all that was written about them, by id or by filter."""
    _decide(desk, "delete", ids, where, ENDED, Job.delete, desk.jobs.delete, yes=yes)


@click.command()
@click.argument("id")
@click.option("--comment", metavar="TEXT", help="It is kept with the job.")
@at_desk
def approve(desk: Desk, id: str, comment: str | None) -> None:
    """Complete a job that waits for a person's decision."""
    _each(desk, "approve", (id,), lambda job: job.approve(comment))


@click.command()
@click.argument("id")
@click.option("--comment", metavar="TEXT", help="It is kept with the job.")
@at_desk
def reject(desk: Desk, id: str, comment: str | None) -> None:
    """Fail a job that waits for a person's decision."""
    _each(desk, "reject", (id,), lambda job: job.reject(comment))


def _decide(
    desk: Desk,
    verb: str,
    ids: tuple[str, ...],
    where: Where,
    allowed: frozenset[JobState],
    each: One,
    many: Many,
    *,
    yes: bool,
) -> None:
    if ids and where.narrows:
        raise BadFilter(f"{verb} takes ids or a filter, not both")
    if ids:
        _each(desk, verb, ids, each)
    elif where.narrows:
        _matching(desk, verb, where, allowed, many, yes=yes)
    else:
        raise BadFilter(f"say which jobs to {verb}: ids, or a filter such as --status or --task")


def _each(desk: Desk, verb: str, ids: tuple[str, ...], act: One) -> None:
    """Do it to each of these; one that cannot be does not keep the others from it."""
    done: list[dict[str, object]] = []
    refused: list[dict[str, object]] = []
    for id in ids:
        id_of(id)  # what is no id at all is refused before anything is done
    for id in dict.fromkeys(ids):
        try:
            job = one(desk, id)
            act(job)
        except JobError as error:
            refused.append({"id": id, "code": error.code, "message": error.message})
            continue
        now = "deleted" if verb == "delete" else job.status.value
        done.append({"id": str(job.id), "status": now})
        asked = "asked to stop" if verb == "cancel" and not job.ended else now
        if not desk.as_json:
            print_lines([(f"{job.id} {asked}", "")])
    if desk.as_json:
        print_json({"done": done, "refused": refused})
    else:
        for refusal in refused:
            click.echo(f"tidemill: {clean(refusal['message'])}", err=True)
    if refused:
        click.get_current_context().exit(1)


def _matching(
    desk: Desk, verb: str, where: Where, allowed: frozenset[JobState], many: Many, *, yes: bool
) -> None:
    """Do it to all that match, page by page, in the order they were created; what comes later is not meant."""
    conditions = where.of(desk)
    asked = frozenset(JobState(name) for name in conditions.pop("status", ()))
    states = (asked & allowed) if asked else allowed
    began_at = desk.now()
    conditions["created_before"] = min(conditions.get("created_before", began_at), began_at)
    counts = desk.jobs.counts(status=states, **conditions) if states else {}
    total = sum(counts.values())
    if total and not yes:
        told = ", ".join(f"{thousands(number)} {state}" for state, number in sorted(counts.items()))
        plural = "job" if total == 1 else "jobs"
        ask_first(f"{verb} {thousands(total)} {plural} ({told})?")
    asked_for = {**conditions, "status": states}
    done = seen = 0
    cursor: str | None = None
    with _bar(total, hidden=desk.as_json) as bar:
        task = bar.add_task(verb, total=total)
        while total:
            page = desk.jobs.list(limit=BATCH, cursor=cursor, sort="oldest", status=states, **conditions)
            if page.items:
                acted = many(ids=[job.id for job in page.items], tenant=ALL_TENANTS, asked=asked_for)
                done, seen = done + acted.done, seen + len(page.items)
                bar.update(task, completed=seen, total=max(total, seen))
            if page.next is None:
                break
            cursor = page.next
    if desk.as_json:
        print_json({"done": done, "skipped": seen - done})
        return
    skipped = f"; {thousands(seen - done)} had moved on" if seen > done else ""
    words = {"cancel": "cancelled or asked to stop", "retry": "retried", "delete": "deleted"}
    print_lines([(f"{thousands(done)} {words[verb]}{skipped}", "")])


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
