"""Store URLs of the databases in a project's ``DATABASES``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

_POSTGRES_OPTIONS = (
    "application_name", "channel_binding", "client_encoding", "connect_timeout", "gssencmode", "hostaddr", "keepalives",
    "keepalives_count", "keepalives_idle", "keepalives_interval", "options", "passfile", "service", "sslcert", "sslkey",
    "sslmode", "sslpassword", "sslrootcert", "target_session_attrs", "tcp_user_timeout",
)  # fmt: skip
"""Options of Django's PostgreSQL backend that belong to the connection and not to Django."""


def store_url(alias: str) -> str:
    """Return the URL of the store in a database of the project, as it is configured now.

    Test runners change the name of the database, so the result may differ from call to call.
    """
    if alias not in connections:
        raise ImproperlyConfigured(
            f"TIDEMILL names the database {alias!r}; DATABASES has {', '.join(sorted(connections))}"
        )
    wrapper = connections[alias]
    if wrapper.vendor == "postgresql":
        return _postgres_url(wrapper.settings_dict)
    if wrapper.vendor == "sqlite":
        return _sqlite_url(alias, wrapper)
    raise ImproperlyConfigured(
        f"database {alias!r} is {wrapper.display_name}; jobs need PostgreSQL or SQLite: name one as TIDEMILL['database'],"
        " or give TIDEMILL['store']"
    )


def _postgres_url(settings: Mapping[str, Any]) -> str:
    options = settings.get("OPTIONS") or {}
    query = {name: str(options[name]) for name in _POSTGRES_OPTIONS if name in options}
    for name, key in (("user", "USER"), ("password", "PASSWORD"), ("host", "HOST"), ("port", "PORT")):
        if settings.get(key):
            query[name] = str(settings[key])
    # A user or host in the query takes any character, also the path of a socket.
    user, host = query.pop("user", ""), query.get("host", "")
    address = quote(user, safe="")
    if password := query.pop("password", ""):
        address += f":{quote(password, safe='')}"
    address += "@" if address else ""
    if host and not host.startswith("/"):
        address += query.pop("host")
        if port := query.pop("port", ""):
            address += f":{port}"
    name = quote(str(settings.get("NAME") or ""), safe="")
    return f"postgresql://{address}/{name}" + (f"?{urlencode(query)}" if query else "")


def is_in_memory(wrapper: Any) -> bool:
    """Whether this is a SQLite database without a file, as in tests."""
    return wrapper.vendor == "sqlite" and bool(wrapper.is_in_memory_db())


def _sqlite_url(alias: str, wrapper: Any) -> str:
    if is_in_memory(wrapper):
        raise ImproperlyConfigured(
            f"the SQLite database {alias!r} is in memory, where jobs cannot be shared; for tests, use TidemillTestCase, or"
            " name a file: DATABASES[…]['TEST'] = {'NAME': BASE_DIR / 'test.sqlite3'}"
        )
    path = Path(wrapper.settings_dict["NAME"]).absolute().as_posix()
    return f"sqlite:///{quote(path)}?shared=1"
