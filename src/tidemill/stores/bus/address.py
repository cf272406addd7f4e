"""The URL of a wake-up bus, and the creation of a bus from it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from tidemill.errors import BadSettings

if TYPE_CHECKING:
    from tidemill.stores.bus.connection import BusConnection
    from tidemill.stores.bus.wakeup_bus import WakeupBus

REDIS = ("redis", "rediss", "valkey", "valkeys")
NATS = ("nats", "tls")
_EXTRAS = {**dict.fromkeys(REDIS, "redis"), **dict.fromkeys(NATS, "nats")}
_KINDS = {"redis": "redis://host:port/0", "nats": "nats://host:port"}


def check_server_url(option: str, url: str, schemes: tuple[str, ...]) -> str:
    """Return the URL of a server in a store's URL, or raise an error that does not show its password."""
    parts = _parts(url)
    if parts is None or parts.scheme not in schemes or not parts.netloc:
        shown = without_password(url)
        kinds = " or ".join(dict.fromkeys(_KINDS[_EXTRAS[scheme]] for scheme in schemes))
        raise BadSettings(f"?{option}={shown}: give {kinds}", name=option)
    if importlib.util.find_spec(_EXTRAS[parts.scheme]) is None:
        extra = _EXTRAS[parts.scheme]
        raise BadSettings(
            f"?{option}={parts.scheme}:// needs the extra {extra!r}; run: pip install 'tidemill[{extra}]'",
            name=option,
        )
    return url


def _parts(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:
        return None


def without_password(url: str) -> str:
    """The URL for display and logs.

    >>> without_password("redis://:secret@cache:6379/0"), without_password("nats://token@n1,n2")
    ('redis://cache:6379/0', 'nats://n1,n2')
    """
    parts = _parts(url)
    if parts is None:
        return "…"
    # A NATS user without a password may be a token.
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def is_redis(url: str | None) -> bool:
    """Whether this is the URL of a Redis or Valkey server."""
    return url is not None and url.partition("://")[0] in REDIS


def redis_url(url: str) -> str:
    """The URL as the client library knows it, which has no scheme of Valkey.

    >>> redis_url("valkeys://cache:6379/0")
    'rediss://cache:6379/0'
    """
    scheme, _, rest = url.partition("://")
    return f"{scheme.replace('valkey', 'redis')}://{rest}"


def open_bus(url: str, channel: Callable[[], str]) -> WakeupBus:
    """The bus at this URL. Nothing is connected yet. ``channel`` reads the name of the store's channel."""
    # Few stores have a bus, and every client imports this module.
    from tidemill.stores.bus.wakeup_bus import WakeupBus

    make: Callable[[], BusConnection]
    # The client libraries are imported here: a script may send its only wake-up while Python exits, when that would fail.
    if url.partition("://")[0] in NATS:
        from tidemill.stores.bus.nats_connection import NatsConnection

        make = partial(NatsConnection, url)
    else:
        from tidemill.stores.bus.redis_connection import RedisConnection

        make = partial(RedisConnection, redis_url(url))
    return WakeupBus(make, channel, without_password(url))
