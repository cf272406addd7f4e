"""A private Redis server for the peers that need one, and its databases.

The server program comes from the machine (``redis-server`` or ``valkey-server``) and runs with default settings in a folder that is
removed afterwards. A few lines of its protocol are implemented here, so that the figures include no client library.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

from bench.engine_storage import Storage
from tests.servers.restartable import running_redis_server

DATABASES = 64
_PATIENCE = 60.0

Reply = int | str | list["Reply"] | None


class RedisError(RuntimeError):
    """Redis rejected a command, or closed the connection."""


class Link:
    """A connection that sends a command and waits for the reply."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection(
            (parts.hostname or "127.0.0.1", parts.port or 6379), timeout=_PATIENCE
        )
        self._file = self._socket.makefile("rb")
        if database := parts.path.strip("/"):
            self.do("select", database)

    def do(self, *words: str) -> Reply:
        packed = [word.encode() for word in words]
        message = b"*%d\r\n" % len(packed) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in packed)
        self._socket.sendall(message)
        return self._read()

    def _read(self) -> Reply:
        line = self._file.readline()
        if not line:
            raise RedisError("Redis closed the connection")
        kind, rest = line[:1], line[1:].rstrip()
        match kind:
            case b"+":
                return rest.decode()
            case b"-":
                raise RedisError(rest.decode())
            case b":":
                return int(rest)
            case b"$":
                return None if int(rest) < 0 else self._file.read(int(rest) + 2)[:-2].decode()
            case b"*":
                return [self._read() for _ in range(max(0, int(rest)))]
            case _:
                raise RedisError(f"unknown reply type: {line[:40]!r}")

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class RedisServer:
    """The server of all peers on Redis, each with a separate numbered database."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._given = 0
        link = Link(url)
        answer = link.do("info", "server")
        link.close()
        info = dict(line.split(":", 1) for line in str(answer).splitlines() if ":" in line)
        self.version = info.get("valkey_version") or info["redis_version"]

    def database(self) -> Keys:
        """Return the next unused database."""
        self._given += 1
        return Keys(urlunsplit(urlsplit(self._url)._replace(path=f"/{self._given}")))


class Keys(Storage):
    """A database of the Redis server. It can save only an empty state."""

    kind = "redis"

    def __init__(self, url: str) -> None:
        self._url = url
        self._link: Link | None = None
        self._kept = set[str]()
        self.words = {"BENCH_URL": url}

    def _session(self) -> Link:
        if self._link is None:
            self._link = Link(self._url)
        return self._link

    def fresh(self) -> None:
        self._session().do("flushdb")

    def settle(self) -> None:
        # Otherwise, a snapshot would become due during the drain.
        self._session().do("save")

    def left(self, query: str) -> int:
        answer = self._session().do("eval", query, "0")
        assert isinstance(answer, int)
        return answer

    def keep(self, word: str) -> None:
        if self._session().do("dbsize") == 0:
            self._kept.add(word)

    def bring(self, word: str) -> bool:
        if word not in self._kept:
            return False
        self.fresh()
        return True

    def drop(self) -> None:
        self.fresh()
        self._session().close()
        self._link = None


@contextlib.contextmanager
def running_redis() -> Iterator[str]:
    """Run a private server for a ``with`` block; yield its URL."""
    with running_redis_server(DATABASES) as server:
        yield server.url
