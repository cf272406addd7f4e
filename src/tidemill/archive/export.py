"""Export of archived jobs to one file."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO

from tidemill.archive.file_format import json_line, parquet_table
from tidemill.domain.archive_files import FRAME
from tidemill.domain.retention import ArchivedJob
from tidemill.errors import BadSettings

FORMATS = ("jsonl", "parquet")


def check_export(format: str) -> None:
    """Refuse an unknown format, and one whose library is missing."""
    if format not in FORMATS:
        raise BadSettings(f"unknown export format {format!r}; expected one of {', '.join(FORMATS)}")
    if format == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise BadSettings("Parquet needs the extra 'parquet'; run: pip install 'tidemill[parquet]'")


def write_export(jobs: Iterable[ArchivedJob], file: IO[bytes], format: str) -> int:
    """Write jobs batch by batch. Returns their number."""
    if format == "parquet":
        return _write_parquet(jobs, file)
    count = 0
    for batch in _batches(jobs):
        file.write("".join(map(json_line, batch)).encode("ascii"))
        count += len(batch)
    return count


def _write_parquet(jobs: Iterable[ArchivedJob], file: IO[bytes]) -> int:
    from pyarrow import parquet

    empty, count = parquet_table([]), 0
    with parquet.ParquetWriter(file, empty.schema, compression="zstd") as writer:
        for batch in _batches(jobs):
            writer.write_table(parquet_table(batch))
            count += len(batch)
    return count


def _batches(jobs: Iterable[ArchivedJob]) -> Iterator[list[ArchivedJob]]:
    left = iter(jobs)
    while batch := list(islice(left, FRAME)):
        yield batch
