"""What can be set about the HTTP API: its limits, and how closed it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tidemill.errors import BadSettings

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
"""Names a browser on this machine calls us by; any other in a ``Host`` header is somebody else's page talking to us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """The limits of one API. Sizes are bytes; every default is meant for production."""

    allow_anonymous_create: bool = False  #: jobs may be created without a key, for the app's own tenant
    create_rate: float = 100.0  #: jobs a second that one key, or one address without a key, may create
    create_burst: int = 1_000  #: and how many of them at once
    login_rate: float = 1.0  #: wrong keys a second that one address may show
    login_burst: int = 30  #: and how many of them at once
    max_body: int = 1024 * 1024
    max_depth: int = 64  #: of nested lists and objects in a body
    max_headers: int = 32 * 1024
    max_url: int = 8 * 1024
    threads: int = 16  #: at most so many questions to a store at once
    lists: int = 2  #: at most so many of them are pages of jobs, unless they take longer than usual
    max_waiting: int = 1_000  #: questions that may wait for one of these threads; beyond that, 503
    max_streams: int = 2_000  #: open event streams
    heartbeat: float = 15.0  #: seconds between two signs of life in a stream
    idempotency_window: timedelta = timedelta(hours=24)
    read_only: bool = False  #: nothing can be changed through this server, whatever the key
    session_secret: str | None = None  #: signs the dashboard's sessions; without it they end with the server
    hosts: tuple[str, ...] = ()  #: names we may be called by in the ``Host`` header; empty: any

    def __post_init__(self) -> None:
        for name in (
            "create_rate", "create_burst", "login_rate", "login_burst", "max_body", "max_depth", "max_headers", "max_url", "threads",
            "lists", "max_waiting", "max_streams", "heartbeat",
        ):  # fmt: skip
            if getattr(self, name) <= 0:
                raise BadSettings(f"{name} is {getattr(self, name)!r}; give more than zero", setting=name)
        if self.idempotency_window <= timedelta(0):
            raise BadSettings("idempotency_window must be longer than zero", setting="idempotency_window")
