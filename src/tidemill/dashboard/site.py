"""``create_site``: the HTTP API and the dashboard pages as one application."""

from __future__ import annotations

import hmac
import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tidemill.dashboard.cached_stats import CachedStats, StatsPending
from tidemill.dashboard.files import Files
from tidemill.dashboard.page_request import Fields, PageRequest, read_form
from tidemill.dashboard.pages import Addresses, PageRoute, PageRoutes
from tidemill.dashboard.render_cache import RenderCache
from tidemill.dashboard.sessions import Session, Sessions
from tidemill.dashboard.views import Views
from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.errors import BadSettings
from tidemill.rest.api import create_api
from tidemill.rest.guard import ANONYMOUS, Auth, KeyCache
from tidemill.rest.parsers import receive_body
from tidemill.rest.problems import Problem, problem_of
from tidemill.rest.service import Service
from tidemill.rest.settings import ApiSettings

if TYPE_CHECKING:
    from tidemill.app import App

FILES = (
    "sign_in", "overview", "live",
    "jobs", "jobs_bulk", "job_copy", "job_actions", "job", "errors",
    "schedule_editor", "schedules", "task_actions", "tasks", "enqueue", "queue_actions", "queues",
    "workers", "tenants", "audit", "settings", "keys",
)  # fmt: skip
"""The page modules. Modules with literal paths precede those with a placeholder in the same place."""

_SAFE_SITES = ("same-origin", "none")


class SignInFirst(Exception):
    """The page needs a sign-in and the request has no session."""


class Site:
    """State that all pages share."""

    def __init__(self, service: Service, auth: Auth, sessions: Sessions) -> None:
        self.service = service
        self.sessions = sessions
        self.views = Views()
        self.addresses = Addresses(all_pages())
        self.sharing = RenderCache(service.app.clock)
        self.figures = CachedStats(service.app.clock, service.threads)
        self.own_auth: Auth | None = None if isinstance(auth, KeyCache) else auth

    async def session(self, request: Request) -> Session | None:
        """Return the session of a request, from the dashboard's cookie or from the application's own authentication."""
        if self.own_auth is None:
            return await self.sessions.of(request)
        found = await self.own_auth(request)
        return None if found is None else Session(found, self.sessions.csrf(f"{found.who} {found.tenant}"))


class PageEndpoint:
    """Endpoint of one path with its methods."""

    def __init__(self, site: Site, pages: dict[str, PageRoute]) -> None:
        self._site, self.pages = site, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            response = await self._answer(request)
        except StatsPending:
            response = Response(None, 204, {"retry-after": "1"})
        except SignInFirst:
            response = self._to_sign_in(request)
        except Exception as error:  # noqa: BLE001  (problem_of logs unexpected errors)
            response = await self._sorry(request, problem_of(error, scope["tidemill.correlation"]))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        verb = "GET" if request.method == "HEAD" else request.method
        page = self.pages.get(verb)
        if page is None:
            raise Problem(405, None, f"{request.method[:20]} cannot be done here")
        session = await self._site.session(request)
        if page.role is not None:
            if session is None:
                raise SignInFirst
            self._admit(page, session.identity)
        form = Fields([])
        if page.method == "POST":
            form = read_form(await receive_body(request, self._site.service.settings.max_body))
            self._believe(request, session, form)
        known = session or Session(Identity(ANONYMOUS, Role.VIEWER, ALL_TENANTS), "")
        visit = PageRequest(self._site, page, request, known.identity, known.csrf, form)
        # Responses to forms are never shared between users.
        if visit.is_live and page.method == "GET":
            return await self._site.sharing.answer(visit, page.handler)
        response = await page.handler(visit)
        if page.mutates:
            self._site.sharing.acted()
            self._site.figures.acted()
        else:
            self._site.sharing.opened(visit)
        return response

    def _admit(self, page: PageRoute, identity: Identity) -> None:
        role = page.role
        assert role is not None
        if not identity.role.allows(role):
            raise Problem(403, None, f"this needs the role {role.value}; yours is {identity.role.value}")
        if page.everywhere and identity.tenant != ALL_TENANTS:
            raise Problem(403, "wrong_tenant", "this concerns all tenants, and your key is for one")
        if page.mutates and self._site.service.settings.read_only:
            raise Problem(403, "read_only", "this dashboard is read-only")

    def _believe(self, request: Request, session: Session | None, form: Fields) -> None:
        """Reject a form that a page of another site may have sent."""
        origin = request.headers.get("origin")
        elsewhere = origin not in (None, "null") and urlsplit(origin).netloc != request.headers.get("host")
        if elsewhere or request.headers.get("sec-fetch-site", "none") not in _SAFE_SITES:
            raise Problem(403, "other_site", "this form was sent from another site")
        if session is not None and not _same(form.get("csrf"), session.csrf):
            raise Problem(403, "stale_form", "this form is too old; go back, load the page again and repeat")

    def _to_sign_in(self, request: Request) -> Response:
        visit = self._nobody(request)
        if self._site.own_auth is not None:
            return visit.render(
                "error.html", 401, title="Sign-in required", words="Sign in to the application first."
            )
        if visit.is_live or request.method != "GET":
            return Response("sign in first", 401)
        query = request.url.query
        wanted = visit.page_path + (f"?{query}" if query else "")
        return RedirectResponse(
            visit.url("/sign-in", tenant=None, next=wanted if wanted != "/" else None), 303
        )

    async def _sorry(self, request: Request, problem: Problem) -> Response:
        session = None
        try:
            session = await self._site.session(request)
        except Exception:  # noqa: BLE001  (report the first error, not this one)
            problem.headers.setdefault("retry-after", "1")
        visit = self._nobody(request, session)
        response = visit.render("error.html", problem.status, title=problem.title, words=problem.detail)
        response.headers.update(problem.headers)
        return response

    def _nobody(self, request: Request, session: Session | None = None) -> PageRequest:
        page = next(iter(self.pages.values()))
        known = session or Session(Identity(ANONYMOUS, Role.VIEWER, ALL_TENANTS), "")
        try:
            return PageRequest(self._site, page, request, known.identity, known.csrf, Fields([]))
        except Exception:  # noqa: BLE001  (the query selects an invalid tenant)
            request.scope["query_string"] = b""
            return PageRequest(
                self._site, page, Request(request.scope), known.identity, known.csrf, Fields([])
            )


def _same(given: str | None, expected: str) -> bool:
    return hmac.compare_digest((given or "").encode(), expected.encode())


def all_pages() -> list[PageRoute]:
    """Return all pages in matching order."""
    found: list[PageRoute] = []
    for name in FILES:
        pages = importlib.import_module(f"tidemill.dashboard.{name}").pages
        assert isinstance(pages, PageRoutes)
        found += pages
    return found


def create_site(
    app: App,
    *,
    prefix: str = "",
    auth: Auth | None = None,
    settings: ApiSettings | None = None,
    token: str | None = None,
) -> FastAPI:
    """Create the HTTP API and the dashboard of an app, ready to serve or mount: pages at ``/``, the API at ``/api``.

    ``auth`` identifies the user of a request, for applications with their own sign-in. Without it, users sign in with
    an API key. ``token`` grants full access for this run, for example when no key exists yet.
    """
    chosen = settings or ApiSettings()
    who = auth or KeyCache(app, token)
    api = create_api(app, prefix=prefix, auth=who, settings=chosen)
    service: Service = api.state.tidemill
    site = Site(service, who, Sessions(app, secret=chosen.session_secret, token=token))
    api.state.dashboard = site
    routes = api.router.routes
    routes.append(Route(prefix + "/static/{name}", Files(), name="static"))
    for path, doors in _by_path(all_pages()).items():
        routes.append(Route(prefix + path, PageEndpoint(site, doors), name=f"page {path}"))
        if path == "/" and prefix:
            routes.append(Route(prefix, PageEndpoint(site, doors), name="page"))
    routes.append(Route(prefix + "/{rest:path}", NotFoundPage(site, prefix), name="nowhere"))
    return api


class NotFoundPage(PageEndpoint):
    """Fallback endpoint that answers 404: as a page, or under ``/api`` as an API error."""

    def __init__(self, site: Site, prefix: str) -> None:
        super().__init__(site, {"GET": PageRoute("GET", "/{rest:path}", None, _nothing, everywhere=False)})
        self._api = f"{prefix}/api"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"][len(scope.get("root_path", "")) :]
        if path == self._api or path.startswith(f"{self._api}/"):
            raise HTTPException(404)
        await super().__call__(scope, receive, send)


async def _nothing(visit: PageRequest) -> Response:
    raise Problem(404, None, f"There is no page at {visit.page_path[:200]}.")


def _by_path(pages: Iterable[PageRoute]) -> dict[str, dict[str, PageRoute]]:
    found: dict[str, dict[str, PageRoute]] = {}
    for page in pages:
        if found.setdefault(page.path, {}).setdefault(page.method, page) is not page:
            raise BadSettings(f"{page.method} {page.path} is declared twice")
    return found
