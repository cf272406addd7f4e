"""Tests of the faulty proxy."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tests.faults.proxy import Proxy


class Echo:
    """An echo server."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._threads.append(threading.Thread(target=self._answer, args=(connection,)))
                self._threads[-1].start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(4096):
                connection.sendall(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in list(self._threads):
            thread.join(30)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    echo = Echo()
    try:
        with Proxy(("127.0.0.1", echo.port), patience=0.3) as way:
            yield way
    finally:
        echo.close()


def connect(proxy: Proxy, seconds: float = 30.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=seconds)


def ask(line: socket.socket, words: bytes = b"hello") -> bytes:
    line.sendall(words)
    return line.recv(4096)


def refused(proxy: Proxy) -> bool:
    """Return whether connections to the proxy get no response."""
    try:
        with connect(proxy) as line:
            return not ask(line)
    except ConnectionError:
        return True


def test_a_healthy_proxy_forwards_everything(proxy: Proxy) -> None:
    with connect(proxy) as line:
        assert ask(line) == b"hello"
        assert ask(line, b"again") == b"again"


def test_a_cut_breaks_and_refuses_connections_until_healed(proxy: Proxy) -> None:
    with connect(proxy) as line:
        assert ask(line) == b"hello"
        proxy.cut()
        with pytest.raises(ConnectionError):
            line.recv(4096)
    assert refused(proxy)
    proxy.heal()
    with connect(proxy) as line:
        assert ask(line) == b"hello"


def test_a_short_silence_delays_data_and_loses_none() -> None:
    echo = Echo()
    try:
        with Proxy(("127.0.0.1", echo.port), patience=60) as proxy, connect(proxy) as line:
            assert ask(line) == b"hello"
            proxy.silence()
            line.sendall(b"later")
            line.settimeout(0.2)
            with pytest.raises(TimeoutError):
                line.recv(4096)
            proxy.heal()
            line.settimeout(30)
            assert line.recv(4096) == b"later"
    finally:
        echo.close()


def test_a_long_silence_breaks_the_connection(proxy: Proxy) -> None:
    with connect(proxy) as line:
        assert ask(line) == b"hello"
        proxy.silence()
        with pytest.raises(ConnectionError):
            line.recv(4096)
    proxy.heal()
    with connect(proxy) as line:
        assert ask(line) == b"hello"


def test_a_half_open_connection_breaks_after_a_while(proxy: Proxy) -> None:
    with connect(proxy) as line, connect(proxy) as quiet:
        assert ask(line) == b"hello"
        assert ask(quiet) == b"hello"
        proxy.half_open()
        line.sendall(b"is anybody there?")
        with pytest.raises(ConnectionError):
            line.recv(4096)
        with connect(proxy) as fresh:
            assert ask(fresh) == b"hello"


def test_a_slow_proxy_delays_both_directions(proxy: Proxy) -> None:
    with connect(proxy) as line:
        assert ask(line) == b"hello"
        proxy.slow(0.1)
        began = time.monotonic()
        assert ask(line) == b"hello"
        assert time.monotonic() - began >= 0.2
