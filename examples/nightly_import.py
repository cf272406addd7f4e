"""A nightly import with a wide fan-out: a file is split, every row is loaded by its own job, and a report follows.

    python examples/nightly_import.py [STORE] [ROWS]

The rows are one map, so the report begins exactly once, in the transaction of the last row. Rows that fail do not stop the
others. Another definition runs after each import, with the trigger ``After``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidemill import After, App, Context, PermanentError, each

app = App(sys.argv[1] if len(sys.argv) > 1 else "memory://", migrate=True, name="nightly")
ROWS = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000


@app.task
def split(rows: int) -> list[int]:
    """Read the file, and return its rows."""
    return list(range(rows))


@app.task(retry=None)
def load(row: int) -> int:
    """Load one row."""
    if row == 13:
        raise PermanentError(f"row {row} is broken")
    return row


@app.task
def report(parts: Sequence[int | None]) -> str:
    """Summarise the night."""
    loaded = [part for part in parts if part is not None]
    return f"{len(loaded):,} of {len(parts):,} rows, sum {sum(loaded):,}"


def start_flow(rows: int, night: str) -> str:
    """Start the flow of one night. The key makes a second start return the first flow."""
    flow = app.flow("import", key=night)
    parts = flow.map(load, row=each(flow.add(split, rows=rows).result)).may_fail()
    flow.returns(flow.add(report, parts=parts.results).result)
    return str(flow.start().id)


@app.task
def import_all(ctx: Context, rows: int) -> str:
    """The job of the definition: it starts the flow, and waits for it without holding a worker."""
    run = ctx.step("start", start_flow, rows, str(ctx.job_id))
    return str(ctx.join(app.flows.get(run)))


@app.task
def publish_figures() -> None:
    """Runs after every import."""
    print("figures are published")


def main() -> None:
    """One night."""
    with app:
        app.definitions.save("import", import_all, args={"rows": ROWS})
        figures = app.definitions.save("figures", publish_figures)
        if not app.schedules.list():
            app.schedules.add(figures, After("import"), "figures-after-import")
        print(app.schedules.get("figures-after-import").words)
        job = app.definitions.trigger("import")
        app.testing().drain(limit=3 * ROWS + 100)
        print(job.refresh().result(timeout=1))


if __name__ == "__main__":
    main()
