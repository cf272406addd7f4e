"""``tidemill doctor``: check an installation and suggest fixes.

It changes nothing, apart from sending a wake-up of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import click
from rich.text import Text

from tidemill.cli import pause_actions
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.doctor_isolation import look_at_isolation
from tidemill.cli.doctor_server import look_at_server
from tidemill.cli.doctor_sqlite import look_at_file
from tidemill.cli.doctor_wire import look_at_wire
from tidemill.cli.retention import archive_of, retention_line
from tidemill.cli.screen import STYLES, age, clean, print_json, put, span, thousands
from tidemill.client.stats.loads import crew_of, is_living, waiting_tasks
from tidemill.domain.archive_totals import LEASE as ARCHIVE
from tidemill.domain.cluster import DUTIES, Worker, duty_of_lease
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Claim
from tidemill.domain.states import JobState
from tidemill.errors import StoreError, TidemillError
from tidemill.stores.base import SchemaStatus

CLOCK_WARN, CLOCK_FAIL = timedelta(seconds=2), timedelta(seconds=30)
ECHO = 3.0
"""Seconds to wait for the doctor's own wake-up."""

MANY = 100
"""Maximum number of orphans and overdue jobs to read."""


class Finding(NamedTuple):
    """Result of one check: ``ok``, ``warn`` or ``fail``, and a text that says what to do."""

    status: str
    check: str
    text: str
    store: str | None = None  #: the store that was checked, if the app has several

    def document(self) -> dict[str, str]:
        """Return the finding as JSON data."""
        return {name: value for name, value in self._asdict().items() if value is not None}


Findings = Iterator[Finding]
Check = Callable[[CommandContext], Findings]


@click.command()
@with_context
def doctor(context: CommandContext) -> None:
    """Check the installation and suggest fixes.

    The exit code is 1 if a check fails.
    """
    findings: list[Finding] = []
    for finding in _examined(context):
        findings.append(finding)
        if not context.as_json:
            _print(finding)
    failed = sum(finding.status == "fail" for finding in findings)
    warned = sum(finding.status == "warn" for finding in findings)
    if context.as_json:
        print_json({"ok": not failed, "checks": [finding.document() for finding in findings]})
    else:
        click.echo(f"{len(findings) - failed - warned} ok, {warned} warn, {failed} fail")
    if failed:
        click.get_current_context().exit(1)


def _print(finding: Finding) -> None:
    check = finding.check if finding.store is None else f"{finding.store}: {finding.check}"
    line = Text.assemble(
        (f"{finding.status:<4}", STYLES[finding.status]), f"  {check}: ", clean(finding.text)
    )
    put(line, hang=6)


def _examined(context: CommandContext) -> Findings:
    if context.app:
        yield from _app(context)
    if not context.app or context.opened:
        live = context.client.placement.live
        for name, one in context.each_store(archives=True):
            checks = CHECKS if name is None or name in live else ()
            yield from (finding._replace(store=name) for finding in _store(one, checks))
    yield from (Finding(*finding) for finding in look_at_wire())


def _app(context: CommandContext) -> Findings:
    try:
        number = len(context.registry)
    except TidemillError as error:
        yield Finding("fail", "app", error.message)
        if context.url:
            # The store can be checked without the app.
            context.app = None
        return
    if number:
        yield Finding("ok", "app", f"{context.app} declares {number} task{'' if number == 1 else 's'}")
    else:
        yield Finding("warn", "app", f"{context.app} declares no task; import the modules that declare them")
    yield from (Finding(*finding) for finding in look_at_isolation(context.registry))


def _store(context: CommandContext, checks: Sequence[Check]) -> Findings:
    try:
        state = context.store.schema()
        where = context.store.url
    except TidemillError as error:
        yield Finding("fail", "store", error.message)
        return
    yield Finding("ok", "store", f"{where} answers")
    if where.startswith("sqlite"):
        yield from (Finding(*finding) for finding in look_at_file(where))
    if state.pending and not where.startswith("sqlite"):
        names = ", ".join(state.pending)
        yield Finding(
            "fail",
            "schema",
            f"version {state.version} of {state.wanted}, {names} pending; run tidemill db migrate",
        )
        return
    try:
        context.store.check()
    except TidemillError as error:
        yield Finding("fail", "schema", error.message)
        return
    yield Finding("ok", "schema", _schema_words(context.store.schema()))
    for check in checks:
        try:
            yield from check(context)
        except StoreError as error:
            yield Finding("fail", check.__name__.strip("_").replace("_", " "), error.message)


def _schema_words(state: SchemaStatus) -> str:
    served = "" if state.serves == state.version else f", serves code from version {state.serves} on"
    if state.version > state.wanted:
        return (
            f"version {state.version}{served}; this older code needs version {state.wanted} and works with it"
        )
    return f"version {state.version}{served}"


# Checks that need a working store --------------------------------------------------------------------------------------


def _clock(context: CommandContext) -> Findings:
    if not context.store.url.startswith("postgres"):
        return  # The store uses this machine's clock.
    before = context.client.clock.now()
    theirs = context.now()
    after = context.client.clock.now()
    apart = abs(theirs - (before + (after - before) / 2))
    # Subtract the uncertainty due to the duration of the query.
    apart = max(apart - (after - before) / 2, timedelta(0))
    if apart > CLOCK_FAIL:
        yield Finding(
            "fail", "clock", f"this machine's clock is {span(apart)} off the database's; set up NTP"
        )
    elif apart > CLOCK_WARN:
        yield Finding("warn", "clock", f"this machine's clock is {span(apart)} off the database's; check NTP")
    else:
        yield Finding("ok", "clock", f"within {span(CLOCK_WARN)} of the database's")


def _wake_ups(context: CommandContext) -> Findings:
    if not context.store.url.startswith(("postgres", "sqlite")):
        return
    bus = context.store.bus()
    if bus is not None and bus.error is not None:
        text = f"{bus.url} does not answer: {bus.error}; until it does, workers poll, so jobs start later"
        yield Finding("warn", "wake-ups", text)
        return
    topic = f"doctor:{uuid.uuid4().hex[:8]}"
    listener = context.store.listen()
    try:
        if bus is not None:
            listener.wait(ECHO)  # until it is subscribed
        began = context.client.clock.monotonic()
        context.store.notify([topic])
        while (left := began + ECHO - context.client.clock.monotonic()) > 0:
            if topic in listener.wait(left):
                took = timedelta(seconds=context.client.clock.monotonic() - began)
                through = "" if bus is None else f" through {bus.server} at {bus.url}"
                yield Finding("ok", "wake-ups", f"received after {span(took)}{through}")
                return
    finally:
        listener.close()
    told = "workers poll instead, so jobs start later"
    if context.store.url.startswith("postgres"):
        told += "; connect past PgBouncer's transaction mode, or remove notify=0 from the URL"
    yield Finding("warn", "wake-ups", f"not received within {ECHO:g} seconds: {told}")


def _workers(context: CommandContext) -> Findings:
    now = context.now()
    crew = crew_of(context.store.workers(), now)
    pending = context.store.count(JobFilter(ALL_TENANTS, states=frozenset({JobState.PENDING})))
    waiting = sum(pending.values())
    living = crew.alive + crew.late
    if not living and waiting:
        text = (
            f"none is alive and {_pending(waiting)}; start one: tidemill worker module:app{_option(context)}"
        )
        yield Finding("fail", "workers", text)
    elif not living:
        start = f"tidemill worker module:app{_option(context)}"
        yield Finding("warn", "workers", f"none is alive; start one: {start}")
    elif crew.late:
        yield Finding(
            "warn",
            "workers",
            f"{crew.late} of {living} send heartbeats late; check their load and the store's",
        )
    elif crew.draining == living:
        yield Finding("warn", "workers", "all of them are draining and claim nothing more; start new ones")
    else:
        yield Finding("ok", "workers", f"{crew.alive} alive, {_pending(waiting)}")


def _option(context: CommandContext) -> str:
    return "" if context.store_name is None else f" --stores {context.store_name}"


def _pending(number: int) -> str:
    return "1 job is pending" if number == 1 else f"{thousands(number)} jobs are pending"


def _orphans(context: CommandContext) -> Findings:
    claims = context.store.orphans(MANY)
    if not claims:
        yield Finding("ok", "orphans", "no job is held by a worker that is gone")
        return
    living = any(is_living(worker, context.now()) for worker in context.store.workers())
    then = "living workers reclaim them within seconds" if living else "start a worker to reclaim them"
    yield Finding("warn", "orphans", f"{_many(claims)} held by workers that are gone; {then}")


def _overdue(context: CommandContext) -> Findings:
    claims = context.store.overdue(MANY)
    if not claims:
        yield Finding("ok", "overdue", "no job is past its timeout")
        return
    ids = ", ".join(str(claim.id) for claim in claims[:3])
    yield Finding(
        "warn", "overdue", f"{_many(claims)} past the timeout ({ids}); tidemill jobs show prints where"
    )


def _many(claims: list[Claim]) -> str:
    more = "at least " if len(claims) == MANY else ""
    return f"{more}{len(claims)} job{' is' if len(claims) == 1 else 's are'}"


def _pauses(context: CommandContext) -> Findings:
    now = context.now()
    pauses = context.store.pauses()
    if not pauses:
        yield Finding("ok", "pauses", "nothing is paused")
    for pause in pauses:
        by = f" by {pause.paused_by}" if pause.paused_by else ""
        why = f" ({pause.reason})" if pause.reason else ""
        when = f"{by} {age(pause.paused_at, now)}{why}"
        yield Finding(
            "warn", "pauses", f"{pause_actions.what(pause)} was paused{when}; {pause_actions.way_back(pause)}"
        )


def _unknown_tasks(context: CommandContext) -> Findings:
    living = _living(context.store.workers(), context.now())
    waiting = waiting_tasks(context.store)
    if not living or any(not worker.tasks for worker in living):
        # Either no worker is alive, which is reported elsewhere, or one of them accepts all tasks.
        return
    tasks = {name for worker in living for name in worker.tasks}
    unknown = sorted(set(waiting) - tasks)
    if not unknown:
        yield Finding("ok", "tasks", "living workers know every task that waits")
    for name in unknown:
        text = f"no living worker knows task {name}, of which {_pending(waiting[name])}; deploy it, or cancel what waits"
        yield Finding("warn", "tasks", text)


def _leases(context: CommandContext) -> Findings:
    now = context.now()
    if not _living(context.store.workers(), now):
        return
    leases = context.store.leases()
    per_duty = [lease for lease in leases if duty_of_lease(lease.name) is not None]
    # The workers use one lease for all duties or one for each; the other kind may be left from before.
    one = [lease for lease in leases if lease.name == DUTIES]
    unused = per_duty if any(lease.held(now) for lease in one) else []
    unused = one if any(lease.held(now) for lease in per_duty) else unused
    for lease in leases:
        # The lease of the archive is held only during a run.
        if lease.name == ARCHIVE or lease.is_of_app or lease in unused:
            continue
        if lease.holder is not None and lease.expires_at is not None and lease.expires_at <= now:
            ago = f"{span(now - lease.expires_at)} ago"
            text = f"lease {lease.name} ran out {ago} and no worker took it over; check the workers' logs"
            yield Finding("warn", "leases", text)


def _retention(context: CommandContext) -> Findings:
    if context.store.url.startswith("memory"):
        return  # Workers of a memory store delete ended jobs.
    status, now = archive_of(context).status(), context.now()
    line = retention_line(status, now)
    oldest = (
        ""
        if status.oldest_ended_at is None
        else f"; the oldest ended job ended {age(status.oldest_ended_at, now)}"
    )
    mismatched = [policy.name for policy in status.policies if policy.mismatch_at is not None]
    if mismatched:
        text = f"copies of policy {', '.join(mismatched)} differ from what was written; check the store of the archive"
        yield Finding("fail", "retention", text)
    if not status.enabled:
        text = f"off{oldest}; ended jobs stay until tidemill archive run; turn it on: tidemill archive settings --on"
        yield Finding("warn", "retention", text)
    elif status.overdue:
        late = ", ".join(policy.name for policy in status.policies if policy.overdue_since is not None)
        text = f"{line}{oldest}; jobs of policy {late} are overdue; check that a worker runs, or raise pace in App(retention=…)"
        yield Finding("warn", "retention", text)
    else:
        yield Finding("ok", "retention", f"{line}{oldest}")


def _audit(context: CommandContext) -> Findings:
    gaps = context.store.audit_gaps()
    if gaps:
        text = (
            f"the triggers that keep the audit log append-only are missing or changed: {', '.join(gaps)};"
            " someone may have altered the log: compare tidemill audit verify --expect-head with a head kept elsewhere,"
            " then restore the triggers from tidemill db sql"
        )
        yield Finding("fail", "audit", text)
    else:
        yield Finding("ok", "audit", "the database refuses to change or remove entries")


def _living(workers: Iterable[Worker], now: datetime) -> list[Worker]:
    return [worker for worker in workers if is_living(worker, now)]


def _server(context: CommandContext) -> Findings:
    yield from (Finding(*finding) for finding in look_at_server(context.store, context.now()))


CHECKS: tuple[Check, ...] = (
    _clock,
    _server,
    _wake_ups,
    _workers,
    _leases,
    _orphans,
    _overdue,
    _pauses,
    _unknown_tasks,
    _retention,
    _audit,
)
