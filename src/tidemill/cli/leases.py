"""``tidemill leases``: who does the duties, how they go, and having somebody else do them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from tidemill.cli.desk import Desk, at_desk
from tidemill.cli.reading import read_instant
from tidemill.cli.screen import Column, age, heading, print_json, print_lines, print_table, span, thousands
from tidemill.client.documents import duties_of, lease_document
from tidemill.errors import LeaseNotFound


@click.group()
def leases() -> None:
    """Who does the duties."""


@leases.command("list")
@at_desk
def list_leases(desk: Desk) -> None:
    """Every lease with its holder, and the duties done under it."""
    now = desk.now()
    found = desk.store.leases()
    if desk.as_json:
        print_json([lease_document(lease, now) for lease in found])
        return
    names = {worker.id: worker.name for worker in desk.store.workers()}
    columns = (
        Column("lease"), Column("holder", flexible=True), Column("term", right=True), Column("held", right=True),
        Column("beat", optional=True, right=True), Column("expires", right=True),
    )  # fmt: skip
    rows = []
    for lease in found:
        free = lease.holder is None or lease.expires_at is None or lease.expires_at <= now
        holder = "free" if lease.holder is None else names.get(lease.holder) or str(lease.holder)
        rows.append(
            [
                lease.name,
                f"{holder} (ran out)" if free and lease.holder is not None else holder,
                lease.term,
                None if free or lease.acquired_at is None else span(now - lease.acquired_at),
                None if lease.beat_at is None else age(lease.beat_at, now),
                None if lease.expires_at is None else age(lease.expires_at, now),
            ]
        )
    print_table(columns, rows, empty="no leases: nobody does duties under one")
    duties = [
        _duty(lease.name, name, facts, now) for lease in found for name, facts in duties_of(lease).items()
    ]
    if duties:
        heading("Duties")
        duty_columns = (
            Column("lease", optional=True), Column("duty"), Column("last tick", right=True), Column("items", right=True),
            Column("errors", right=True), Column("took", right=True), Column("last error", flexible=True, optional=True),
        )  # fmt: skip
        print_table(duty_columns, duties, empty="")


def _duty(lease: str, name: str, facts: Any, now: datetime) -> list[object]:
    ticked = read_instant(str(facts.get("last_tick") or ""))
    took = facts.get("took_ms")
    return [
        lease,
        name,
        None if ticked is None else age(ticked, now),
        _number(facts.get("items")),
        _number(facts.get("errors")),
        f"{took:.0f}ms" if isinstance(took, int | float) else None,
        facts.get("last_error"),
    ]


def _number(value: object) -> str | None:
    return thousands(value) if isinstance(value, int) else None


@leases.command()
@click.argument("name")
@at_desk
def release(desk: Desk, name: str) -> None:
    """Take a lease from its holder, so that another can have it; the holder learns it with its next beat."""
    found = next((lease for lease in desk.store.leases() if lease.name == name), None)
    if found is None:
        raise LeaseNotFound(f"there is no lease {name!r}; see tidemill leases list", name=name)
    if found.holder is None:
        text, released = f"lease {name} was free already", False
    else:
        released = desk.control.release(name)
        text = f"lease {name} is free; its term was {found.term}"
    if desk.as_json:
        print_json({"name": name, "released": released, "term": found.term})
    else:
        print_lines([(text, "")])
