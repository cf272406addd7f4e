"""``tidemill audit``: list the audit log and verify its hash chain."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import click

from tidemill.cli.context import CommandContext, tenant_option, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import STYLES, Column, print_json, print_lines, print_table, stamp, thousands
from tidemill.client.access import Audit, audit_key
from tidemill.client.documents import audit_document
from tidemill.domain.audit_export import checked_export
from tidemill.domain.records import AuditEntry


@click.group(cls=InOrder)
def audit() -> None:
    """List the audit log and verify its chain."""


@audit.command("list")
@click.option("--who", metavar="WHO", help="Actor, such as cli:ann.")
@click.option("--action", metavar="ACTION", help="Action, such as job.cancelled.")
@click.option("--subject", metavar="SUBJECT", help="Subject, such as queue:mail.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of entries."
)
@click.option("--before", type=click.IntRange(1), metavar="NUMBER", help="Entries with a smaller number.")
@click.option("--after", type=click.IntRange(0), metavar="NUMBER", help="Entries with a greater number.")
@click.option("--oldest", is_flag=True, help="List the oldest first.")
@tenant_option
@with_context
def list_audit(
    context: CommandContext,
    who: str | None,
    action: str | None,
    subject: str | None,
    limit: int,
    before: int | None,
    after: int | None,
    oldest: bool,
    tenant: str,
) -> None:
    """List audit entries, newest first."""
    records = Audit(context.client).list(
        tenant=tenant,
        who=who,
        action=action,
        subject=subject,
        limit=limit,
        before=before,
        after=after or 0,
        newest=not oldest,
    )
    if context.as_json:
        print_json([audit_document(record) for record in records])
        return
    columns = (
        Column("number", right=True), Column("at"), Column("who", flexible=True), Column("action"),
        Column("subject", flexible=True), Column("tenant", flexible=True, optional=True),
        Column("change", flexible=True, optional=True),
    )  # fmt: skip
    rows = [
        [
            record.number,
            stamp(record.at),
            record.entry.who,
            record.entry.action,
            record.entry.subject,
            record.entry.tenant,
            _change(record.entry),
        ]
        for record in records
    ]
    print_table(columns, rows, empty="no entries")
    if len(records) == limit:
        print_lines([(f"more: --{'after' if oldest else 'before'} {records[-1].number}", "dim")])


@audit.command()
@click.option("--expect-head", metavar="HASH", help="Last hash of an earlier verification.")
@with_context
def verify(context: CommandContext, expect_head: str | None) -> None:
    """Verify the whole audit chain.

    The exit code is 1 if an entry was changed, removed or inserted, or if the chain does not contain the expected head.
    Keep the last hash outside the database: someone who may change every table can also compute a new chain.
    """
    done = Audit(context.client).verify(expect_head)
    if context.as_json:
        print_json(done._asdict())
    elif done.ok:
        counted = "1 entry" if done.entries == 1 else f"{thousands(done.entries)} entries"
        print_lines([(f"{counted}, and nothing was changed; the last hash is {done.head}", "")])
    elif done.broken_at is None:
        words = (
            f"the chain of {thousands(done.entries)} entries does not contain the expected head:"
            " its end was removed, or all of it was replaced"
        )
        print_lines([(words, STYLES["fail"])])
    else:
        words = (
            f"entry {done.broken_at} does not follow from the one before it: it was changed, removed or inserted;"
            f" the {thousands(done.entries)} before it are intact"
        )
        print_lines([(words, STYLES["fail"])])
    if not done.ok:
        click.get_current_context().exit(1)


@audit.command()
@click.argument("file", type=click.Path(dir_okay=False, writable=True, path_type=Path))
@with_context
def export(context: CommandContext, file: Path) -> None:
    """Write the whole log to a new signed file.

    The key of the signature is in TIDEMILL_AUDIT_KEY.
    """
    lines = Audit(context.client).export()
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as target:
        target.writelines(f"{line}\n" for line in lines)
    if context.as_json:
        print_json({"file": str(file), "entries": len(lines) - 1})
    else:
        print_lines([(f"{thousands(len(lines) - 1)} entries written to {file}", "")])


@audit.command("check-export")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check_export(file: Path, as_json: bool) -> None:
    """Check the signature of an exported file.

    The key is in TIDEMILL_AUDIT_KEY; no store is needed.

    The exit code is 1 if the file was changed, or another key signed it.
    """
    with file.open(encoding="utf-8") as lines:
        done = checked_export(lines, audit_key())
    if as_json:
        print_json(done._asdict())
    elif done.ok:
        print_lines([(f"{thousands(done.entries)} entries, and nothing was changed", "")])
    else:
        print_lines([(f"{file}: {done.problem}", STYLES["fail"])])
    if not done.ok:
        click.get_current_context().exit(1)


def _change(entry: AuditEntry) -> str | None:
    before, after = _words(entry.before), _words(entry.after)
    if before and after:
        return f"{before} → {after}"
    return after or before


def _words(values: Mapping[str, object] | None) -> str | None:
    if not values:
        return None
    pairs = ((name, value) for name, value in values.items() if value is not None)
    return " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in pairs) or None
