"""Large values as objects in a directory or a bucket.

An object has the name ``{job id}/{number}.json``. A row of the blob table names its place and is written first, so that the sweep finds
every object without listing the bucket.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemill.domain.large_values import BlobKey
from tidemill.errors import BadSettings, StoreUnavailable

_OPTIONS = ("endpoint", "region")
_CHUNK = 4 * 1024 * 1024
_UPLOAD_PART = 8 * 2**20  # S3 refuses parts below 5 MiB, except the last one


def check_place(url: str) -> str:
    """Check the URL of a directory or bucket for large values, and create a directory that does not exist."""
    parts = urlsplit(url)
    if parts.scheme not in ("file", "s3", "gs", "az"):
        raise BadSettings(
            f"blobs is {url!r}; give file:///directory, s3://bucket/prefix, gs://… or az://…", setting="blobs"
        )
    if "@" in parts.netloc:
        raise BadSettings("blobs: give credentials in the environment, not in the URL", setting="blobs")
    if parts.scheme == "file" and (parts.netloc or not parts.path.strip("/")):
        raise BadSettings(f"blobs is {url!r}; give an absolute path: file:///srv/blobs", setting="blobs")
    if parts.scheme != "file" and not parts.netloc:
        raise BadSettings(f"blobs is {url!r}; name a bucket: {parts.scheme}://bucket/prefix", setting="blobs")
    unknown = sorted(set(dict(parse_qsl(parts.query))) - set(_OPTIONS))
    if unknown:
        raise BadSettings(
            f"blobs: unknown option {unknown[0]!r}; expected one of {', '.join(_OPTIONS)}", setting="blobs"
        )
    _bucket(url)
    return url


def write_object(place: str, key: BlobKey, parts: Iterable[str]) -> None:
    """Write one object; an existing one is replaced."""
    put, bucket = _library().put, _bucket(place)
    with _Translated(place):
        put(bucket, _name(key), (part.encode() for part in parts), chunk_size=_UPLOAD_PART, max_concurrency=1)
        if place.startswith("file:"):
            _sync(_folder(place) / _name(key))


def read_object(place: str, key: BlobKey) -> Iterator[bytes]:
    """The content of an object in chunks; nothing if there is no such object."""
    with _Translated(place):
        try:
            answer = _library().get(_bucket(place), _name(key))
        except FileNotFoundError:
            return
        for chunk in answer.stream(min_chunk_size=_CHUNK):
            yield bytes(chunk)


def delete_object(place: str, key: BlobKey) -> None:
    """Delete an object, if it exists. In a directory, also what a process left that was killed while it wrote the file."""
    with _Translated(place):
        if place.startswith("file:"):
            _unlink(_folder(place) / _name(key))
            return
        try:
            _library().delete(_bucket(place), _name(key))
        except FileNotFoundError:
            return


def _name(key: BlobKey) -> str:
    return f"{key.job_id}/{key.number}.json"


def _library() -> Any:
    try:
        import obstore
    except ImportError:
        raise BadSettings(
            "blobs in a directory or a bucket need the library obstore; install tidemill[files]",
            setting="blobs",
        ) from None
    return obstore


@lru_cache(maxsize=32)
def _bucket(place: str) -> Any:
    """The opened directory or bucket. Credentials come from the environment, as for the vendor's own tools."""
    _library()
    from obstore.store import LocalStore, from_url

    try:
        if place.startswith("file:"):
            create_private_folder(_folder(place))
            return LocalStore(_folder(place))
        parts = urlsplit(place)
        options = dict(parse_qsl(parts.query))
        client = {"allow_http": True} if options.get("endpoint", "").startswith("http://") else {}
        url = parts._replace(query="").geturl()
        return from_url(url, config=options, client_options=client)  # type: ignore[call-overload]
    except Exception as error:
        raise BadSettings(f"blobs is {place!r}, which cannot be opened: {error}", setting="blobs") from error


def create_private_folder(folder: Path) -> None:
    """Create a directory that only its owner can enter, unless it exists: files in it hold arguments and results."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def _folder(place: str) -> Path:
    return Path(unquote(urlsplit(place).path))


def _unlink(path: Path) -> None:
    """Delete a file, its unfinished versions (``name#1``), and its directory if that is empty."""
    for item in (path, *path.parent.glob(f"{path.name}#*")):
        item.unlink(missing_ok=True)
    with suppress(OSError):
        path.parent.rmdir()


def _sync(path: Path) -> None:
    """Flush a new file and its directories: the row that refers to it survives a power failure."""
    for item in (path, path.parent, path.parent.parent):
        file = os.open(item, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


class _Translated:
    """Translates the library's errors."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, FileNotFoundError):
            raise StoreUnavailable(f"{self._place} cannot be used: {error}", place=self._place) from error
