"""Settings of the HTTP API: limits and access."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.domain.durations import Duration, read_duration, set_durations
from tidemill.errors import BadSettings
from tidemill.web.oidc_settings import Oidc

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
"""Host names of this machine. Any other ``Host`` header indicates a request from another site's page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """The limits of one API. Sizes are in bytes; every default is suitable for production."""

    allow_anonymous_create: bool = False  #: allow creating jobs without a key, in the app's own tenant
    create_rate: float = 100.0  #: jobs per second that one key, or one address without a key, may create
    create_burst: int = 1_000  #: burst size of `create_rate`
    login_rate: float = 1.0  #: invalid keys per second allowed from one address
    login_burst: int = 30  #: burst size of `login_rate`
    max_body: int = 1024 * 1024  #: size of a body
    max_depth: int = 64  #: nesting depth of a body
    max_headers: int = 32 * 1024  #: size of all headers of a request
    max_url: int = 8 * 1024  #: length of path and query
    threads: int = 16  #: maximum number of concurrent store calls
    lists: int = 2  #: maximum number of concurrent job list queries, except slow ones
    max_waiting: int = 1_000  #: calls that may wait for a thread; beyond that, 503
    max_streams: int = 2_000  #: open event streams; beyond that, 503
    max_streams_per_key: int = 50  #: open event streams per key or signed-in user; beyond that, 429
    request_timeout: float = 30.0  #: seconds within which a request must arrive completely
    heartbeat: float = 15.0  #: seconds between two keep-alive comments in a stream
    #: how long an `Idempotency-Key` returns the same job after the first request
    idempotency_window: timedelta = timedelta(hours=24)
    read_only: bool = False  #: refuse all changes through this server, whatever the role
    #: signs one-time messages, and the forms of users whom `auth` identifies
    session_secret: str | None = None
    session_lifetime: timedelta = timedelta(hours=12)  #: how long a sign-in to the dashboard lasts
    hosts: tuple[str, ...] = ()  #: allowed names in the ``Host`` header; empty: any
    oidc: Oidc | None = None  #: single sign-on; None: users sign in with API keys only

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            allow_anonymous_create: bool = ...,
            create_rate: float = ...,
            create_burst: int = ...,
            login_rate: float = ...,
            login_burst: int = ...,
            max_body: int = ...,
            max_depth: int = ...,
            max_headers: int = ...,
            max_url: int = ...,
            threads: int = ...,
            lists: int = ...,
            max_waiting: int = ...,
            max_streams: int = ...,
            max_streams_per_key: int = ...,
            request_timeout: Duration = ...,
            heartbeat: Duration = ...,
            idempotency_window: Duration = ...,
            read_only: bool = ...,
            session_secret: str | None = ...,
            session_lifetime: Duration = ...,
            hosts: tuple[str, ...] = ...,
            oidc: Oidc | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        set_durations(
            self,
            "ApiSettings",
            idempotency_window=self.idempotency_window,
            session_lifetime=self.session_lifetime,
        )
        for name in ("request_timeout", "heartbeat"):
            seconds = read_duration(f"ApiSettings: {name}", getattr(self, name)).total_seconds()
            object.__setattr__(self, name, seconds)
        for name in (
            "create_rate", "create_burst", "login_rate", "login_burst", "max_body", "max_depth", "max_headers", "max_url", "threads",
            "lists", "max_waiting", "max_streams", "max_streams_per_key", "request_timeout", "heartbeat",
        ):  # fmt: skip
            if getattr(self, name) <= 0:
                raise BadSettings(f"{name} is {getattr(self, name)!r}; give more than zero", setting=name)
        for name in ("idempotency_window", "session_lifetime"):
            if getattr(self, name) <= timedelta(0):
                raise BadSettings(f"{name} must be longer than zero", setting=name)
