"""A real server on a free local port, and a reader of its event streams."""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.applications import Starlette
from tests.interfaces.rest.kit import declare
from tests.interfaces.rest.witness import Witness

from tidemill import App
from tidemill.clock import Clock
from tidemill.rest import ApiSettings, create_api
from tidemill.web.guard import KeyCache, OneTimeToken
from tidemill.web.server import Make, Server, Serving, serve

PATIENCE = 60.0


class Told(NamedTuple):
    """One event read from a stream."""

    id: str
    name: str
    data: Any


class Stream:
    """An open stream, read line by line; ``close`` passes everything read to ``hear``."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        answer: http.client.HTTPResponse,
        hear: Callable[[str], None],
    ) -> None:
        self._connection, self.answer, self._hear = connection, answer, hear
        self._read = [f"{name}: {value}" for name, value in answer.getheaders()]

    def lines(self) -> Iterator[str]:
        """Yield every line until the stream ends."""
        while line := self.answer.readline():
            text = line.decode().rstrip("\n")
            self._read.append(text)
            yield text

    def events(self) -> Iterator[Told]:
        """Yield every event until the stream ends."""
        facts: dict[str, str] = {}
        for line in self.lines():
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                facts[name] = value
            elif not line and "data" in facts:
                yield Told(facts["id"], facts["event"], json.loads(facts["data"]))
                facts = {}

    def close(self) -> None:
        self._hear("\n".join(self._read))
        self.answer.close()
        self._connection.close()


class Place:
    """A running server."""

    def __init__(self, app: App, serving: Serving, server: Server) -> None:
        self.app, self.serving, self.server = app, serving, server
        self._open: list[Stream] = []
        self.witness = Witness(app)

    def _connect(self) -> http.client.HTTPConnection:
        where = urlsplit(self.serving.url)
        return http.client.HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE)

    def request(
        self, method: str, path: str, body: Any = None, key: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        """The status and document of one request, sent with this key or with the server's token."""
        connection = self._connect()
        try:
            given = {
                "authorization": f"Bearer {key or self.serving.token}",
                "content-type": "application/json",
                **headers,
            }
            connection.request(method, path, None if body is None else json.dumps(body), given)
            answer = connection.getresponse()
            text = answer.read()
            self._hear(
                key,
                f"{method} {path}\n{json.dumps(body)}",
                f"{answer.getheaders()}\n{text.decode('utf-8', 'replace')}",
            )
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def follow(self, path: str, key: str | None = None, **headers: str) -> Stream:
        """Open an event stream."""
        connection = self._connect()
        connection.request(
            "GET", path, headers={"authorization": f"Bearer {key or self.serving.token}", **headers}
        )
        stream = Stream(
            connection, connection.getresponse(), lambda told: self._hear(key, f"GET {path}\n{headers}", told)
        )
        self._open.append(stream)
        return stream

    def _hear(self, key: str | None, asked: str, told: str) -> None:
        if key is not None:  # the token belongs to no tenant
            self.witness.hear(f"Bearer {key}", asked, told)

    def close(self) -> None:
        for stream in self._open:
            stream.close()
        self.witness.check()


def make_api(app: App, settings: ApiSettings, token: str | None) -> Starlette:
    """Create the API alone."""
    return create_api(app, auth=KeyCache(app, OneTimeToken(app, token) if token else None), settings=settings)


@contextlib.contextmanager
def place(
    url: str = "memory://",
    *,
    tasks: Callable[[App], object] = declare,
    make: Make = make_api,
    clock: Clock | None = None,
    stores: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Place]:
    """Run a server over a store in a thread of this process; ``make`` builds the application, by default the API."""
    with App(url, stores=stores, migrate=True, clock=clock) as app:
        tasks(app)
        servers: list[Server] = []
        told: queue.Queue[Serving | BaseException] = queue.Queue()

        def run() -> None:
            try:
                serve(
                    app,
                    port=0,
                    settings=ApiSettings(**settings),
                    announce=told.put,
                    started=servers.append,
                    make=make,
                )
            except BaseException as error:  # noqa: BLE001  (raised in the waiting thread)
                told.put(error)

        thread = threading.Thread(target=run)
        thread.start()
        serving = told.get(timeout=PATIENCE)
        if isinstance(serving, BaseException):
            raise serving
        made = Place(app, serving, servers[0])
        try:
            yield made
        finally:
            made.server.stop()
            thread.join(PATIENCE)
            made.close()
            assert not thread.is_alive()
