"""The addresses to which Tidemill sends requests that users configure.

A user who may choose an address must not reach the services of the server's own network with it. The check is pure: the
caller resolves the name, and connects to the address that was checked, so that a second answer of the name server
cannot replace it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

from tidemill.errors import AddressRefused, BadSettings

Network = IPv4Network | IPv6Network

# Public addresses that cloud providers answer from inside: Azure's wire server.
_METADATA = frozenset({ip_address("168.63.129.16")})
_NAT64 = ip_network("64:ff9b::/96")
_IPV4_COMPATIBLE = ip_network("::/96")
# Only 2000::/3 is given to the internet. Python knows few of the others, and 64:ff9b:1::/48 leads to IPv4 networks.
_GLOBAL_UNICAST = ip_network("2000::/3")
_DOCUMENTATION = ip_network("3fff::/20")


class OutgoingUrl(NamedTuple):
    """The parts of an address that a connection needs."""

    scheme: str
    host: str
    port: int
    target: str  #: path and query


def read_url(url: str, *, what: str = "the address") -> OutgoingUrl:
    """Read an ``http`` or ``https`` address without credentials.

    >>> read_url("https://example.com/a?b=1")
    OutgoingUrl(scheme='https', host='example.com', port=443, target='/a?b=1')
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadSettings(f"{what} cannot be read; give a URL such as https://example.com/hook") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadSettings(f"{what} is not an http or https URL; give one such as https://example.com/hook")
    if parts.username is not None or parts.password is not None:
        raise BadSettings(f"{what} contains a user or password; send a signature or a token instead")
    if not url.isprintable() or " " in url:
        raise BadSettings(f"{what} contains blanks or control characters; encode them")
    target = parts.path or "/"
    return OutgoingUrl(
        parts.scheme,
        parts.hostname,
        port or (443 if parts.scheme == "https" else 80),
        f"{target}?{parts.query}" if parts.query else target,
    )


def read_networks(given: Iterable[str]) -> tuple[Network, ...]:
    """Read networks that are allowed although they are private.

    >>> read_networks(["10.0.0.0/8"])
    (IPv4Network('10.0.0.0/8'),)
    """
    try:
        return tuple(ip_network(text) for text in given)
    except ValueError as error:
        raise BadSettings(f"outgoing_networks: {error}; give networks such as 10.0.0.0/8") from None


def is_private(address: str) -> bool:
    """Whether an address is not a public one: private, loopback, link-local, multicast, reserved or of a cloud's metadata.

    >>> [is_private(text) for text in ("127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "93.184.215.14")]
    [True, True, True, False]
    """
    return _is_private(ip_address(address.partition("%")[0]))


def refuse_private(host: str, addresses: Sequence[str], allowed: Sequence[Network] = ()) -> str:
    """Return the address to connect to, or raise ``AddressRefused``.

    Every address that the name has must be public or in an allowed network: a name with one private address would
    reach it sooner or later.
    """
    if not addresses:
        raise AddressRefused(f"{host} has no address; check the name", host=host)
    for address in addresses:
        ip = ip_address(address.partition("%")[0])
        if _is_private(ip) and not any(ip in network for network in allowed if network.version == ip.version):
            raise AddressRefused(
                f"{host} is {address}, which is not a public address; "
                "allow its network with App(outgoing_networks=[…]) if that is intended",
                host=host,
                address=address,
            )
    return addresses[0]


def _is_private(ip: IPv4Address | IPv6Address) -> bool:
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and (ip in _NAT64 or ip in _IPV4_COMPATIBLE) and int(ip) > 1:
            inner = IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return _is_private(inner)
        if ip not in _GLOBAL_UNICAST or ip in _DOCUMENTATION:
            return True
    return not ip.is_global or ip.is_multicast or ip in _METADATA
