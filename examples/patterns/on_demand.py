"""An export that somebody asks for: no schedule, a blob with the result, and a word to who waits.

    python examples/patterns/on_demand.py [STORE]

The same task is enqueued by a person (``tidemill jobs enqueue``, the dashboard, ``POST /api/jobs``), by a program, or by another
job. Who asks twice within a minute gets the job that is under way.
"""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass
from datetime import timedelta

from tidemill import App, Context, Unique

blobs: dict[str, bytes] = {}
told: list[str] = []


@dataclass
class Filters:
    """What to export."""

    country: str | None = None
    least: int = 0


ROWS = [("ada", "uk", 36), ("bo", "se", 21), ("cy", "uk", 5)]


app = App(sys.argv[1] if len(sys.argv) > 1 else "memory://", migrate=True, name="exports")


@app.task(queue="exports", priority=5, unique=Unique(by=("name",), within=timedelta(minutes=1)))
def export_csv(ctx: Context, name: str, filters: Filters, notify: str | None = None) -> str:
    """Write the rows that match as CSV, row by row with progress; the blob's path."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["name", "country", "orders"])
    for who, country, orders in ctx.track(ROWS, message="writing"):
        if filters.country in (None, country) and orders >= filters.least:
            rows.writerow([who, country, orders])
    path = f"exports/{name}.csv"
    blobs[path] = text.getvalue().encode()  # under a name of its own: a second run writes the same again
    if notify is not None:
        tell.enqueue(to=notify, path=path)
    return path


@app.task(queue="mail")
def tell(to: str, path: str) -> None:
    """Say that it is there."""
    told.append(f"{to}: {path}")


def main() -> None:
    """One export, asked for twice."""
    with app:
        first = export_csv.enqueue(name="uk", filters=Filters(country="uk"), notify="ada")
        again = export_csv.enqueue(name="uk", filters=Filters(country="uk"), notify="ada")
        app.testing().drain()
        print(f"the same job: {first.id == again.id}")
        print(f"{first.refresh().value}: {blobs['exports/uk.csv'].decode().split()}")
        print(*told)


if __name__ == "__main__":
    main()
