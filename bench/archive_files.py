"""Bytes per archived job and the speed of archive files: table, JSON Lines and Parquet.

Run: ``.venv/bin/python bench/archive_files.py [jobs]``. SQLite holds the jobs; files are in a temporary directory.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tidemill import App
from tidemill.archive.files import FilePlace
from tidemill.archive.places import ArchivePlace, StorePlace
from tidemill.domain.retention import ArchivedJob, Selection, Selector, believed

BATCH = 500


def batches(rows: list[ArchivedJob]) -> Iterator[list[ArchivedJob]]:
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH]


def write(place: ArchivePlace, rows: list[ArchivedJob]) -> float:
    """Write and verify all documents; return jobs per second."""
    began = time.perf_counter()
    for part in batches(rows):
        assert not believed(part, place.read(place.put(part)))[1]
    return len(rows) / (time.perf_counter() - began)


def get_latency(place: ArchivePlace, rows: list[ArchivedJob]) -> float:
    """Median milliseconds of reading one job by its id."""
    times = []
    for row in rows[:: max(len(rows) // 200, 1)]:
        began = time.perf_counter()
        assert place.get([row.id], tenant="*")
        times.append(time.perf_counter() - began)
    return median(times) * 1000


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def table_bytes(app: App, folder: Path) -> int:
    app.store.scrub()  # writes the log back into the file
    return size(folder)


def main(jobs: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "db").mkdir()
        with App(f"sqlite:///{folder}/db/jobs.db", migrate=True) as app:

            @app.task(name="mail.send")
            def send(to: str, number: int) -> dict[str, object]:
                return {"sent": number, "to": to}

            bound = send.using(tags=["mail"], reference=("user", "42"))
            for start in range(0, jobs, 1000):
                bound.enqueue_many(
                    {"to": f"user{n}@example.org", "number": n} for n in range(start, start + 1000)
                )
            app.testing().drain(limit=jobs + 1)
            rows = app.store.archivable(Selection(Selector(), limit=jobs), policy="p", tier="cold")
            print(
                f"{len(rows)} jobs, {sum(len(row.document) for row in rows) / len(rows):.0f} bytes of JSON each"
            )
            before = table_bytes(app, folder / "db")
            for kind in ("jsonl", "parquet"):
                place = FilePlace(f"file://{folder}/{kind}?format={kind}", app.store)
                rate, latency = write(place, rows), get_latency(place, rows)
                data = sum(
                    path.stat().st_size for path in (folder / kind).rglob("*.*") if path.suffix != ".json"
                )
                manifests = size(folder / kind) - data
                after = table_bytes(app, folder / "db")
                print(
                    f"{kind:8} {data / jobs:6.0f} B/job, manifest {manifests / jobs:.0f} B/job, "
                    f"catalogue {(after - before) / jobs:.0f} B/job, {rate:,.0f} jobs/s, get {latency:.2f} ms"
                )
                before = after
            table = StorePlace(app.store)
            rate, latency = write(table, rows), get_latency(table, rows)
            after = table_bytes(app, folder / "db")
            print(f"table    {(after - before) / jobs:6.0f} B/job, {rate:,.0f} jobs/s, get {latency:.2f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
