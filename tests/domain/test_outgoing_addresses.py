"""Outgoing addresses: private ones are refused in every notation."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.outgoing_addresses import is_private, read_networks, read_url, refuse_private
from tidemill.errors import AddressRefused, BadSettings


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "255.255.255.255", "224.0.0.1", "192.0.2.1", "198.18.0.1", "168.63.129.16", "::1", "::", "fe80::1", "fe80::1%eth0",
        "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
        "2002:7f00:1::", "2001:db8::1", "::7f00:1", "fec0::1", "64:ff9b:1::a00:1", "4000::1", "3fff::1",
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert is_private(address)
    with pytest.raises(AddressRefused, match="not a public address"):
        refuse_private("example.com", [address])


@pytest.mark.parametrize("address", ["93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"])
def test_a_public_address_is_allowed(address: str) -> None:
    assert refuse_private("example.com", [address]) == address


def test_one_private_address_among_public_ones_refuses_the_name() -> None:
    with pytest.raises(AddressRefused):
        refuse_private("example.com", ["8.8.8.8", "10.0.0.1"])


def test_a_private_network_can_be_allowed() -> None:
    allowed = read_networks(["10.0.0.0/8", "fd00::/8"])
    assert refuse_private("hook.internal", ["10.1.2.3"], allowed) == "10.1.2.3"
    assert refuse_private("hook.internal", ["fd00::7"], allowed) == "fd00::7"
    with pytest.raises(AddressRefused):
        refuse_private("hook.internal", ["127.0.0.1"], allowed)


def test_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(AddressRefused, match="has no address"):
        refuse_private("example.com", [])


@given(st.integers(0, 2**32 - 1))
def test_an_ipv4_address_inside_an_ipv6_one_is_judged_the_same(number: int) -> None:
    inner = IPv4Address(number)
    assert is_private(f"::ffff:{inner}") == is_private(str(inner))


@pytest.mark.parametrize(
    "url",
    ["ftp://example.com", "https://", "example.com", "https://a:b@example.com", "https://example.com/a b"],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(BadSettings):
        read_url(url)
