"""What is read off the wire is bounded, whoever reads it: a head without an end, or a trailer, is not kept in memory for ever."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from tests.interfaces.rest.served import PATIENCE, Place, place

from tidemill.rest import wire
from tidemill.rest.settings import ApiSettings

PIECE = b"x" * 65_536
ENOUGH = 64 * 2**20
"""Far more than anybody may send, and than what the system keeps on the way."""


@pytest.fixture(params=["httptools", "h11"])
def served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param == "h11":
        monkeypatch.setattr(wire, "_httptools", lambda most: None)
    else:
        pytest.importorskip("httptools")
    assert (wire.options(ApiSettings())["http"] == "h11") is (request.param == "h11")
    with place() as made:
        yield made


@contextlib.contextmanager
def line(made: Place) -> Iterator[socket.socket]:
    where = urlsplit(made.serving.url)
    with socket.create_connection((str(where.hostname), where.port or 0), timeout=PATIENCE) as found:
        yield found


def pour(to: socket.socket, beginning: bytes) -> int:
    """Say this, and then more and more, until the other side hangs up; how much that was."""
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
def test_who_never_comes_to_the_point_is_hung_up_on(served: Place, beginning: bytes) -> None:
    with line(served) as one:
        assert pour(one, beginning) < ENOUGH
    assert served.request("GET", "/livez")[0] == 200


def test_headers_that_are_a_little_too_large_are_answered_as_the_document_promises(served: Place) -> None:
    status, document = served.request("GET", "/api/jobs", **{"x-long": "x" * 40_000})
    assert (status, document["status"]) == (431, 431)
    status, document = served.request("GET", f"/api/jobs?text={'x' * 9_000}")
    assert (status, document["status"]) == (414, 414)


def test_a_body_in_many_small_pieces_is_read_whole(served: Place) -> None:
    head = (
        f"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.serving.token}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    body = b'{"task": "send", "args": {"to": "' + b"a" * 40_000 + b'"}}'
    pieces = b"".join(b"1;x=yyyyyyyy\r\n%c\r\n" % each for each in body)
    assert len(pieces) > wire.most_unread(ApiSettings())
    with line(served) as one:
        one.sendall(head.encode() + pieces + b"0\r\n\r\n")
        answer = b"".join(iter(lambda: one.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 201 ")
