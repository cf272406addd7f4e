"""The app of the transaction runs."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path
from random import Random

from tests.faults.ledger import BEGIN, WHERE, Ledger, note

from tidemill import App, Context, Fixed

STORE = "FAULTS_STORE"
HOLDERS = 50
"""Jobs that hold a transaction open; half of them roll it back."""


class Undo(Exception):
    """Leaves a transaction without keeping its jobs."""


class Tasks:
    """The tasks on the store at this URL."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        often = Fixed(wait=timedelta(0), max_attempts=20)

        @self.app.task
        async def noop(ctx: Context) -> None:
            note(BEGIN, ctx)

        @self.app.task
        async def child(ctx: Context, holder: int, token: int, part: int, kept: bool) -> None:
            note(BEGIN, ctx)

        @self.app.task(retry=often)
        async def work(ctx: Context, n: int) -> None:
            """Every tenth job enqueues another one directly; it must survive whatever happens to open transactions."""
            note(BEGIN, ctx)
            if n % 10 == 0:
                jobs = [noop.enqueue()] if n % 20 else [await noop.aenqueue()]
                Ledger(Path(os.environ[WHERE]).parent).accept([job.id for job in jobs])
            if n % 3 == 0:
                await asyncio.sleep(0)

        @self.app.task(retry=often)
        async def hold(ctx: Context, n: int, seed: int) -> None:
            note(BEGIN, ctx)
            random = Random(f"{seed} {n} {ctx.job.token}")
            common = {"holder": n, "token": ctx.job.token}
            try:
                with ctx.transaction():
                    child.enqueue(**common, part=0, kept=bool(n % 2))
                    await asyncio.sleep(random.uniform(0.0, 0.3))
                    await child.aenqueue(**common, part=1, kept=bool(n % 2))
                    child.enqueue_many([{**common, "part": part, "kept": bool(n % 2)} for part in (2, 3)])
                    await asyncio.sleep(random.uniform(0.0, 0.3))
                    if n % 2 == 0:
                        raise Undo
            except Undo:
                pass
            ctx.then(child, **common, part=4, kept=True)
            await asyncio.sleep(random.uniform(0.0, 0.2))
            if n % 5 == 0 and ctx.attempt == 1:
                raise ValueError("the first attempt fails after its transaction")

        self.noop, self.child, self.work, self.hold = noop, child, work, hold


def expected(args: str, token: int) -> list[str]:
    """Return the arguments of the children of a completed holder, given its own arguments and last token."""
    n = json.loads(args)["n"]
    parts = [*range(4), 4] if n % 2 else [4]
    return [
        json.dumps({"holder": n, "token": token, "part": part, "kept": True}, separators=(",", ":"))
        for part in parts
    ]


if STORE in os.environ:
    app = Tasks(os.environ[STORE]).app
