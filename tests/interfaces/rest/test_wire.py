"""Bounds on request bytes read from a connection, for both HTTP parsers."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from tests.interfaces.rest.served import PATIENCE, Place, place
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidemill.web import protocols
from tidemill.web.settings import ApiSettings

PIECE = b"x" * 65_536
ENOUGH = 64 * 2**20
"""Far more than the limits allow and than the system buffers."""


@pytest.fixture(params=["httptools", "h11"])
def served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param == "h11":
        monkeypatch.setattr(protocols, "_httptools", lambda *_: None)
    else:
        pytest.importorskip("httptools")
    protocol = protocols.options(ApiSettings())["http"]
    assert issubclass(protocol, H11Protocol) is (request.param == "h11")
    with place(request_timeout=getattr(request.function, "seconds", 30.0)) as made:
        yield made


@contextlib.contextmanager
def line(made: Place) -> Iterator[socket.socket]:
    where = urlsplit(made.serving.url)
    with socket.create_connection((str(where.hostname), where.port or 0), timeout=PATIENCE) as found:
        yield found


def pour(to: socket.socket, beginning: bytes) -> int:
    """Send ``beginning`` and then padding until the server disconnects; return the number of padding bytes."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        to.sendall(beginning)
        while sent < ENOUGH:
            to.sendall(PIECE)
            sent += len(PIECE)
    return sent


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET /api/jobs HTTP/1.1\r\nHost: localhost\r\nX-Long: ",
        b"GET /api/jobs?text=",
        b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Long: ",
        b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2;",
    ],
    ids=["header", "address", "trailer", "chunk"],
)
def test_an_endless_head_or_trailer_closes_the_connection(served: Place, beginning: bytes) -> None:
    with line(served) as one:
        assert pour(one, beginning) < ENOUGH
    assert served.request("GET", "/livez")[0] == 200


def test_slightly_oversized_headers_and_urls_get_the_documented_errors(served: Place) -> None:
    status, document = served.request("GET", "/api/jobs", **{"x-long": "x" * 40_000})
    assert (status, document["status"]) == (431, 431)
    status, document = served.request("GET", f"/api/jobs?text={'x' * 9_000}")
    assert (status, document["status"]) == (414, 414)


def test_a_body_in_many_small_chunks_is_read_whole(served: Place) -> None:
    head = (
        f"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.serving.token}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    body = b'{"task": "send", "args": {"to": "' + b"a" * 40_000 + b'"}}'
    pieces = b"".join(b"1;x=yyyyyyyy\r\n%c\r\n" % each for each in body)
    assert len(pieces) > protocols.most_unread(ApiSettings())
    with line(served) as one:
        one.sendall(head.encode() + pieces + b"0\r\n\r\n")
        answer = b"".join(iter(lambda: one.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 201 ")


def brief(test: Callable[..., None]) -> Callable[..., None]:
    """Limit the server of this test to half a second per request."""
    test.seconds = 0.5  # type: ignore[attr-defined]
    return test


@brief
@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"GET /api/jobs HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /livez HTTP/1.1\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "half a second request"],
)
def test_an_incomplete_request_times_out(served: Place, beginning: bytes) -> None:
    with line(served) as to:
        to.sendall(beginning)
        while to.recv(65_536):  # the timeout of the socket fails the test
            pass


@brief
def test_a_stream_may_last_longer_than_the_request_timeout(served: Place) -> None:
    stream = served.follow("/api/events")
    with line(served) as to, contextlib.suppress(ConnectionError):
        while to.recv(65_536):  # until the server closes this connection on timeout
            pass
    served.app.store.notify(["change"])
    assert next(stream.events()).name == "change"
