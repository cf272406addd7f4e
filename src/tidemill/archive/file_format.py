"""Encoding of archived jobs in files: JSON Lines compressed with zstd, or Parquet.

A file consists of frames that can be read alone. A frame of JSON Lines is a complete zstd frame, so the whole file is a
``.jsonl.zst`` that common tools read. A Parquet file is one frame, because its index is at its end.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tidemill.domain.archive_files import FRAME, ArchiveFrame
from tidemill.domain.retention import ArchivedJob
from tidemill.domain.states import JobState
from tidemill.errors import BadSettings, StoreCorrupt

SUFFIXES = {"jsonl": ".jsonl.zst", "parquet": ".parquet"}

_BODY = ',"document":'
_TEXTS = ("tenant", "task", "queue", "correlation_id", "tier", "policy", "fingerprint")
_INSTANTS = ("created_at", "finished_at", "archived_at")


def check_format(name: str) -> None:
    """Refuse an unknown format, and one whose library is missing."""
    if name not in SUFFIXES:
        raise BadSettings(f"unknown archive format {name!r}; expected one of {', '.join(SUFFIXES)}")
    if name == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise BadSettings("Parquet needs the extra 'parquet'; run: pip install 'tidemill[parquet]'")
    if name == "jsonl":
        _zstd()


def sha256(content: bytes) -> str:
    """The checksum of a file or of a frame."""
    return hashlib.sha256(content).hexdigest()


def encode_file(
    documents: Sequence[ArchivedJob], format: str
) -> tuple[bytes, list[tuple[ArchiveFrame, tuple[UUID, ...]]]]:
    """The content of a file, and its frames with their ids. The documents must be sorted by id."""
    size = FRAME if format == "jsonl" else max(len(documents), 1)
    content = bytearray()
    frames: list[tuple[ArchiveFrame, tuple[UUID, ...]]] = []
    for start in range(0, len(documents), size):
        part = documents[start : start + size]
        frame = encode_frame(part, format)
        described = ArchiveFrame(len(content), len(frame), len(part), sha256(frame))
        frames.append((described, tuple(document.id for document in part)))
        content += frame
    return bytes(content), frames


def encode_frame(documents: Sequence[ArchivedJob], format: str) -> bytes:
    """The bytes of one frame."""
    if format == "parquet":
        return _encode_parquet(documents)
    lines = "".join(json_line(document) for document in documents)
    compressed: bytes = _zstd().compress(lines.encode("ascii"))
    return compressed


def decode_frame(content: bytes, format: str, ids: Collection[UUID] | None = None) -> list[ArchivedJob]:
    """The documents of one frame, or those of them with these ids."""
    if format == "parquet":
        rows = _decode_parquet(content)
        return rows if ids is None else [row for row in rows if row.id in ids]
    zstd = _zstd()
    try:
        text = zstd.decompress(content).decode("ascii")
        lines = text.splitlines()
        if ids is not None:
            # Each line begins with its id. Reading the others takes most of the time.
            heads = tuple(f'{{"id":"{id}"' for id in ids)
            lines = [line for line in lines if line.startswith(heads)]
        return [_read_line(line) for line in lines]
    except (zstd.ZstdError, ValueError, KeyError) as error:
        raise StoreCorrupt(f"a frame of an archive file cannot be read: {error}") from error


def json_line(document: ArchivedJob) -> str:
    """One document as a line of JSON; the archived document itself is its last value, byte for byte."""
    head: dict[str, Any] = {"id": str(document.id), "state": document.state.value, "token": document.token}
    head |= {name: getattr(document, name) for name in _TEXTS}
    head["parent_id"] = None if document.parent_id is None else str(document.parent_id)
    head |= {name: _dump_instant(getattr(document, name)) for name in _INSTANTS}
    return json.dumps(head, separators=(",", ":"))[:-1] + _BODY + document.document + "}\n"


def _read_line(line: str) -> ArchivedJob:
    # A quote inside of a JSON string is escaped, so the first match is the key itself.
    head, _, body = line.partition(_BODY)
    return _document(json.loads(head + "}"), body[:-1])


def _document(head: dict[str, Any], body: str) -> ArchivedJob:
    return ArchivedJob(
        id=UUID(head["id"]),
        state=JobState(head["state"]),
        token=head["token"],
        parent_id=None if head["parent_id"] is None else UUID(head["parent_id"]),
        document=body,
        **{name: head[name] for name in _TEXTS},
        **{name: _load_instant(head[name]) for name in _INSTANTS},
    )


def _dump_instant(value: datetime | None) -> str | None:
    return None if value is None else value.astimezone(UTC).isoformat(timespec="microseconds")


def _load_instant(value: str | datetime | None) -> Any:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _zstd() -> Any:
    """The zstd module: part of Python from 3.14 on, else a backport."""
    try:
        if sys.version_info >= (3, 14):
            import compression.zstd

            return compression.zstd
        else:
            import backports.zstd

            return backports.zstd
    except ImportError:
        raise BadSettings(
            "archive files need the extra 'files'; run: pip install 'tidemill[files]'"
        ) from None


def parquet_table(documents: Sequence[ArchivedJob]) -> Any:
    """Documents as an Arrow table with one column for each field."""
    import pyarrow

    instant = pyarrow.timestamp("us", tz="UTC")
    columns: dict[str, tuple[Any, list[Any]]] = {
        "id": (pyarrow.string(), [str(document.id) for document in documents]),
        "state": (pyarrow.string(), [document.state.value for document in documents]),
        "token": (pyarrow.int64(), [document.token for document in documents]),
        "parent_id": (
            pyarrow.string(),
            [None if document.parent_id is None else str(document.parent_id) for document in documents],
        ),
    }
    for name in (*_TEXTS, "document"):
        columns[name] = (pyarrow.string(), [getattr(document, name) for document in documents])
    for name in _INSTANTS:
        columns[name] = (instant, [getattr(document, name) for document in documents])
    arrays = {name: pyarrow.array(values, type=kind) for name, (kind, values) in columns.items()}
    return pyarrow.table(arrays)


def _encode_parquet(documents: Sequence[ArchivedJob]) -> bytes:
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(parquet_table(documents), buffer, compression="zstd")
    return buffer.getvalue()


def _decode_parquet(content: bytes) -> list[ArchivedJob]:
    import pyarrow
    from pyarrow import parquet

    try:
        rows = parquet.read_table(io.BytesIO(content)).to_pylist()
        return [_document(row, row["document"]) for row in rows]
    except (pyarrow.ArrowException, KeyError, ValueError) as error:
        raise StoreCorrupt(f"a Parquet file of the archive cannot be read: {error}") from error
