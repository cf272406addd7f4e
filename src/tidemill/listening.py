"""Sockets to be served on. It binds them and says why that is impossible; who serves there is not its affair."""

from __future__ import annotations

import ipaddress
import socket

from tidemill.errors import BadSettings

BACKLOG = 2048
"""Connections that may wait to be accepted."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there, or an error that says why not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise BadSettings(f"cannot listen on {host}: {error}", setting="host") from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise BadSettings(f"cannot listen on {host} port {port}: {error}", setting="port") from None
    return found


def address_of(host: str, sock: socket.socket) -> str:
    """Where a browser finds what is served on this socket."""
    return f"http://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}"
