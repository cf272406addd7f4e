"""HTTP requests to addresses that users configure: checked, connected to the checked address, never redirected."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from tidemill.domain.outgoing_addresses import Network, OutgoingUrl, read_url, refuse_private

TIMEOUT = 10.0
"""Seconds for the connection, and for each read of the answer."""

LONGEST = 30.0
"""Seconds for a whole request. Otherwise a receiver that sends a byte now and then would hold a thread for days."""

_MOST = 64 * 1024  # bytes of an answer that are read


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _PinnedConnection(http.client.HTTPConnection):
    """A connection to an address that was checked, instead of another one that the name may have by now."""

    def __init__(self, url: OutgoingUrl, address: str, timeout: float) -> None:
        super().__init__(url.host, url.port, timeout=timeout)
        self._url, self._address = url, address

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self._url.port), self.timeout)
        if self._url.scheme == "https":
            self.sock = _tls().wrap_socket(self.sock, server_hostname=self._url.host)


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def send(
    method: str,
    url: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    allowed: Sequence[Network] = (),
    timeout: float = TIMEOUT,
    longest: float = LONGEST,
) -> Answer:
    """Send one request. Raises ``AddressRefused`` for a private address, and ``OSError`` if there is no answer.

    A redirect is returned as it is: following it could lead to a private address. After ``longest`` seconds the connection ends; of
    an answer that has begun, the body may then be incomplete.
    """
    target = read_url(url)
    connection = _PinnedConnection(target, refuse_private(target.host, resolve(target), allowed), timeout)
    try:
        connection.connect()
        with _ended_after(longest, connection.sock):
            connection.request(method, target.target, body, {"User-Agent": "tidemill", **(headers or {})})
            answer = connection.getresponse()
            headers_received = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, headers_received, answer.read(_MOST))
    except http.client.HTTPException as error:
        raise OSError(f"{target.host} did not answer with HTTP: {error!r}") from error
    finally:
        connection.close()


@contextmanager
def _ended_after(seconds: float, sock: socket.socket) -> Iterator[None]:
    """End the connection after this time, unless the block has ended."""

    def end() -> None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.name = "tidemill-outgoing-deadline"
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def resolve(url: OutgoingUrl) -> list[str]:
    """The addresses of a host, as the system resolves it."""
    entries = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in entries))
