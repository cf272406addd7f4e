"""An app with durable functions of every kind of execution, for real workers."""

from __future__ import annotations

import os
from pathlib import Path

from tidemill import App, Context

app = App(
    os.environ.get("DURABLE_STORE", "memory://"), migrate=True, dashboard_url="https://jobs.example.com"
)


def note(folder: str, what: str) -> str:
    """Add a line to the effects, and return its text in capitals."""
    with (Path(folder) / "effects").open("a") as file:
        file.write(f"{what}\n")
    return what.upper()


async def anote(folder: str, what: str) -> str:
    return note(folder, what)


def work(ctx: Context, folder: str) -> str:
    one = ctx.step("one", note, folder, "one")
    ctx.sleep("rest", 1.2)
    return one + ctx.step("two", note, folder, "two") + f" {len(ctx.steps)}"


async def awork(ctx: Context, folder: str) -> str:
    one = await ctx.astep("one", anote, folder, "one")
    await ctx.asleep("rest", 1.2)
    return one + await ctx.astep("two", anote, folder, "two") + f" {len(await ctx.asteps())}"


KINDS = {
    "thread": app.task(name="thread")(work),
    "loop": app.task(name="loop")(awork),
    "process": app.task(name="process", isolation="process")(work),
    "process loop": app.task(name="process loop", isolation="process")(awork),
}


def gate(ctx: Context, folder: str) -> str:
    (Path(folder) / "url").write_text(ctx.callback_url("approved", ttl="1h") + "\n")
    return str(ctx.wait_for("approved"))


async def agate(ctx: Context, folder: str) -> str:
    (Path(folder) / "url").write_text(ctx.callback_url("approved", ttl="1h") + "\n")
    return str(await ctx.await_for("approved"))


GATES = {
    "thread": app.task(name="thread gate")(gate),
    "loop": app.task(name="loop gate")(agate),
    "process": app.task(name="process gate", isolation="process")(gate),
    "process loop": app.task(name="process loop gate", isolation="process")(agate),
}
