"""``tidemill top``: live view of the store, with keys to pause queues and to cancel and retry jobs.

Every refresh runs a few bounded queries. Only the list of failed jobs reads jobs that have ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import click
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from tidemill.cli.context import CommandContext, tenant_option, with_context
from tidemill.cli.screen import STYLES, can_draw_over, clean, console, print_json_line
from tidemill.cli.top_keys import Row, TopAction, TopState, keyboard, keys_of, press, quits
from tidemill.cli.top_view import document, draw, read_frame
from tidemill.client.jobs.handle import Job
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.records import PauseKind
from tidemill.errors import StoreError, TidemillError

EVERY = 1.0


@click.command()
@click.option("--once", is_flag=True, help="Print one snapshot and exit.")
@click.option(
    "--every",
    default=EVERY,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="Seconds between refreshes.",
)
@tenant_option
@with_context
def top(context: CommandContext, once: bool, every: float, tenant: str) -> None:
    """Show live counts, queues and workers; q quits.

    Keys: up and down select a queue or a job, p pauses or resumes the queue, c cancels the job, r retries it, and f
    lists failed jobs instead of running ones. --json prints one line per refresh.
    """
    screen = console()
    if context.as_json or once or not can_draw_over(screen):
        _lines(context, tenant, screen, once=once, every=every)
        return
    with Live(console=screen, screen=True, auto_refresh=False) as live, keyboard() as pressed:
        _Session(context, tenant, screen, live).run(pressed, every)


def _lines(context: CommandContext, tenant: str, screen: Console, *, once: bool, every: float) -> None:
    """Print frame after frame, for pipes and programs."""
    pause = threading.Event()
    try:
        while True:
            frame = read_frame(context, tenant)
            if context.as_json:
                print_json_line(document(frame))
            else:
                screen.print(draw(frame, screen.width), soft_wrap=not screen.is_terminal)
            if once:
                return
            pause.wait(every)
    except KeyboardInterrupt:
        return


class _Session:
    """One session on a terminal."""

    def __init__(self, context: CommandContext, tenant: str, screen: Console, live: Live) -> None:
        self._context, self._tenant, self._screen, self._live = context, tenant, screen, live
        self._selection = TopState()
        self._rows: list[Row] = []

    def run(self, pressed: Callable[[float], str], every: float) -> None:
        """Draw and take keys until one quits."""
        while True:
            self._refresh()
            try:
                typed = pressed(every)
            except KeyboardInterrupt:
                return
            for key in keys_of(typed):
                if quits(self._selection, key):
                    return
                self._selection, act = press(self._selection, key, self._rows)
                if act is not None:
                    self._selection = replace(self._selection, note=self._perform(act))

    def _refresh(self) -> None:
        """Draw a frame, or the error while the store is unavailable. It may recover."""
        drawn: RenderableType
        try:
            frame = read_frame(self._context, self._tenant, self._selection.view)
            self._rows = frame.rows
            drawn = draw(frame, self._screen.width, self._screen.height, self._selection)
        except StoreError as error:
            drawn = Text(clean(error), STYLES["error"])
        self._live.update(drawn, refresh=True)

    def _perform(self, act: TopAction) -> str:
        """Perform an action, and return what happened."""
        name, control = act.row.name, self._context.control
        try:
            match act.verb:
                case "pause":
                    control.pause(PauseKind.QUEUE, name, reason="tidemill top")
                    return f"queue {name} is paused; running jobs continue"
                case "resume":
                    control.resume(PauseKind.QUEUE, name)
                    return f"queue {name} is resumed"
                case "cancel":
                    job = self._job(act.row)
                    job.cancel("tidemill top")
                    return f"{name} {act.row.key[-12:]} {'is cancelled' if job.ended else 'is asked to stop'}"
                case _:
                    job = self._job(act.row)
                    job.retry()
                    return f"{name} {act.row.key[-12:]} is {job.status.value} again"
        except TidemillError as error:
            return error.message

    def _job(self, row: Row) -> Job[object]:
        job: Job[object] = self._context.jobs.get(UUID(row.key), tenant=ALL_TENANTS)
        return job
