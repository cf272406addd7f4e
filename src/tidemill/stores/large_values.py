"""Writing and reading of large values through a store: in its table, or in the directory or bucket of ``blob_url``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from tidemill.domain.job import Enqueued, NewJob
from tidemill.domain.large_values import (
    BlobReference,
    SpilledText,
    checked,
    parts_of,
    read_reference,
)
from tidemill.errors import ResultNotKept
from tidemill.stores import blob_files
from tidemill.stores.base import Store
from tidemill.stores.blobs import BlobStore

ORPHAN_AGE = timedelta(days=1)
"""How long a blob may wait for the row that refers to it: the transaction of a user, or a job that is still running."""

_FEW = 4  # parts that one read returns


def is_private(store: Store) -> bool:
    """Whether only this process can reach the store."""
    return store.url.startswith("memory:")


def store_value(
    store: BlobStore, value: SpilledText, *, in_table: bool = False, now: datetime | None = None
) -> str:
    """Store a large value, and return the reference to it. Writing it again has no further effect.

    ``in_table`` ignores ``blob_url``: a user's transaction may have written the same value to the table.
    """
    key, place = value.reference.key, None if in_table else store.blob_url
    assert key is not None
    if place is None:
        store.put_blob(key, parts_of(value.content), now=now)
        return str(value)
    # (1) nothing is written
    store.put_blob(key, (), place=place, now=now)
    # (2) the row exists, so the sweep finds the object even if no job ever refers to it
    blob_files.write_object(place, key, parts_of(value.content))
    # (3) the object exists
    return str(value.placed(place))


def enqueue(store: Store, jobs: Sequence[NewJob], *, now: datetime | None = None) -> list[Enqueued]:
    """Enqueue jobs whose arguments may be large. Those for the table are written in the same transaction."""
    large = [job for job in jobs if type(job.args) is SpilledText]
    if not large:
        return store.enqueue(jobs, now=now)
    if store.blob_url is not None:
        stored = [stored_job(store, job) for job in jobs]
        return store.enqueue(stored, now=now)
    with store.transaction():
        answers = store.enqueue(jobs, now=now)
        created = {answer.id for answer in answers if answer.created}
        for job in large:
            if job.id in created:
                store_job_value(store, job, now=now)
    return answers


def stored_job(store: BlobStore, job: NewJob) -> NewJob:
    """The job with its large arguments stored, and the reference to them in their place."""
    value = job.args
    return job._replace(args=store_value(store, value)) if isinstance(value, SpilledText) else job


def store_job_value(store: BlobStore, job: NewJob, *, now: datetime | None = None) -> None:
    """Write the large arguments of a job to the table."""
    if isinstance(job.args, SpilledText) and (key := job.args.reference.key) is not None:
        store.put_blob(key, parts_of(job.args.content), now=now)


def read_value(store: BlobStore, text: str) -> str:
    """The content of a payload: the text itself, or what it refers to.

    Raises ``BlobDamaged`` if the content is missing or changed, ``ResultNotKept`` if it was refused.
    """
    reference = read_reference(text)
    if reference is None:
        return text
    data = bytearray()
    for part in stream(store, reference):
        data += part
    return data.decode()


def stream(store: BlobStore, reference: BlobReference) -> Iterator[bytes]:
    """The content of a reference in parts; the checksum is verified before the last one."""
    if reference.key is None:
        raise ResultNotKept(
            f"the result has {reference.size:,} bytes and was not kept: {reference.refused}",
            size=reference.size,
        )
    return checked(reference, _parts(store, reference))


def _parts(store: BlobStore, reference: BlobReference) -> Iterator[bytes]:
    key = reference.key
    assert key is not None
    if reference.place is not None:
        yield from blob_files.read_object(reference.place, key)
        return
    first = 0
    while parts := store.blob_parts(key, first=first, limit=_FEW):
        for part in parts:
            yield part.encode()
        first += len(parts)


def sweep_blobs(store: BlobStore, limit: int, *, now: datetime | None = None) -> int:
    """Delete orphans, the objects before the rows that name them. Returns the number."""
    orphans = store.orphan_blobs(ORPHAN_AGE, limit, now=now)
    for orphan in orphans:
        if orphan.place is not None:
            blob_files.delete_object(orphan.place, orphan.key)
    store.delete_blobs([orphan.key for orphan in orphans])
    return len(orphans)
