"""``tidemill leases``: list leases and duties, and release a lease."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from tidemill.cli.completion import lease_names
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.parsers import read_instant
from tidemill.cli.screen import Column, age, heading, print_json, print_lines, print_table, span, thousands
from tidemill.client.documents import current_duties, lease_document
from tidemill.domain.cluster import Lease, Worker, holder_of
from tidemill.errors import LeaseNotFound
from tidemill.stores.lock_server import leases_and_locks


@click.group(cls=InOrder)
def leases() -> None:
    """Inspect and release leases."""


@leases.command("list")
@with_context
def list_leases(context: CommandContext) -> None:
    """List leases with their holders and duties."""
    now = context.now()
    leases, workers = leases_and_locks(context.store), context.store.workers()
    if context.as_json:
        print_json([lease_document(lease, now, workers) for lease in leases])
        return
    columns = (
        Column("lease"), Column("holder", flexible=True), Column("health"), Column("term", right=True), Column("held", right=True),
        Column("beat", optional=True, right=True), Column("expires", right=True),
    )  # fmt: skip
    rows = []
    for lease in leases:
        held = lease.held(now)
        rows.append(
            [
                lease.name,
                _holder(lease, workers, now),
                lease.health(now),
                lease.term,
                span(now - lease.acquired_at) if held and lease.acquired_at is not None else None,
                None if lease.beat_at is None else age(lease.beat_at, now),
                None if lease.expires_at is None else age(lease.expires_at, now),
            ]
        )
    print_table(columns, rows, empty="no leases: no worker uses one")
    duties = [
        _duty(lease.name, name, state, now)
        for lease in leases
        for name, state in current_duties(lease, now).items()
    ]
    if duties:
        heading("Duties")
        duty_columns = (
            Column("lease", optional=True), Column("duty"), Column("last tick", right=True), Column("items", right=True),
            Column("errors", right=True), Column("took", right=True), Column("last error", flexible=True, optional=True),
        )  # fmt: skip
        print_table(duty_columns, duties, empty="")


def _holder(lease: Lease, workers: list[Worker], now: datetime) -> str:
    if lease.unused_by is not None:
        return f"not used (coordination: {lease.unused_by})"
    holder = holder_of(lease, workers)
    if holder is None:
        return "free"
    names = [worker.name for worker in workers if worker.id in holder.workers]
    name = holder.name or str(lease.holder)
    if names and names != [name]:
        name = f"{name} (supervises {', '.join(sorted(names))})"
    return name if lease.held(now) else f"{name} (expired)"


def _duty(lease: str, name: str, state: Any, now: datetime) -> list[object]:
    ticked = read_instant(str(state.get("last_tick") or ""))
    took = state.get("took_ms")
    return [
        lease,
        name,
        None if ticked is None else age(ticked, now),
        _number(state.get("items")),
        _number(state.get("errors")),
        f"{took:.0f}ms" if isinstance(took, int | float) else None,
        state.get("last_error"),
    ]


def _number(value: object) -> str | None:
    return thousands(value) if isinstance(value, int) else None


@leases.command()
@click.argument("name", shell_complete=lease_names)
@with_context
def release(context: CommandContext, name: str) -> None:
    """Release a lease so that another worker can take it.

    The holder notices with its next heartbeat.
    """
    held = next((lease for lease in leases_and_locks(context.store) if lease.name == name), None)
    if held is None:
        raise LeaseNotFound(f"there is no lease {name!r}; see tidemill leases list", name=name)
    if held.holder is None:
        text, released = f"lease {name} was free already", False
    else:
        released = context.control.release(name)
        term = f"; its term was {held.term}" if held.term else ""
        text = f"lease {name} is free{term}"
    if context.as_json:
        print_json({"name": name, "released": released, "term": held.term})
    else:
        print_lines([(text, "")])
