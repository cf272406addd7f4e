"""Creation of a store from its URL.

Nothing is opened yet: a store opens its database with its first verb.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemill.clock import Clock, SystemClock
from tidemill.errors import BadSettings
from tidemill.stores.base import Store


class Detached:
    """Whether this process has no store: it runs a job that its worker keeps away from the store.

    Every address then opens a store in memory. It is made to refuse all calls once the app is imported.
    """

    on = False


class OpenWatch:
    """The function that is called with the scheme of each store before its driver is imported, if any.

    A runner tells its supervisor, which then imports the same driver while the app is still being imported.
    """

    tell: Callable[[str], None] | None = None


_KINDS = "memory://, sqlite:///file.db, postgresql://user@host/database"


def open_store(url: str, *, clock: Clock | None = None, migrate: bool = False) -> Store:
    """The store at this URL.

    With ``migrate=True`` the first use creates or updates PostgreSQL's tables; SQLite's always are.

    >>> store = open_store("memory://")
    >>> store.lanes()
    []
    """
    clock = clock or SystemClock()
    url = without_driver(url)
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if Detached.on and scheme in ("sqlite", "postgresql", "postgres"):
        scheme = "memory"
    if OpenWatch.tell is not None:
        OpenWatch.tell(scheme)
    match scheme:
        case "memory":
            from tidemill.stores.memory import MemoryStore

            return MemoryStore(clock)
        case "sqlite":
            return _sqlite(url, clock)
        case "postgresql" | "postgres":
            return _postgres(url, migrate=migrate)
        case "file" | "s3" | "gs" | "az":
            raise BadSettings(
                f"{scheme}:// holds archive files only; give live jobs one of {_KINDS}, "
                f"and the files as stores={{'archive': '{scheme}://…'}}",
                scheme=scheme,
            )
        case "":
            raise BadSettings(f"not a store URL; expected one of {_KINDS}")
        case _:
            raise BadSettings(f"unknown store {scheme}://; expected one of {_KINDS}", scheme=scheme)


def load_driver(scheme: str) -> None:
    """Import the driver of these URLs ahead of ``open_store``; what is wrong with it is reported there."""
    with contextlib.suppress(ImportError):
        match scheme:
            case "sqlite":
                importlib.import_module("tidemill.stores.sql.sqlite.driver")
                importlib.import_module("tidemill.stores.sql.store")
            case "postgresql" | "postgres":
                importlib.import_module("tidemill.stores.sql.postgres.store")


def without_driver(url: str) -> str:
    """The URL without the driver that SQLAlchemy's URLs name, such as ``postgresql+psycopg://``.

    >>> without_driver("postgresql+asyncpg://ann@db/jobs")
    'postgresql://ann@db/jobs'
    """
    scheme, separator, rest = url.partition("://")
    kind, plus, _driver = scheme.partition("+")
    if plus and separator and kind.lower() in ("postgresql", "postgres", "sqlite"):
        return f"{kind}://{rest}"
    return url


def _sqlite(url: str, clock: Clock) -> Store:
    from tidemill.stores.sql.sqlite.driver import SqliteDriver
    from tidemill.stores.sql.store import SqlStore

    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    if parts.netloc or not path:
        raise BadSettings(
            f"{url!r} contains no file; write sqlite:///jobs.db (relative) or sqlite:////srv/jobs.db (absolute)",
            url=url,
        )
    return SqlStore(SqliteDriver(path, url, clock, dict(parse_qsl(parts.query, keep_blank_values=True))))


def _postgres(url: str, *, migrate: bool) -> Store:
    if importlib.util.find_spec("psycopg") is None:
        raise BadSettings("PostgreSQL needs the extra 'postgres'; run: pip install 'tidemill[postgres]'")
    from tidemill.stores.sql.postgres.driver import PostgresDriver
    from tidemill.stores.sql.postgres.settings import read_settings
    from tidemill.stores.sql.postgres.store import PostgresStore

    return PostgresStore(PostgresDriver(read_settings(url), migrate=migrate))


def create_sqlite_tables(store: Store) -> None:
    """Create the tables of a new SQLite file now.

    A user's transaction may lock the file later, and creating them would have to wait for it.
    """
    if store.schema().pending:
        store.check()
