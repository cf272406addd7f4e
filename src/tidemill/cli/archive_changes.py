"""``tidemill archive restore | export | erase | rebuild``."""

from __future__ import annotations

import sys
from typing import Any
from uuid import UUID

import click

from tidemill.archive.erasure import Erased
from tidemill.archive.export import FORMATS
from tidemill.cli.completion import archived_ids
from tidemill.cli.context import CommandContext, ask_first, with_context
from tidemill.cli.filters import Where, archive_filtered, tier_option
from tidemill.cli.parsers import metadata, reference
from tidemill.cli.screen import Column, print_json, print_lines, print_table, thousands
from tidemill.cli.suggestions import OneOf
from tidemill.client.archive import Archive
from tidemill.client.jobs.api import Jobs
from tidemill.client.stats.reports import document
from tidemill.domain.filters import ALL_TENANTS
from tidemill.errors import BadSettings

_DIGITS = 32
"""Hexadecimal digits of a whole id."""


def _archive(context: CommandContext) -> Archive:
    return Archive(context.client, Jobs(context.client))


def _is_whole(id: str) -> bool:
    return len(id.replace("-", "")) == _DIGITS and not id.lower().replace("-", "").strip("0123456789abcdef")


def _counted(number: int) -> str:
    return "1 job" if number == 1 else f"{thousands(number)} jobs"


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=archived_ids)
@click.option("--retry", is_flag=True, help="Also give the jobs another chain of attempts.")
@click.option("--tenant", metavar="NAME", default=ALL_TENANTS, show_default="all tenants", help="Tenant.")
@with_context
def restore(context: CommandContext, ids: tuple[str, ...], retry: bool, tenant: str) -> None:
    """Put archived jobs back into the live tables.

    An ID is a job's id, or a unique prefix or suffix of it. The archive keeps its copies. The exit code is 1 if a job is missing or its document is damaged.
    """
    job_ids = [UUID(id) if _is_whole(id) else context.find(id)[0] for id in ids]
    done = _archive(context).restore(job_ids, retry=retry, tenant=tenant)
    if context.as_json:
        print_json(document(done))
    else:
        lines = [f"{_counted(len(done.restored))} restored"]
        lines += [f"{_counted(len(done.retried))} retried"] if retry else []
        notes = ((done.live, "already live"), (done.missing, "not counted"), (done.damaged, "damaged"))
        lines += [f"{', '.join(map(str, ids))}: {words}" for ids, words in notes if ids]
        print_lines([(line, "") for line in lines])
    if done.missing or done.damaged:
        click.get_current_context().exit(1)


@click.command()
@archive_filtered
@tier_option("all")
@click.option("--format", "form", type=OneOf(FORMATS), default="jsonl", show_default=True, help="Format.")
@click.option(
    "--output", metavar="FILE", help="File to write; JSON Lines go to the standard output without it."
)
@with_context
def export(
    context: CommandContext, where: Where, tiers: tuple[str, ...], form: str, output: str | None
) -> None:
    """Write archived jobs to a file, the oldest first."""
    if output is None and form == "parquet":
        raise BadSettings("a Parquet file cannot be written to a terminal; pass --output FILE")
    target: Any = sys.stdout.buffer if output is None else output
    count = _archive(context).export(target, format=form, tiers=tiers or "all", **where.of(context))
    if output is None:
        sys.stdout.buffer.flush()
    elif context.as_json:
        print_json({"jobs": count, "file": output})
    else:
        print_lines([(f"{_counted(count)} written to {output}", "")])


@click.command()
@click.option("--id", "ids", multiple=True, type=click.UUID, metavar="ID", help="Job; repeatable.")
@click.option(
    "--tenant", metavar="NAME", help="Every job of this tenant, or only those that match the other options."
)
@click.option("--reference", type=reference, metavar="KIND:ID", help="Reference, such as user:42.")
@click.option("--metadata", type=metadata, multiple=True, metavar="KEY=VALUE", help="Metadata; repeatable.")
@click.option("--dry-run", is_flag=True, help="Only count the jobs.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_context
def erase(
    context: CommandContext,
    ids: tuple[UUID, ...],
    tenant: str | None,
    reference: tuple[str, str] | None,
    metadata: tuple[tuple[str, str], ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Erase ended jobs in every tier; this cannot be undone.

    Rows, executions, logs and documents are deleted, and archive files that contain such jobs are rewritten. The audit
    log keeps the ids and the counts. Nothing is erased while one of the jobs has not ended.
    """
    where: dict[str, Any] = {"ids": list(ids), "reference": reference, "metadata": dict(metadata)}
    where = {name: value for name, value in where.items() if value}
    if not where and tenant is None:
        raise BadSettings("specify the jobs with --id, --tenant, --reference or --metadata")
    where["tenant"] = tenant or ALL_TENANTS
    archive = _archive(context)
    counted = archive.erase(dry_run=True, **where)
    if dry_run or not counted.jobs:
        _show(context, counted)
        return
    if not yes:
        ask_first(f"Erase {_counted(counted.jobs)} in every tier? This cannot be undone.")
    _show(context, archive.erase(**where))


def _show(context: CommandContext, done: Erased) -> None:
    if context.as_json:
        print_json(document(done))
        return
    columns = (Column("tier"), Column("copies", right=True))
    print_table(
        columns, [(tier, thousands(count)) for tier, count in done.tiers.items()], empty="no such jobs"
    )
    if done.jobs:
        print_lines([(f"{_counted(done.jobs)} {'would be erased' if done.dry_run else 'erased'}", "")])


@click.command()
@click.argument("place", required=False)
@with_context
def rebuild(context: CommandContext, place: str | None) -> None:
    """Rebuild the catalogue of archive files from their manifests.

    PLACE is the name of a store or its URL; without it, every known place is read. Files that a crashed run left without
    a manifest more than a day ago are deleted.
    """
    done = _archive(context).rebuild(place)
    if context.as_json:
        print_json({"places": done})
        return
    columns = (Column("place", flexible=True), Column("files", right=True))
    print_table(columns, [(url, thousands(count)) for url, count in done.items()], empty="no archive files")
