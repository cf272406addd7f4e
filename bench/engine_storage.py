"""Storage of one side during a measurement: a separate database or file.

Storage can be emptied, settled after filling, saved under a name, restored, and queried for unfinished jobs.
"""

from __future__ import annotations

import shutil
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from bench.engine_proc import parent


class Storage(ABC):
    """Storage of one side's jobs. ``words`` are the environment variables that tell programs where it is."""

    kind: str  #: the store's name
    words: dict[str, str]

    @abstractmethod
    def fresh(self) -> None:
        """Empty it, including the schema."""

    @abstractmethod
    def settle(self) -> None:
        """Complete deferred work of the filling, such as checkpoints, so that it does not happen during the drain."""

    @abstractmethod
    def left(self, query: str) -> int:
        """Return the number that this query counts."""

    @abstractmethod
    def keep(self, word: str) -> None:
        """Save the current state under a name."""

    @abstractmethod
    def bring(self, word: str) -> bool:
        """Restore a saved state; return False if there is none."""

    @abstractmethod
    def drop(self) -> None:
        """Remove it, including the saved states."""

    def transactions(self) -> float | None:
        """Return the number of transactions so far, or None if they are not counted."""
        return None

    def connections(self) -> float | None:
        """Return the number of open connections, or None."""
        return None

    def log_bytes(self) -> float | None:
        """Return the bytes of write-ahead log so far, or None if they are not counted."""
        return None


class Server:
    """The PostgreSQL server of all sides, with a connection to a separate database."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = psycopg.connect(url, autocommit=True)
        backend = self.ask("select pg_backend_pid()")
        self.pid = (
            parent(int(backend))
            if urlsplit(url).hostname in (None, "127.0.0.1", "::1", "localhost")
            else None
        )
        self.version = str(self.ask("show server_version"))
        self.copies_files = int(self.ask("show server_version_num")) >= 150_000

    def url(self, database: str) -> str:
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{database}"))

    def do(self, statement: str) -> None:
        self._connection.execute(statement.encode())

    def ask(self, query: str) -> Any:
        row = self._connection.execute(query.encode()).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        self._connection.close()


class Database(Storage):
    """A database on the server."""

    kind = "postgres"

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name, self._kept = server, name, set[str]()
        self._connection: psycopg.Connection[Any] | None = None
        self.words = {"BENCH_URL": server.url(name), "TIDEMILL_STORE": server.url(name)}

    @property
    def url(self) -> str:
        return self._server.url(self._name)

    def _session(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(self.url, autocommit=True)
        return self._connection

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _make(self, name: str, template: str = "template1", *, large: bool = False) -> None:
        self._leave()
        self._server.do(f"drop database if exists {name} with (force)")
        # By default, a copy goes through the write-ahead log page by page, which is good for small databases.
        strategy = " strategy file_copy" if large and self._server.copies_files else ""
        self._server.do(f"create database {name} template {template}{strategy}")

    def fresh(self) -> None:
        self._make(self._name)

    def settle(self) -> None:
        self._session().execute("vacuum analyze")
        self._server.do("checkpoint")

    def do(self, statement: str) -> None:
        """Run a statement of a side without triggers and foreign keys."""
        self._session().execute("set session_replication_role = replica")
        self._session().execute(statement.encode())
        self._leave()

    def left(self, query: str) -> int:
        row = self._session().execute(query.encode()).fetchone()
        return 0 if row is None else int(row[0])

    def keep(self, word: str) -> None:
        self._make(f"{self._name}_{word}", self._name, large=word != "empty")
        self._kept.add(word)

    def bring(self, word: str) -> bool:
        if word not in self._kept:
            return False
        self._make(self._name, f"{self._name}_{word}", large=word != "empty")
        return True

    def drop(self) -> None:
        self._leave()
        for name in (self._name, *(f"{self._name}_{word}" for word in self._kept)):
            self._server.do(f"drop database if exists {name} with (force)")
        self._kept.clear()

    def _ask_of(self, query: str) -> float:
        return float(self._server.ask(f"{query} where datname = '{self._name}'"))

    def transactions(self) -> float:
        return self._ask_of("select xact_commit + xact_rollback from pg_stat_database")

    def connections(self) -> float:
        return self._ask_of("select count(*) from pg_stat_activity")

    def log_bytes(self) -> float:
        return float(self._server.ask("select pg_current_wal_lsn() - '0/0'::pg_lsn"))


class File(Storage):
    """An SQLite file in a separate folder."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder, self._aside = folder, folder.with_name(folder.name + "-kept")
        self.path = folder / "jobs.db"
        self.words = {"BENCH_URL": str(self.path), "TIDEMILL_STORE": f"sqlite:///{self.path}"}

    def fresh(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def settle(self) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("pragma wal_checkpoint(truncate)")

    def left(self, query: str) -> int:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            return int(connection.execute(query).fetchone()[0])

    def keep(self, word: str) -> None:
        shutil.copytree(self._folder, self._aside / word, dirs_exist_ok=True)

    def bring(self, word: str) -> bool:
        if not (self._aside / word).exists():
            return False
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._aside / word, self._folder)
        return True

    def drop(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.rmtree(self._aside, ignore_errors=True)
