"""Creation of a wire from its URL. Nothing is connected yet: that happens with the first use."""

from __future__ import annotations

import importlib.util
import re
from urllib.parse import parse_qsl, urlsplit

from tidemill.errors import BadSettings
from tidemill.stores.wire.base import HubWire, without_password

_KINDS = "nats://host/name, tls://host/name (NATS), amqp://host/name, amqps://host/name (RabbitMQ)"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
DEFAULT_NAME = "tidemill"
"""The name of a wire whose URL has none. Hubs and hands of one wire have the same name."""


def open_wire(url: str) -> HubWire:
    """The wire at this URL."""
    parts = urlsplit(url)
    name = parts.path.strip("/") or DEFAULT_NAME
    if parts.scheme not in _OPTIONS or not parts.netloc:
        raise BadSettings(
            f"{without_password(url)!r} is not the address of a wire; expected one of {_KINDS}",
            setting="wire",
        )
    if not _NAME.fullmatch(name):
        raise BadSettings(
            f"the wire's name {name!r} is not valid; use up to 64 letters, digits, hyphens and underscores",
            setting="wire",
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    allowed = _OPTIONS[parts.scheme]
    for option in options:
        if option not in allowed:
            expected = ", ".join(allowed) or "none"
            raise BadSettings(
                f"unknown option {option!r} of the wire; expected one of {expected}", setting="wire"
            )
    return _amqp(url, name, options) if parts.scheme.startswith("amqp") else _nats(url, name)


_OPTIONS: dict[str, tuple[str, ...]] = {
    "nats": (),
    "tls": (),
    "amqp": ("queue", "vhost"),
    "amqps": ("queue", "vhost"),
}


def _nats(url: str, name: str) -> HubWire:
    _need("nats", "a wire over NATS", "nats")
    from tidemill.stores.wire.nats import NatsWire, nats_servers

    return NatsWire(url, nats_servers(url), name)


def _amqp(url: str, name: str, options: dict[str, str]) -> HubWire:
    _need("aio_pika", "a wire over RabbitMQ", "rabbitmq")
    from tidemill.stores.wire.amqp import AmqpWire, amqp_servers

    kind = options.get("queue", "classic")
    if kind not in ("classic", "quorum"):
        raise BadSettings(f"queue is {kind!r}; expected classic or quorum", setting="wire")
    return AmqpWire(url, amqp_servers(url, options.get("vhost")), name, quorum=kind == "quorum")


def _need(module: str, what: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise BadSettings(f"{what} needs the extra {extra!r}; run: pip install 'tidemill[{extra}]'")
