"""A PostgreSQL primary and its streaming standby, for failover tests.

The standby starts from ``pg_basebackup``. Both are private servers, as in ``tests.servers.postgres``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote

from tests.servers.postgres import SPEED, PrivatePostgres, StopMode
from tests.servers.processes import ServiceMissing

from tidemill.clock import SystemClock

STANDBY = "standby"
"""The name of the standby in ``synchronous_standby_names``."""

_RETRY = "200ms"  # how soon a standby reconnects
_SECONDS = 30.0
_PRIMARY = {"wal_level": "replica", "max_wal_senders": "4", "wal_keep_size": "64MB"}


class Pair:
    """Two servers, one of which is the primary."""

    def __init__(self, settings: Mapping[str, str], major: int | None) -> None:
        self._settings = {**SPEED, **_PRIMARY, "wal_retrieve_retry_interval": _RETRY, **settings}
        self._major = major
        self._clock = SystemClock()
        self.primary = PrivatePostgres(None, self._settings, major)
        self.standby: PrivatePostgres | None = None

    def url(self, database: str = "postgres") -> str:
        """The URL of a database on both servers: a client finds the one that accepts writes."""
        ports = sorted(server.port for server in (self.primary, self.standby) if server is not None)
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"postgresql://postgres@{hosts}/{quote(database)}"

    def open(self) -> None:
        """Start the primary, and a standby that streams from it."""
        self.primary.open()
        self.add_standby()

    def add_standby(self) -> None:
        """Copy the primary and start the copy as its standby. A failed former server is replaced, at its address."""
        before = self.standby
        standby = PrivatePostgres(None, self._settings, self._major)
        if before is not None:
            standby.move_to(before.port)
            before.close()
        self.standby = standby
        standby.copy(
            "--dbname", self._source, "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast"
        )
        standby.open()
        self.wait_for_receiver()

    # The stream between them -------------------------------------------------------------------------------------------

    def wait_for_receiver(self) -> None:
        """Wait until the standby has received everything that the primary has written."""
        wanted = self.primary.ask("select pg_current_wal_lsn()")
        caught_up = (
            f"select coalesce(pg_last_wal_replay_lsn() >= '{wanted}', false)"
            " and exists (select from pg_stat_wal_receiver where status = 'streaming')"
        )
        self._until(lambda: self._standby.ask(caught_up) == "True", "the standby follows the primary")

    def halt_receiver(self) -> None:
        """Stop the standby's receiver; the standby still answers reads."""
        self._receive_from("")
        self._until(
            lambda: self._standby.ask("select count(*) from pg_stat_wal_receiver") == "0",
            "the receiver is halted",
        )

    def resume_receiver(self) -> None:
        """Start the standby's receiver again; it catches up first."""
        self._receive_from(self._source)
        self.wait_for_receiver()

    def _receive_from(self, source: str) -> None:
        self._standby.do(f"alter system set primary_conninfo = '{source}'")
        self._standby.do("select pg_reload_conf()")

    @property
    def _source(self) -> str:
        """The connection settings of the standby for the primary."""
        return f"host=127.0.0.1 port={self.primary.port} user=postgres application_name={STANDBY}"

    def wait_for_standby(self, *, synchronous: bool) -> None:
        """Make commits of the primary wait for the standby, or not."""
        names = STANDBY if synchronous else ""
        self.primary.do(f"alter system set synchronous_standby_names = '{names}'")
        self.primary.do("select pg_reload_conf()")
        state = "sync" if synchronous else "async"
        self._until(
            lambda: self.primary.ask("select string_agg(sync_state, ',') from pg_stat_replication") == state,
            f"the standby is {state}",
        )

    # Failover ----------------------------------------------------------------------------------------------------------

    def kill_primary(self, mode: StopMode = "immediate") -> None:
        """Stop the primary like a crash."""
        self.primary.stop(mode)

    def promote(self) -> None:
        """Promote the standby with the data it has. The killed primary stays down until ``add_standby``."""
        standby = self._standby
        if self.primary.pids:
            raise RuntimeError("the primary is still running; call kill_primary() first")
        standby.do("select pg_promote(true, 30)")
        self.primary, self.standby = standby, self.primary

    @property
    def _standby(self) -> PrivatePostgres:
        if self.standby is None or not self.standby.pids:
            raise RuntimeError("there is no standby; start one with add_standby()")
        return self.standby

    def _until(self, true: Callable[[], bool], what: str) -> None:
        ends = self._clock.monotonic() + _SECONDS
        while not true():
            if self._clock.monotonic() > ends:
                raise ServiceMissing(f"not within {_SECONDS:g} s: {what}")
            threading.Event().wait(0.02)

    def close(self) -> None:
        """Stop both servers and remove their folders."""
        for server in (self.standby, self.primary):
            if server is not None:
                server.close()


@contextlib.contextmanager
def running_pair(*, settings: Mapping[str, str] | None = None, major: int | None = None) -> Iterator[Pair]:
    """A primary and an asynchronous streaming standby, for the duration of a ``with`` block."""
    pair = Pair(settings or {}, major)
    try:
        pair.open()
        yield pair
    finally:
        pair.close()
