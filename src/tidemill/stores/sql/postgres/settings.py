"""Connection settings of PostgreSQL, from the store's URL."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tidemill.errors import BadSettings
from tidemill.stores.bus.address import NATS, REDIS, check_server_url, is_redis, without_password

_HOST = r"(?:\[[^\]]*\]|[^@:\[\],]*)(?::\d*)?"
_HOSTS = re.compile(f"^{_HOST}(?:,{_HOST})*$")
_MOST = 1_000_000
_UNREADABLE = (
    "the PostgreSQL URL cannot be read; write postgresql://user:password@host:port/database, with special"
    " characters of the password percent-encoded (@ as %40, / as %2F, ? as %3F, # as %23)"
)
_SCHEMA = re.compile(r"^[a-z_][a-z0-9_]{0,40}$")
_SECRET, _URLS = frozenset({"password", "sslpassword"}), frozenset({"wake", "locks"})
_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})

KEEPALIVES = {
    "keepalives": "1",
    "keepalives_idle": "3",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "8000",
}
"""A connection whose peer has vanished fails within ten seconds."""


DURABILITY = {"local": "local", "standby": "on", "applied": "remote_apply"}
"""What ``?durability=`` sets ``synchronous_commit`` to."""


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """The driver's settings. ``conninfo`` contains the password, ``shown`` does not."""

    conninfo: str = field(repr=False)
    shown: str
    schema: str = "tidemill"
    pool: int = 10
    notify: bool = True
    pooled: bool | None = None
    statement_timeout: float = 30.0
    lock_timeout: float = 2.0
    connect_timeout: int = 5
    durability: str | None = None  #: None leaves it to the server
    wake: str | None = field(default=None, repr=False)  #: the URL of the wake-up bus, with its password
    locks: str | None = field(
        default=None, repr=False
    )  #: the URL of the lock server; also the bus, if that is Redis

    @property
    def commits(self) -> dict[str, str]:
        """The session's setting for the durability of commits, if one is wanted."""
        return {} if self.durability is None else {"synchronous_commit": DURABILITY[self.durability]}


def read_settings(url: str) -> PostgresSettings:
    """Remove the store's own options from the URL's query and leave the rest to libpq."""
    parts = _split(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = query.pop("schema", "tidemill")
    if not _SCHEMA.match(schema) or schema.startswith("pg_"):
        raise BadSettings(
            f"?schema={schema}: give a plain lower-case name, not beginning with pg_", schema=schema
        )
    settings: dict[str, Any] = {
        "schema": schema,
        "pool": int(_number(query, "pool", 10, least=1)),
        "notify": _switch(query, "notify", default=True),
        "pooled": _switch(query, "pgbouncer", default=None),
        "statement_timeout": _number(query, "statement_timeout", 30.0, least=0.001),
        "lock_timeout": _number(query, "lock_timeout", 2.0, least=0.001),
        "connect_timeout": int(_number(query, "connect_timeout", 5, least=1)),
        "durability": _durability(query),
        "wake": _server(query, "wake", (*REDIS, *NATS)),
        "locks": _server(query, "locks", REDIS),
    }
    if settings["wake"] is not None and not settings["notify"]:
        raise BadSettings(
            "?notify=0 turns wake-ups off, and ?wake= names a server for them; give one of them"
        )
    if settings["locks"] is None and is_redis(settings["wake"]):
        settings["locks"] = settings["wake"]
    query = KEEPALIVES | {"application_name": "tidemill", "target_session_attrs": "read-write"} | query
    query["connect_timeout"] = str(settings["connect_timeout"])
    query["client_encoding"] = "UTF8"
    conninfo = f"postgresql://{parts.netloc}{parts.path}?{urlencode(query, quote_via=quote)}"
    shown = _hide_password(url, parts)
    try:
        conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError as error:
        # Not "from error": libpq may quote the password.
        raise BadSettings(f"{shown} is not a PostgreSQL URL: {_complaint(error)}") from None
    return PostgresSettings(conninfo=conninfo, shown=shown, **settings)


def _split(url: str) -> SplitResult:
    """The URL's parts. If an unescaped character of the password breaks the URL, the error shows nothing of it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadSettings(_UNREADABLE) from None
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    torn = parts.fragment or any("@" in text for text in (parts.path, *names))
    hosts = parts.netloc.partition("@")[2] if "@" in parts.netloc else parts.netloc
    if torn or not _HOSTS.match(hosts):
        raise BadSettings(_UNREADABLE)
    return parts


def _hide_password(url: str, parts: SplitResult) -> str:
    """The URL without its password, for display and logs."""
    query = parse_qsl(parts.query, keep_blank_values=True)
    if parts.password is None and not any(name in _SECRET or name in _URLS for name, _ in query):
        return url
    user, _, host = parts.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}@{host}" if user else host
    kept = [
        (name, without_password(value) if name in _URLS else value)
        for name, value in query
        if name not in _SECRET
    ]
    return f"{parts.scheme}://{netloc}{parts.path}" + (f"?{urlencode(kept, safe=':/,')}" if kept else "")


def _complaint(error: psycopg.Error) -> str:
    """libpq's message without the part of the URL it quotes; only the name of an unknown option is harmless."""
    text = str(error).strip()
    return text if "query parameter" in text else text.partition(': "')[0]


def _durability(query: dict[str, str]) -> str | None:
    word = query.pop("durability", None)
    if word is not None and word not in DURABILITY:
        raise BadSettings(
            f"unknown durability {word!r}; expected one of {', '.join(DURABILITY)}", name="durability"
        )
    return word


def _server(query: dict[str, str], name: str, schemes: tuple[str, ...]) -> str | None:
    url = query.pop(name, None)
    return None if url is None else check_server_url(name, url, schemes)


def _number(query: dict[str, str], name: str, default: float, *, least: float) -> float:
    text = query.pop(name, None)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= _MOST:
        raise BadSettings(f"?{name}={text}: give a number from {least:g} to {_MOST:,}", name=name)
    return value


def _switch(query: dict[str, str], name: str, *, default: bool | None) -> bool | None:
    text = query.pop(name, None)
    if text is None:
        return default
    if text.lower() not in _YES | _NO:
        raise BadSettings(f"?{name}={text}: give 1 or 0", name=name)
    return text.lower() in _YES
