"""Connections to RabbitMQ, with the extra ``rabbitmq``."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit

from tidemill.errors import BadSettings

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection

SCHEMES = ("amqp", "amqps")
PATIENCE = 10.0
"""Seconds that a broker has to accept a connection."""

_HEARTBEAT = "10"  # seconds; a connection whose peer has vanished fails after about three


def check_broker_url(option: str, url: object) -> str:
    """Return the URL of a RabbitMQ server, or raise an error that does not show its password."""
    if not isinstance(url, str) or not url.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        raise BadSettings(
            f"{option}: give the URL of a RabbitMQ server, such as amqp://user:password@host/vhost",
            setting=option,
        )
    try:
        urlsplit(url).port  # noqa: B018  (it raises for a port that is no number)
    except ValueError:
        raise BadSettings(
            f"{option}: the URL cannot be read; percent-encode special characters of the password",
            setting=option,
        ) from None
    if importlib.util.find_spec("aio_pika") is None:
        raise BadSettings(
            f"{option}: amqp:// needs the extra 'rabbitmq'; run: pip install 'tidemill[rabbitmq]'",
            setting=option,
        )
    return url


def split_options(url: str, *names: str) -> tuple[str, dict[str, str]]:
    """Separate options of Tidemill from the URL of a server.

    >>> split_options("amqp://host/%2F?exchange=jobs&heartbeat=5", "exchange")
    ('amqp://host/%2F?heartbeat=5', {'exchange': 'jobs'})
    """
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in query if name in names}
    rest = [(name, value) for name, value in query if name not in names]
    return parts._replace(query=urlencode(rest)).geturl(), own


async def connect(url: str, name: str) -> AbstractConnection:
    """Connect once. Callers reconnect by themselves: the library's own reconnecting loses consumers."""
    import aio_pika

    parts = urlsplit(url)
    query = {"heartbeat": _HEARTBEAT, **dict(parse_qsl(parts.query))}
    return await aio_pika.connect(
        parts._replace(query=urlencode(query)).geturl(),
        timeout=PATIENCE,
        client_properties={"connection_name": name},
    )
