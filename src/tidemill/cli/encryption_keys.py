"""``tidemill keys status`` and ``keys rotate``: the keys that seal stored values, and their rotation."""

from __future__ import annotations

import click

from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.screen import Column, print_json, print_lines, print_table, thousands
from tidemill.client.secrets import Rotation, Secrets


@click.command()
@with_context
def status(context: CommandContext) -> None:
    """Show how many stored values each encryption key seals.

    Archived jobs are not counted.
    """
    seals = Secrets(context.client).status()
    names = sorted({*seals.counts, *(() if seals.active is None else (seals.active,))})
    states = {name: _state(name, seals.active, seals.missing) for name in names}
    if context.as_json:
        rows = [{"key": name, "values": seals.counts.get(name, 0), "state": states[name]} for name in names]
        print_json(rows)
        return
    print_table(
        (Column("key"), Column("values"), Column("state")),
        [[name, thousands(seals.counts.get(name, 0)), states[name]] for name in names],
        empty="no sealed values, and no key in TIDEMILL_ENCRYPTION_KEYS",
    )


def _state(name: str, active: str | None, missing: tuple[str, ...]) -> str:
    if name == active:
        return "seals new values"
    return "missing here" if name in missing else "opens old values"


@click.command()
@with_context
def rotate(context: CommandContext) -> None:
    """Seal stored values again with the newest encryption key.

    The newest key is the first one of TIDEMILL_ENCRYPTION_KEYS.

    Workers continue to run jobs. Run it again after an interruption. Deploy the new key to all processes first. The exit code
    is 1 if values keep an older key.
    """
    done = Secrets(context.client).rotate()
    if context.as_json:
        print_json(done._asdict())
    else:
        print_lines([(_words(done), "")])
    if done.not_resealed:
        click.get_current_context().exit(1)


def _words(done: Rotation) -> str:
    text = f"{thousands(done.resealed)} rows are sealed with key {done.active} now, {thousands(done.read)} were read"
    if done.not_resealed:
        text += (
            f"; {thousands(done.not_resealed)} values keep another key, as they are stored as large values or their key is missing:"
            " keep that key until these jobs are deleted"
        )
    return text
