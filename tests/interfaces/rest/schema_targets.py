"""APIs in this process with example data on new stores, which answer requests that schemathesis generated."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
import schemathesis
from starlette.types import Message
from tests.grounds import new_database, new_file
from tests.interfaces.rest.estate import Estate, add_work, body_of, declare_decision, furnish, with_error
from tests.interfaces.rest.kit import Browser, declare
from tests.servers.postgres import running_postgres

from tidemill import App, Manual
from tidemill.domain.alert_history import NewAlert
from tidemill.domain.cluster import Worker
from tidemill.domain.subscriptions import StoredSubscription
from tidemill.ids import new_id
from tidemill.rest import ApiSettings, create_api
from tidemill.rest.routes import ApiOperation

TENANT = "acme"

BASE = "http://shop.example"

KEY = "Bearer the-key-of-the-target"
"""The header of authorised requests, before a target replaces it with its own key."""

STREAM_SECONDS = 0.005
"""Time after the first bytes of an event stream, after which the client disconnects."""

PATIENCE = 60.0
"""Maximum seconds of one request."""

HOOK = ("TIDEMILL_HOOK_SHOP", "stripe:whsec_example")


class Target:
    """An API over one store, with objects of every kind, and a key that may do everything."""

    def __init__(self, url: str) -> None:
        self.app = App(url, migrate=True)
        declare(self.app)
        declare_decision(self.app)
        settings = ApiSettings(create_rate=1e6, create_burst=1_000_000, login_burst=1_000_000)
        self._api = create_api(self.app, settings=settings)
        self._browser = Browser(self._api)
        self._browser.witness = None
        self._keys = [
            self.app.keys.create(f"examiner of {tenant}", role="super_admin", tenant=tenant).secret
            for tenant in (TENANT, None)
        ]
        self.estate = furnish(self.app, TENANT)
        self.estate = add_work(self.app, self.estate, partial(self._ask, self.estate))
        self.app.testing().drain()
        self.estate = with_error(self.app, self.estate)
        self._others = self._add_others()

    def close(self) -> None:
        self._browser.close()
        self.app.close()

    def _ask(self, estate: Estate, method: str, path: str, body: Any) -> Any:
        return self._browser.request(
            method, path, headers={"authorization": f"Bearer {estate.secret}"}, json=body
        )

    def _add_others(self) -> dict[str, str]:
        """Create the objects that belong to no tenant; return a path of each."""
        store = self.app.store
        worker = store.register(Worker(new_id(), "w1"), lease=timedelta(days=1))
        store.acquire("duties", worker.id, ttl=timedelta(days=1))
        alert = NewAlert(new_id(), "orphans", "", "warning", "two jobs", 2, 0)
        store.open_alerts([alert])
        store.put_settings([StoredSubscription("billing", ("job.finished",)).setting()])
        self.app.sessions.begin("ann", timedelta(days=1))
        self.app.schedules.add("send", Manual(), "nightly", args={"to": "ada"})
        return {
            "/api/workers/": str(worker.id),
            "/api/leases/": "duties",
            "/api/alerts/": str(alert.id),
            "/api/subscriptions/": "billing",
            "/api/sessions/": self.app.sessions.list()[0].id,
            "/api/tenants/": TENANT,
            "/api/hooks/": "shop",
            "/api/queues/": "mail",
            "/api/tasks/": "send",
        }

    def parameters(self, act: ApiOperation) -> list[dict[str, str]]:
        """Path parameters of a route that name existing objects."""
        for prefix, value in self._others.items():
            if act.path.startswith(prefix):
                return [dict.fromkeys(("id", "name"), value)]
        addresses = self.estate.addresses(act.path)
        return [_parameters(act.shown_path, address) for address in addresses]

    def body(self, act: ApiOperation) -> Any:
        """A body that the route accepts, if one is known."""
        return body_of(act, self.estate)

    def send(self, case: schemathesis.Case[Any], *, everywhere: bool) -> schemathesis.Response:
        """Send a generated request, with a key of all tenants or of one, and return the response."""
        given = case.as_transport_kwargs(base_url=BASE)
        if given["headers"].get("Authorization") == KEY:
            given["headers"]["Authorization"] = f"Bearer {self._keys[everywhere]}"
        request = requests.Request(**{k: v for k, v in given.items() if k in _GIVEN}).prepare()
        began = time.perf_counter()
        exchange = _Exchange(request)
        self._browser.run(asyncio.wait_for(exchange.run(self._api), PATIENCE))
        return schemathesis.Response(
            status_code=exchange.status,
            headers=exchange.headers,
            content=exchange.content,
            request=request,
            elapsed=time.perf_counter() - began,
            verify=False,
            encoding="utf-8",
        )


_GIVEN = frozenset({"method", "url", "headers", "cookies", "params", "data", "json", "files"})


class _Exchange:
    """One request to an ASGI application. The client leaves an event stream soon after its first bytes."""

    def __init__(self, request: requests.PreparedRequest) -> None:
        where = urlsplit(str(request.url))
        body = request.body or b""
        self._body = body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogatepass")
        headers = [(b"host", where.netloc.encode())]
        for name, value in request.headers.items():
            text = value if isinstance(value, bytes) else str(value).encode("latin-1", "replace")
            headers.append((str(name).lower().encode("latin-1"), text))
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(where.path),
            "raw_path": where.path.encode("ascii"),
            "query_string": where.query.encode("ascii"),
            "root_path": "",
            "headers": headers,
            "client": ("203.0.113.7", 4711),
            "server": (where.hostname, 80),
        }
        self._gone = asyncio.Event()
        self._sent = False
        self.status = 0
        self.headers: dict[str, list[str]] = {}
        self.content = b""

    async def run(self, api: Any) -> None:
        await api(self._scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            for name, value in message["headers"]:
                self.headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
            return
        self.content += message.get("body", b"")
        if self.headers.get("content-type", [""])[0].startswith("text/event-stream"):
            asyncio.get_running_loop().call_later(STREAM_SECONDS, self._gone.set)


def _parameters(path: str, address: str) -> dict[str, str]:
    """The parameters of a path in an address."""
    pairs = zip(path.split("/"), address.split("/"), strict=True)
    return {
        name.strip("{}"): value for name, value in pairs if name.startswith("{") and not value.startswith("{")
    }


@contextlib.contextmanager
def new_targets(store: str) -> Iterator[Callable[[], contextlib.AbstractContextManager[Target]]]:
    """Yield a function that opens targets, each on a new store of this kind."""
    with contextlib.ExitStack() as around:
        folder = Path(around.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-schemas-")))
        server = around.enter_context(running_postgres()) if store == "postgres" else None

        @contextlib.contextmanager
        def target() -> Iterator[Target]:
            with contextlib.ExitStack() as own:
                if server is not None:
                    url = own.enter_context(new_database(server))
                elif store == "sqlite":
                    place = Path(own.enter_context(tempfile.TemporaryDirectory(dir=folder)))
                    url = new_file(place)
                else:
                    url = "memory://"
                yield own.enter_context(contextlib.closing(Target(url)))

        yield target
