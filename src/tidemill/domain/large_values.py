"""References that replace large arguments and results in the row of a job.

A reference is the text ``blob:`` and a JSON object. No JSON value begins with that prefix, so a user's data is never taken for a
reference, whatever it contains.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from tidemill.errors import BlobDamaged

PREFIX = "blob:"

PART = 1024 * 1024
"""Characters of one part of a blob. Parts are written and read one by one, so that only one of them is encoded at a time."""

ARGUMENTS = 0
"""The number of the blob that holds a job's arguments. A result has the token of its execution, which is at least 1."""


class BlobKey(NamedTuple):
    """The identity of a blob: its job, and ``ARGUMENTS`` or the token of the execution whose result it is."""

    job_id: UUID
    number: int


@dataclass(frozen=True, slots=True)
class BlobReference:
    """A large value as the row of its job describes it."""

    size: int  #: bytes of JSON in UTF-8
    key: BlobKey | None = None  #: None: the value was not kept
    sha256: str | None = None
    place: str | None = None  #: the URL of the directory or bucket; None: the table of the store
    refused: str | None = None  #: why the value was not kept

    def text(self) -> str:
        """The reference as it is stored."""
        body: dict[str, object] = {"size": self.size}
        if self.key is not None:
            body |= {"job": str(self.key.job_id), "number": self.key.number, "sha256": self.sha256}
        if self.place is not None:
            body["place"] = self.place
        if self.refused is not None:
            body["refused"] = self.refused
        return PREFIX + json.dumps(body, separators=(",", ":"))


class SpilledText(str):
    """The text of a reference, together with the content that is not stored yet.

    A string, so that code that only passes arguments and results on need not know about references.
    """

    __slots__ = ("content", "reference")

    content: str
    reference: BlobReference

    def placed(self, place: str) -> SpilledText:
        """The same value, to be stored in this directory or bucket."""
        return _spilled(
            self.content,
            BlobReference(self.reference.size, self.reference.key, self.reference.sha256, place),
        )


def spilled(content: str, key: BlobKey) -> SpilledText:
    """The reference to this content, with its size and its checksum.

    >>> value = spilled('"a long text"', BlobKey(UUID(int=1), 0))
    >>> value.reference.size, is_reference(value), is_reference('"blob:"')
    (13, True, False)
    """
    checksum = Checksum()
    for part in parts_of(content):
        checksum.add(part.encode())
    return _spilled(content, BlobReference(checksum.size, key, checksum.sha256))


def _spilled(content: str, reference: BlobReference) -> SpilledText:
    made = SpilledText(reference.text())
    made.content, made.reference = content, reference
    return made


def is_reference(text: str | None) -> bool:
    """Whether a stored payload is a reference instead of JSON."""
    return text is not None and text.startswith(PREFIX)


def read_reference(text: str | None) -> BlobReference | None:
    """The reference in a stored payload; None if the payload is JSON itself."""
    if text is None or not text.startswith(PREFIX):
        return None
    try:
        body = json.loads(text[len(PREFIX) :])
        key = BlobKey(UUID(body["job"]), int(body["number"])) if "job" in body else None
        return BlobReference(
            int(body["size"]), key, body.get("sha256"), body.get("place"), body.get("refused")
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BlobDamaged(f"a stored reference cannot be read: {text[:200]!r} ({error})") from None


def parts_of(content: str) -> Iterator[str]:
    """The content in parts of ``PART`` characters, at least one."""
    for at in range(0, max(len(content), 1), PART):
        yield content[at : at + PART]


class Checksum:
    """The size and the SHA-256 of content that arrives in parts."""

    def __init__(self) -> None:
        self.size = 0
        self._hash = hashlib.sha256()

    def add(self, data: bytes) -> None:
        """Add the next part."""
        self.size += len(data)
        self._hash.update(data)

    @property
    def sha256(self) -> str:
        """The checksum of everything so far."""
        return self._hash.hexdigest()


def checked(reference: BlobReference, parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts of a blob; raises ``BlobDamaged`` before the last one if they are not what was written.

    A reader of a damaged blob therefore never gets all of it.
    """
    checksum = Checksum()
    last: bytes | None = None
    for part in parts:
        checksum.add(part)
        if last is not None:
            yield last
        last = part
    if (checksum.size, checksum.sha256) == (reference.size, reference.sha256):
        yield last or b""
        return
    where = "" if reference.place is None else f" in {reference.place}"
    key = reference.key
    job, what = (None, "") if key is None else (key.job_id, blob_words(key))
    if not checksum.size:
        raise BlobDamaged(f"{what} of job {job} is missing{where}", id=job)
    raise BlobDamaged(
        f"{what} of job {job} does not match its checksum{where}: {checksum.size:,} bytes are stored,"
        f" {reference.size:,} were written",
        id=job,
    )


def blob_words(key: BlobKey) -> str:
    """What a blob is, for messages."""
    return "the arguments" if key.number == ARGUMENTS else "the result"


def size_words(size: int) -> str:
    """A number of bytes for people.

    >>> size_words(900), size_words(300 * 1024), size_words(52_428_800)
    ('900 B', '300.0 KiB', '50.0 MiB')
    """
    if size < 1024:
        return f"{size} B"
    if size < 1024 * 1024:
        return f"{size / 1024:.1f} KiB"
    return f"{size / 1024 / 1024:.1f} MiB"
