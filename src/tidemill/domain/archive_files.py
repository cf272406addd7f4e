"""Files of archived jobs: their catalogue entries and their manifests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

FRAME = 500
"""Maximum number of documents in one frame, which is the unit that a reader fetches."""


class ArchiveFrame(NamedTuple):
    """A part of a file that can be read alone."""

    offset: int
    length: int
    rows: int
    sha256: str


class ArchiveEntry(NamedTuple):
    """The file and the frame that hold the document of a job."""

    id: UUID
    file: UUID
    frame: int


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One file of archived jobs. ``tenants``, ``tasks`` and ``states`` tell readers which files they can skip."""

    id: UUID
    place: str
    path: str
    tier: str
    format: str
    rows: int
    bytes: int
    sha256: str
    first_id: UUID
    last_id: UUID
    first_ended_at: datetime
    last_ended_at: datetime
    tenants: frozenset[str]
    tasks: frozenset[str]
    states: frozenset[str]
    frames: tuple[ArchiveFrame, ...]
    archived_at: datetime


class Manifest(NamedTuple):
    """The commit record of a file: the file, the ids in each of its frames, and the files that it replaces."""

    file: ArchiveFile
    ids: tuple[tuple[UUID, ...], ...]
    replaces: tuple[UUID, ...] = ()

    @property
    def entries(self) -> list[ArchiveEntry]:
        """The catalogue entries of its documents."""
        return [ArchiveEntry(id, self.file.id, number) for number, ids in enumerate(self.ids) for id in ids]


def dump_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON."""
    file = manifest.file
    body: dict[str, object] = {
        "version": 1,
        "file": str(file.id),
        "path": file.path,
        "tier": file.tier,
        "format": file.format,
        "rows": file.rows,
        "bytes": file.bytes,
        "sha256": file.sha256,
        "first_id": str(file.first_id),
        "last_id": str(file.last_id),
        "first_ended_at": file.first_ended_at.astimezone(UTC).isoformat(),
        "last_ended_at": file.last_ended_at.astimezone(UTC).isoformat(),
        "archived_at": file.archived_at.astimezone(UTC).isoformat(),
        "tenants": sorted(file.tenants),
        "tasks": sorted(file.tasks),
        "states": sorted(file.states),
        "frames": [
            {**frame._asdict(), "ids": [str(id) for id in ids]}
            for frame, ids in zip(file.frames, manifest.ids, strict=True)
        ],
        "replaces": [str(id) for id in manifest.replaces],
    }
    return json.dumps(body, separators=(",", ":")).encode()


def load_manifest(text: bytes, place: str) -> Manifest:
    """The manifest from its JSON; raises ``ValueError`` for anything else."""
    try:
        body: Mapping[str, Any] = json.loads(text)
        if body["version"] != 1:
            raise ValueError(f"manifest version {body['version']!r}")
        frames = body["frames"]
        file = ArchiveFile(
            id=UUID(body["file"]),
            place=place,
            path=body["path"],
            tier=body["tier"],
            format=body["format"],
            rows=int(body["rows"]),
            bytes=int(body["bytes"]),
            sha256=body["sha256"],
            first_id=UUID(body["first_id"]),
            last_id=UUID(body["last_id"]),
            first_ended_at=datetime.fromisoformat(body["first_ended_at"]),
            last_ended_at=datetime.fromisoformat(body["last_ended_at"]),
            tenants=frozenset(body["tenants"]),
            tasks=frozenset(body["tasks"]),
            states=frozenset(body["states"]),
            frames=tuple(
                ArchiveFrame(frame["offset"], frame["length"], frame["rows"], frame["sha256"])
                for frame in frames
            ),
            archived_at=datetime.fromisoformat(body["archived_at"]),
        )
        ids = tuple(tuple(UUID(id) for id in frame["ids"]) for frame in frames)
        return Manifest(file, ids, tuple(UUID(id) for id in body.get("replaces", ())))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a manifest: {error!r}") from error
