"""Listening sockets for HTTP servers.

Binding errors are raised as ``BadSettings``.
"""

from __future__ import annotations

import ipaddress
import socket

from tidemill.errors import BadSettings

BACKLOG = 2048
"""Connections that may wait to be accepted."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens on this address. Raises with the reason if that is impossible."""
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
    """Return the URL of the server on this socket."""
    return f"http://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}"
