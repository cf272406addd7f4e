"""HTTP server in this process, for the API or the whole site.

Without an API key it listens only locally. It ends open event streams before it stops.
"""

from __future__ import annotations

import secrets
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

import uvicorn
from starlette.applications import Starlette

from tidemill.errors import BadSettings
from tidemill.sockets import address_of, is_loopback, listening
from tidemill.web.protocols import options
from tidemill.web.service import Service
from tidemill.web.settings import LOOPBACK_NAMES, ApiSettings

if TYPE_CHECKING:
    from tidemill.app import App

GRACE = 5
"""Seconds that a stop waits for open requests."""

TOKEN_BYTES = 32


class Serving(NamedTuple):
    """The address of the server, and the one-time token if there is no key."""

    url: str
    token: str | None


Make = Callable[["App", ApiSettings, str | None], Starlette]


class Server(uvicorn.Server):
    """A uvicorn server that ends event streams on shutdown; uvicorn would wait for them."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully on the first signal, immediately on a second Ctrl-C."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.stop()

    def stop(self) -> None:
        """Shut down gracefully. Safe to call from any thread."""
        self._service.stop()
        self.should_exit = True


def serve(
    app: App,
    *,
    make: Make,
    host: str = "127.0.0.1",
    port: int = 8080,
    settings: ApiSettings | None = None,
    announce: Callable[[Serving], object] = lambda _: None,
    started: Callable[[Server], object] = lambda _: None,
    sock: socket.socket | None = None,
    token: str | None = None,
) -> None:
    """Serve until stopped.

    Without an active key or single sign-on, listen only on the loopback interface and require the announced token.

    ``make`` creates the application from the app, its settings and the token. ``sock`` is
    a socket already listening on ``host``; it is closed at the end. ``token`` is the token to require if there is no
    key, so that a replacement server accepts the same one; by default a new one is generated.
    """
    settings, announced = settings or ApiSettings(), None
    if settings.oidc is None and not app.keys.any():
        if not is_loopback(host):
            raise BadSettings(
                f"there is no active API key, so anyone who can reach {host} would have full access; create one first "
                "(tidemill keys create NAME --role super_admin), or listen on 127.0.0.1",
                setting="host",
            )
        announced = token or secrets.token_urlsafe(TOKEN_BYTES)
        settings = replace(settings, hosts=settings.hosts or (*LOOPBACK_NAMES, host))
    web_app = make(app, settings, announced)
    service: Service = web_app.state.tidemill
    with sock or listening(host, port) as bound:
        config = uvicorn.Config(
            web_app,
            log_config=None,
            access_log=False,
            lifespan="on",
            # Trust only the socket's peer address, never a forwarded header.
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
            **options(settings),
        )
        server = Server(config, service)
        started(server)
        announce(Serving(address_of(host, bound), announced))
        try:
            server.run(sockets=[bound])
        finally:
            service.close()
