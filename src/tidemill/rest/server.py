"""Serving the API in this process: closed unless keys are configured, and ending its streams before it stops."""

from __future__ import annotations

import secrets
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

import uvicorn
from fastapi import FastAPI

from tidemill.errors import BadSettings
from tidemill.listening import address_of, is_loopback, listening
from tidemill.rest.api import create_api
from tidemill.rest.guard import Keys
from tidemill.rest.service import Service
from tidemill.rest.settings import LOOPBACK_NAMES, ApiSettings
from tidemill.rest.wire import options

if TYPE_CHECKING:
    from tidemill.app import App

GRACE = 5
"""Seconds a stop waits for requests under way."""

TOKEN_BYTES = 32


class Serving(NamedTuple):
    """Where it is served, and the token that opens it where there is no key."""

    url: str
    token: str | None


Make = Callable[["App", ApiSettings, str | None], FastAPI]


class Server(uvicorn.Server):
    """A server that tells its streams to end when it is told to stop: it would wait for them otherwise."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal stops in good order, a second Ctrl-C at once."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.stop()

    def stop(self) -> None:
        """Stop in good order; may be called from any thread."""
        self._service.stop()
        self.should_exit = True


def serve(
    app: App,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    settings: ApiSettings | None = None,
    announce: Callable[[Serving], object] = lambda _: None,
    started: Callable[[Server], object] = lambda _: None,
    sock: socket.socket | None = None,
    token: str | None = None,
    make: Make | None = None,
) -> None:
    """Serve until told to stop. Without a living key only on this machine, and only to who has the token that is announced.

    ``make`` makes what is served, of the app, its settings and the token; without it that is the API alone. ``sock`` already listens on ``host``, and is closed at the end. ``token`` is the one to ask for where there is no key, so
    that a server that takes another's place opens to the same; without it a new one is made.
    """
    chosen, asked, token = settings or ApiSettings(), token, None
    if not app.keys.any():
        if not is_loopback(host):
            raise BadSettings(
                f"there is no living key, so anybody who reaches {host} could do anything; make one first "
                "(tidemill keys create NAME --role super_admin), or serve on 127.0.0.1",
                setting="host",
            )
        token = asked or secrets.token_urlsafe(TOKEN_BYTES)
        chosen = replace(chosen, hosts=chosen.hosts or (*LOOPBACK_NAMES, host))
    api = (make or _api)(app, chosen, token)
    service: Service = api.state.tidemill
    with sock or listening(host, port) as bound:
        config = uvicorn.Config(
            api,
            log_config=None,
            access_log=False,
            lifespan="on",
            proxy_headers=False,  # who is near is judged by the socket, never by what a header says
            server_header=False,
            timeout_graceful_shutdown=GRACE,
            **options(chosen),
        )
        server = Server(config, service)
        started(server)
        announce(Serving(address_of(host, bound), token))
        try:
            server.run(sockets=[bound])
        finally:
            service.close()


def _api(app: App, settings: ApiSettings, token: str | None) -> FastAPI:
    return create_api(app, auth=Keys(app, token), settings=settings)
