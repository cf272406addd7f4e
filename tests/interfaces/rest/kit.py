"""Test kit of the HTTP API: an app, keys for two tenants, in-process client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from urllib.parse import unquote

import httpx
from tests.interfaces.rest.estate import STRANGER, furnish
from tests.interfaces.rest.witness import Witness

from tidemill import App, Context, PermanentError, Review, Unique
from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.rest import ApiSettings, create_api
from tidemill.web.guard import KeyCache

T = TypeVar("T")

TENANTS = ("acme", "other")


def declare(app: App) -> None:
    """Declare the tasks of a small shop."""

    @app.task(name="send", queue="mail")
    def send(to: str, ctx: Context, size: int = 1, password: str | None = None) -> str:
        """Send one letter."""
        ctx.progress(0.5, "half")
        ctx.log("sent", to=to, token="t0ps3cret")
        return f"sent to {to}"

    @app.task(name="talk")
    def talk(lines: int, ctx: Context) -> None:
        for number in range(lines):
            ctx.log(f"line {number}")

    @app.task(name="look")
    def look(what: str) -> None:
        raise Review("is this right?", output={"what": what})

    @app.task(name="fail")
    def fail(words: str) -> None:
        raise PermanentError(words)

    @app.task(name="once", unique=Unique())
    def once(number: int) -> int:
        return number


class Browser:
    """Calls an application in this process, on its own event loop.

    Where callers authenticate with keys, a witness records every response.
    """

    def __init__(self, api: Any, address: str = "203.0.113.7") -> None:
        self._runner = asyncio.Runner()
        transport = httpx.ASGITransport(api, raise_app_exceptions=False, client=(address, 4711))
        self._client = httpx.AsyncClient(
            transport=transport, base_url="http://shop.example", event_hooks={"response": [self._hear]}
        )
        service = getattr(getattr(api, "state", None), "tidemill", None)
        self.bearer: str | None = None  #: the authorization that the session cookie stands for
        self.witness: Witness | None = None
        if service is not None and isinstance(service.guard._auth, KeyCache):
            self.witness = Witness(service.app)

    @property
    def cookies(self) -> httpx.Cookies:
        return self._client.cookies

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop of this browser."""
        return self._runner.run(call)

    def request(self, method: str, path: str, **rest: Any) -> httpx.Response:
        return self.run(self._client.request(method, path, **rest))

    def together(
        self, *calls: tuple[str, str, dict[str, Any]], told: Callable[[httpx.Response], object] = bool
    ) -> list[httpx.Response]:
        """Send several requests at once, and pass each response to ``told`` when it arrives."""

        async def one(verb: str, path: str, rest: dict[str, Any]) -> httpx.Response:
            answer = await self._client.request(verb, path, **rest)
            told(answer)
            return answer

        async def all_of_them() -> list[httpx.Response]:
            return await asyncio.gather(*(one(*call) for call in calls))

        return self._runner.run(all_of_them())

    async def _hear(self, answer: httpx.Response) -> None:
        if self.witness is None:
            return
        text = (await answer.aread()).decode("utf-8", "replace")
        asked = answer.request
        try:
            body = asked.content.decode("utf-8", "replace")
        except httpx.RequestNotRead:  # the body was streamed
            body = ""
        said = "".join(f"\n{name}: {value}" for name, value in asked.headers.items())
        told = "".join(f"{name}: {value}\n" for name, value in answer.headers.items())
        self.witness.hear(
            asked.headers.get("authorization", self.bearer),
            f"{asked.method} {unquote(str(asked.url))}{said}\n{body}",
            f"{told}\n{text}",
        )

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()
        if self.witness is not None:
            self.witness.check()


class Site:
    """An API in this process, its app, and a key for every role and tenant."""

    def __init__(self, app: App, client: Browser) -> None:
        self.app, self.client = app, client
        self._secrets: dict[tuple[str, str], str] = {}

    def key(self, role: str = "operator", tenant: str = "acme") -> str:
        """The secret of a key."""
        if (role, tenant) not in self._secrets:
            made = self.app.keys.create(
                f"{role} of all" if tenant == ALL_TENANTS else f"{role} of {tenant}",
                role=Role(role),
                tenant=None if tenant == ALL_TENANTS else tenant,
            )
            self._secrets[role, tenant] = made.secret
        return self._secrets[role, tenant]

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        role: str = "operator",
        tenant: str = "acme",
        **rest: Any,
    ) -> Any:
        """Call a route with a key and return the httpx response."""
        headers = {"authorization": f"Bearer {self.key(role, tenant)}", **rest.pop("headers", {})}
        if body is not None:
            rest["json"] = body
        return self.client.request(method, path, headers=headers, **rest)

    def get(self, path: str, **rest: Any) -> Any:
        """The document at a path that answers 200."""
        answer = self.call("GET", path, **rest)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def create(self, task: str = "send", *, tenant: str = "acme", **body: Any) -> dict[str, Any]:
        """Create a job and return its document."""
        body.setdefault("args", {"to": "ada"} if task == "send" else {})
        answer = self.call("POST", "/api/jobs", {"task": task, **body}, tenant=tenant)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def drain(self) -> None:
        """Run the due jobs."""
        self.app.testing().drain()


@contextlib.contextmanager
def site(
    url: str = "memory://", *, stranger: bool = True, stores: dict[str, str] | None = None, **settings: Any
) -> Iterator[Site]:
    """An API over a store, by default with the data of a stranger tenant."""
    with App(None if stores else url, stores=stores, migrate=True) as app:
        declare(app)
        if stranger:
            furnish(app, STRANGER)
        api = create_api(app, settings=ApiSettings(**settings))
        with contextlib.closing(Browser(api)) as client:
            yield Site(app, client)


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    """Check that a response is a complete problem document, and return it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    assert found["code"] == code, found
    assert found["type"] == f"urn:tidemill:problem:{code}"
    assert found["instance"] == answer.headers["x-correlation-id"]
    assert found["title"]
    assert found["detail"]
    return found
