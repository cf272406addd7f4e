"""How to reach a PostgreSQL: the URL, less what is meant for us and not for libpq."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from tidemill.errors import BadSettings

_SCHEMA = re.compile(r"^[a-z_][a-z0-9_]{0,40}$")
_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})

KEEPALIVES = {
    "keepalives": "1",
    "keepalives_idle": "3",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "8000",
}
"""A connection whose other end is gone without a word fails within ten seconds."""


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """Everything the driver must know. ``conninfo`` holds the password, ``shown`` does not."""

    conninfo: str
    shown: str
    schema: str = "tidemill"
    pool: int = 10
    notify: bool = True
    pooled: bool | None = None
    statement_timeout: float = 30.0
    lock_timeout: float = 2.0
    connect_timeout: int = 5


def read_settings(url: str) -> PostgresSettings:
    """Take our own options out of the URL's query and leave the rest to libpq."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = query.pop("schema", "tidemill")
    if not _SCHEMA.match(schema) or schema.startswith("pg_"):
        raise BadSettings(
            f"?schema={schema}: give a plain lower-case name, not beginning with pg_", schema=schema
        )
    settings = {
        "schema": schema,
        "pool": int(_number(query, "pool", 10, least=1)),
        "notify": _switch(query, "notify", default=True),
        "pooled": _switch(query, "pgbouncer", default=None),
        "statement_timeout": _number(query, "statement_timeout", 30.0, least=0.001),
        "lock_timeout": _number(query, "lock_timeout", 2.0, least=0.001),
        "connect_timeout": int(_number(query, "connect_timeout", 5, least=1)),
    }
    query = KEEPALIVES | {"application_name": "tidemill", "target_session_attrs": "read-write"} | query
    query["connect_timeout"] = str(settings["connect_timeout"])
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(query, quote_via=quote), ""))
    return PostgresSettings(conninfo=conninfo, shown=hide_password(url), **settings)  # type: ignore[arg-type]


def hide_password(url: str) -> str:
    """The URL as it may be shown and logged."""
    parts = urlsplit(url)
    if parts.password is None and "password=" not in parts.query:
        return url
    user, _, host = parts.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}@{host}" if user else host
    kept = [
        (name, value) for name, value in parse_qsl(parts.query) if name not in ("password", "sslpassword")
    ]
    return urlunsplit((parts.scheme, netloc, parts.path, urlencode(kept), ""))


def _number(query: dict[str, str], name: str, default: float, *, least: float) -> float:
    text = query.pop(name, None)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value < least:
        raise BadSettings(f"?{name}={text}: give a number of {least:g} or more", name=name)
    return value


def _switch(query: dict[str, str], name: str, *, default: bool | None) -> bool | None:
    text = query.pop(name, None)
    if text is None:
        return default
    if text.lower() not in _YES | _NO:
        raise BadSettings(f"?{name}={text}: give 1 or 0", name=name)
    return text.lower() in _YES
