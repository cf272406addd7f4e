"""Objects in a local directory or in a bucket, with the errors of a store."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemill.archive.file_format import check_format
from tidemill.errors import BadSettings, StoreUnavailable
from tidemill.stores.blob_files import create_private_folder

T = TypeVar("T")

SCHEMES = ("file", "s3", "gs", "az")
_OPTIONS = ("format", "endpoint", "region")


class FileLocation(NamedTuple):
    """A parsed URL of a directory or a bucket; ``url`` has no options."""

    url: str
    scheme: str
    format: str
    options: dict[str, str]


class ObjectInfo(NamedTuple):
    """The path of an object, and when it was written."""

    path: str
    modified_at: datetime


def is_file_url(url: str) -> bool:
    """Whether a URL names a directory or a bucket for archive files.

    >>> is_file_url("s3://bucket/archive"), is_file_url("sqlite:///jobs.db")
    (True, False)
    """
    return "://" in url and url.partition("://")[0].lower() in SCHEMES


def parse_location(url: str) -> FileLocation:
    """Parse the URL of a place for archive files; raises ``BadSettings`` for one that cannot be used.

    >>> parse_location("file:///srv/archive?format=parquet").format
    'parquet'
    """
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - set(_OPTIONS))
    plain = f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    if unknown:
        raise BadSettings(
            f"{plain}: unknown option {unknown[0]!r}; expected one of {', '.join(_OPTIONS)}", url=plain
        )
    if "@" in parts.netloc:
        raise BadSettings(f"{plain}: give credentials in the environment, not in the URL", url=plain)
    if scheme == "file" and (parts.netloc or not parts.path.strip("/")):
        raise BadSettings(f"{plain!r} contains no directory; write file:///srv/archive", url=plain)
    if scheme != "file" and not parts.netloc:
        raise BadSettings(f"{plain!r} contains no bucket; write {scheme}://bucket/prefix", url=plain)
    format = options.pop("format", "jsonl")
    check_format(format)
    if importlib.util.find_spec("obstore") is None:
        raise BadSettings(f"{plain} needs the extra 'files'; run: pip install 'tidemill[files]'", url=plain)
    return FileLocation(plain, scheme, format, options)


def split_places(given: Mapping[str, str | T]) -> tuple[dict[str, str], dict[str, str | T]]:
    """Separate the places of archive files from the stores of jobs."""
    places = {name: url for name, url in given.items() if isinstance(url, str) and is_file_url(url)}
    for name, url in places.items():
        location = parse_location(url)
        if name in ("default", "jobs") or len(places) == len(given):
            raise BadSettings(
                f"store {name!r} is {location.url}, which holds archive files only; "
                "give live jobs a database, such as sqlite:///jobs.db, and name this one 'archive'",
                store=name,
            )
    return places, {name: where for name, where in given.items() if name not in places}


class Objects:
    """The objects under one URL. An object is written whole or not at all, and never replaced."""

    def __init__(self, location: FileLocation) -> None:
        from obstore.store import LocalStore, from_url

        self._url = location.url
        self._folder: Path | None = None
        with self._translated():
            if location.scheme == "file":
                self._folder = Path(unquote(urlsplit(location.url).path))
                create_private_folder(self._folder)
                self._store: Any = LocalStore(self._folder)
            else:
                endpoint = location.options.get("endpoint")
                config = {key: value for key, value in location.options.items() if value}
                client = {"allow_http": True} if (endpoint or "").startswith("http://") else {}
                self._store = from_url(location.url, config=config, client_options=client)  # type: ignore[call-overload]

    def create(self, path: str, content: bytes) -> bool:
        """Write a new object, durably. False if one with this path exists."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with self._translated():
            try:
                obstore.put(self._store, path, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            if self._folder is not None:
                _sync(self._folder, path)
        return True

    def read(self, path: str, offset: int | None = None, length: int | None = None) -> bytes | None:
        """An object, or a part of it. None if it does not exist or is too short."""
        import obstore
        from obstore.exceptions import GenericError

        with self._translated():
            try:
                if offset is None or length is None:
                    return bytes(obstore.get(self._store, path).bytes())
                content = bytes(obstore.get_range(self._store, path, start=offset, length=length))
                return content if len(content) == length else None
            except FileNotFoundError:
                return None
            except GenericError as error:
                if "range" in str(error).lower():
                    return None
                raise

    def list(self, prefix: str, after: str | None = None) -> Iterator[ObjectInfo]:
        """The objects below a path, those after another one only if it is given."""
        import obstore

        with self._translated():
            for chunk in obstore.list(self._store, prefix, offset=after, chunk_size=1000):
                for item in chunk:
                    yield ObjectInfo(item["path"], item["last_modified"])

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""
        import obstore

        with self._translated():
            for path in paths:
                try:
                    obstore.delete(self._store, path)
                except FileNotFoundError:
                    continue

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise StoreUnavailable(f"archive place {self._url}: {first}", url=self._url) from error


def _sync(folder: Path, path: str) -> None:
    """Flush a new file and the directories that name it to disk, as the original is deleted next."""
    target = folder / path
    for place in (target, *list(target.parents)[: len(Path(path).parts)]):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
