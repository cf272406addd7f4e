"""Additional load on a server: event streams, slow clients, and a huge body."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

GIGABYTE = 1 << 30
CHUNK = b"x" * 65536


def _connect(url: str) -> socket.socket:
    where = urlsplit(url)
    return socket.create_connection((str(where.hostname), int(where.port or 80)), timeout=30)


@contextlib.contextmanager
def streams(url: str, key: str, count: int) -> Iterator[int]:
    """Open event streams, wait until each has answered, and yield their number."""
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            line = _connect(url)
            opened.append(line)
            line.sendall(
                f"GET /api/events HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
            )
        answered = sum(line.recv(64).startswith(b"HTTP/1.1 200") for line in opened)
        yield answered
    finally:
        for line in opened:
            line.close()


@contextlib.contextmanager
def slow_clients(url: str, key: str, count: int) -> Iterator[None]:
    """Run clients that start a request and never finish it: half of them in the head, half in the body."""
    opened: list[socket.socket] = []
    try:
        for number in range(count):
            line = _connect(url)
            opened.append(line)
            head = f"POST /api/jobs HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
            if number % 2:
                head += "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
            line.sendall(head.encode())
        yield
    finally:
        for line in opened:
            line.close()


@dataclass(frozen=True)
class Cut:
    """How a body that is too large was rejected."""

    status: int
    sent: int  #: bytes that could be sent before
    seconds: float


def giant(url: str, key: str, *, chunked: bool) -> Cut:
    """Send a gigabyte, with Content-Length or in chunks; return when it was rejected."""
    size = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {GIGABYTE}"
    head = f"POST /api/jobs HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n{size}\r\n\r\n"
    block = f"{len(CHUNK):x}\r\n".encode() + CHUNK + b"\r\n" if chunked else CHUNK
    began, sent, answer = time.perf_counter(), 0, b""
    with _connect(url) as line:
        line.sendall(head.encode())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while sent < GIGABYTE:
                line.sendall(block)
                sent += len(CHUNK)
        with contextlib.suppress(ConnectionResetError):
            answer = line.recv(64)
    status = int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0
    return Cut(status, sent, time.perf_counter() - began)
