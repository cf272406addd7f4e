"""Where one side keeps its jobs while it is measured: a database of its own on the server, or a file of its own.

A ground can be made fresh, settled after filling, kept under a word and brought back, and asked what is left in it.
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


class Ground(ABC):
    """A place for one side's jobs. ``words`` are the environment variables that tell programs where it is."""

    kind: str  #: the store's name
    words: dict[str, str]

    @abstractmethod
    def fresh(self) -> None:
        """Empty, without even a schema."""

    @abstractmethod
    def settle(self) -> None:
        """After filling: nothing of the filling is left to be done during the drain."""

    @abstractmethod
    def left(self, query: str) -> int:
        """The number this query counts."""

    @abstractmethod
    def keep(self, word: str) -> None:
        """Remember the present state."""

    @abstractmethod
    def bring(self, word: str) -> bool:
        """Go back to a state that was kept; False if there is none."""

    @abstractmethod
    def drop(self) -> None:
        """Nothing of it is left, nor of what was kept."""

    def transactions(self) -> float | None:
        """Transactions so far, where they are counted."""
        return None

    def connections(self) -> float | None:
        """Open connections, where there are any."""
        return None

    def log_bytes(self) -> float | None:
        """Bytes of write-ahead log so far, where they are counted."""
        return None


class Server:
    """The PostgreSQL server all sides share, asked through one connection to another database than theirs."""

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


class Database(Ground):
    """A database on the server."""

    kind = "postgres"

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name, self._kept = server, name, set[str]()
        self._connection: psycopg.Connection[Any] | None = None
        self.words = {"BENCH_URL": server.url(name), "TIDEMILL_STORE": server.url(name)}

    @property
    def url(self) -> str:
        return self._server.url(self._name)

    def _asked(self) -> psycopg.Connection[Any]:
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
        # By default a copy goes through the write-ahead log, page by page: good for small ones.
        strategy = " strategy file_copy" if large and self._server.copies_files else ""
        self._server.do(f"create database {name} template {template}{strategy}")

    def fresh(self) -> None:
        self._make(self._name)

    def settle(self) -> None:
        self._asked().execute("vacuum analyze")
        self._server.do("checkpoint")

    def do(self, statement: str) -> None:
        """Run a statement of a side's own; triggers and foreign keys look away."""
        self._asked().execute("set session_replication_role = replica")
        self._asked().execute(statement.encode())
        self._leave()

    def left(self, query: str) -> int:
        row = self._asked().execute(query.encode()).fetchone()
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


class File(Ground):
    """An SQLite file in a folder of its own."""

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
