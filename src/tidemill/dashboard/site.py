"""``create_site``: the HTTP API and the dashboard pages as one application."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tidemill.dashboard import (
    alerts,
    archive,
    audit,
    enqueue,
    errors,
    flows,
    go,
    job,
    job_actions,
    job_copy,
    jobs,
    jobs_bulk,
    jobs_undo,
    jobs_view,
    keys,
    live,
    logs,
    notifications,
    overview,
    queue_actions,
    queues,
    schedule_backfill,
    schedule_editor,
    schedule_preview,
    schedules,
    sessions,
    sign_in,
    single_sign_on,
    task_actions,
    tasks,
    tenants,
    worker_actions,
    workers,
)
from tidemill.dashboard import settings as settings_pages
from tidemill.dashboard.cached_stats import CachedStats, StatsPending
from tidemill.dashboard.files import Files
from tidemill.dashboard.page_request import LIVE, PageRequest
from tidemill.dashboard.pages import Addresses
from tidemill.dashboard.render_cache import RenderCache
from tidemill.dashboard.views import Views
from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.rest.api import create_api
from tidemill.web.access_tokens import access_tokens, provider_of
from tidemill.web.endpoint import Endpoint
from tidemill.web.guard import ANONYMOUS, Auth, KeyCache, OneTimeToken
from tidemill.web.parsers import Fields, read_form, receive_body
from tidemill.web.problems import Problem, problem_of
from tidemill.web.routes import Operation, by_path
from tidemill.web.service import Service
from tidemill.web.sessions import Session, Sessions
from tidemill.web.settings import ApiSettings

if TYPE_CHECKING:
    from tidemill.app import App
    from tidemill.web.single_sign_on import SingleSignOn

MODULES = (
    sign_in, single_sign_on, overview, live, go,
    jobs, jobs_bulk, jobs_undo, jobs_view, job_copy, job_actions, job, errors, flows, logs,
    schedule_preview, schedule_editor, schedule_backfill, schedules, task_actions, tasks, enqueue, queue_actions, queues,
    worker_actions, workers, tenants, alerts, notifications, archive, audit, sessions, settings_pages, keys,
)  # fmt: skip
"""The page modules. Modules with literal paths precede those with a placeholder in the same place."""

_SAFE_SITES = ("same-origin", "none")
_NO_SESSION = Session(Identity(ANONYMOUS, Role.VIEWER, ALL_TENANTS), "")


class SignInFirst(Exception):
    """The page needs a sign-in and the request has no session."""


class Site:
    """State that all pages share."""

    def __init__(self, service: Service, auth: Auth, sessions: Sessions) -> None:
        self.service = service
        self.sessions = sessions
        self.views = Views()
        self.addresses = Addresses(all_pages())
        self.render_cache = RenderCache(service.app.clock)
        self.cached_stats = CachedStats(service.app.clock, service.threads)
        self.own_auth: Auth | None = None if isinstance(auth, KeyCache) else auth
        self.sso: SingleSignOn | None = None

    async def session(self, request: Request) -> Session | None:
        """Return the session of a request, from the dashboard's cookie or from the application's own authentication."""
        if self.own_auth is None:
            return await self.sessions.of(request)
        identity = await self.own_auth(request)
        if identity is None:
            return None
        return Session(identity, self.sessions.csrf(f"{identity.who} {identity.tenant}"))


class PageEndpoint(Endpoint[Operation]):
    """Endpoint of one path of the site."""

    def __init__(self, site: Site, pages: dict[str, Operation]) -> None:
        super().__init__(site.service, pages)
        self._site = site

    async def respond(self, operation: Operation, request: Request) -> Response:
        session = await self._site.session(request)
        if operation.role is not None:
            if session is None:
                raise SignInFirst
            identity = self.service.guard.authorize(operation, session.identity, request)
            session = session._replace(identity=identity)
            if remembered := self._remembered_store(operation, request):
                return RedirectResponse(remembered, 303)
        form = Fields([])
        if operation.method == "POST":
            form = read_form(await receive_body(request, self.service.settings.max_body))
            self._check_origin(request, session, form)
        page_request = PageRequest(self._site, operation, request, session or _NO_SESSION, form)
        # Responses to forms are never shared between users.
        if page_request.is_live and operation.method == "GET":
            return await self._site.render_cache.answer(page_request, operation.handler)
        response = await operation.handler(page_request)
        page_request.finish()
        if operation.mutates:
            self._site.render_cache.acted()
            self._site.cached_stats.acted()
        else:
            self._site.render_cache.opened(page_request)
            if page_request.query.get("store"):
                self._site.sessions.remember_store(response, request, page_request.service.store_name)
        return response

    def _remembered_store(self, operation: Operation, request: Request) -> str | None:
        """Return the address of the first page with the store that the user chose last, if it names none."""
        chosen = "store" in request.query_params or LIVE in request.scope["tidemill.headers"]
        if operation.path != "/" or not self.service.has_several_stores or chosen:
            return None
        store = self._site.sessions.chosen_store(request)
        if store == self.service.store_name or store not in self.service.inspection.store_names():
            return None
        url = request.url.include_query_params(store=store)
        return f"{url.path}?{url.query}"

    async def refuse(self, request: Request, error: Exception) -> Response:
        if isinstance(error, StatsPending):
            return Response(None, 204, {"retry-after": "1"})
        if isinstance(error, SignInFirst):
            return self._to_sign_in(request)
        return await self._error_page(request, problem_of(error, request.scope["tidemill.correlation"]))

    def _check_origin(self, request: Request, session: Session | None, form: Fields) -> None:
        """Reject a form that a page of another site may have sent."""
        headers: dict[str, str] = request.scope["tidemill.headers"]
        origin = headers.get("origin")
        elsewhere = origin not in (None, "null") and urlsplit(origin).netloc != headers.get("host")
        if elsewhere or headers.get("sec-fetch-site", "none") not in _SAFE_SITES:
            raise Problem(403, "other_site", "this form was sent from another site")
        if session is not None and not _same(form.get("csrf"), session.csrf):
            raise Problem(403, "stale_form", "this form is too old; go back, load the page again and repeat")

    def _to_sign_in(self, request: Request) -> Response:
        page_request = self._without_page(request)
        if self._site.own_auth is not None:
            return page_request.render(
                "error.html", 401, title="Sign-in required", words="Sign in to the application first."
            )
        if page_request.is_live or request.method != "GET":
            return Response("sign in first", 401)
        query = request.url.query
        wanted = page_request.page_path + (f"?{query}" if query else "")
        way = "/sign-in" if self._site.sso is None else "/sign-in/sso"
        return RedirectResponse(
            page_request.url(way, tenant=None, store=None, next=wanted if wanted != "/" else None), 303
        )

    async def _error_page(self, request: Request, problem: Problem) -> Response:
        session = None
        try:
            session = await self._site.session(request)
        except Exception:  # noqa: BLE001  (report the first error, not this one)
            problem.headers.setdefault("retry-after", "1")
        page_request = self._without_page(request, session)
        response = page_request.render(
            "error.html", problem.status, title=problem.title, words=problem.detail
        )
        response.headers.update(problem.headers)
        return response

    def _without_page(self, request: Request, session: Session | None = None) -> PageRequest:
        """Return a request that renders a page other than the requested one."""
        page = next(iter(self.operations.values()))
        try:
            return PageRequest(self._site, page, request, session or _NO_SESSION, Fields([]))
        except Exception:  # noqa: BLE001  (the query selects an invalid tenant)
            request.scope["query_string"] = b""
            return PageRequest(self._site, page, Request(request.scope), session or _NO_SESSION, Fields([]))


def _same(given: str | None, expected: str) -> bool:
    return hmac.compare_digest((given or "").encode(), expected.encode())


def all_pages() -> list[Operation]:
    """Return all pages in matching order."""
    return [page for module in MODULES for page in module.pages]


def create_site(
    app: App,
    *,
    prefix: str = "",
    auth: Auth | None = None,
    settings: ApiSettings | None = None,
    token: str | None = None,
) -> Starlette:
    """Create the HTTP API and the dashboard of an app, ready to serve or mount: pages at ``/``, the API at ``/api``.

    ``auth`` identifies the user of a request, for applications with their own sign-in. Without it, users sign in with
    an API key. ``token`` grants full access until it has signed in one user, or until a key exists.
    """
    settings = settings or ApiSettings()
    one_time = None if token is None else OneTimeToken(app, token)
    auth = auth or KeyCache(app, one_time, access_tokens(app, settings))
    api = create_api(app, prefix=prefix, auth=auth, settings=settings)
    site = Site(api.state.tidemill, auth, Sessions(app, settings, one_time))
    if site.own_auth is None and settings.oidc is not None:
        from tidemill.web.single_sign_on import SingleSignOn

        site.sso = SingleSignOn(site.service, provider_of(app, settings.oidc), site.sessions.secret)
    api.state.dashboard = site
    site.service.at_start.append(site.views.load_all)
    api.routes.append(Route(prefix + "/static/{name}", Files(), name="static"))
    for path, pages in by_path(all_pages()).items():
        api.routes.append(Route(prefix + path, PageEndpoint(site, pages), name=f"page {path}"))
        if path == "/" and prefix:
            api.routes.append(Route(prefix, PageEndpoint(site, pages), name="page"))
    api.routes.append(Route(prefix + "/{rest:path}", NotFoundPage(site, prefix), name="nowhere"))
    return api


class NotFoundPage(PageEndpoint):
    """Fallback endpoint that answers 404: as a page, or under ``/api`` as an API error."""

    def __init__(self, site: Site, prefix: str) -> None:
        super().__init__(
            site, {"GET": Operation(method="GET", path="/{rest:path}", role=None, handler=_not_found)}
        )
        self._api = f"{prefix}/api"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"][len(scope.get("root_path", "")) :]
        if path == self._api or path.startswith(f"{self._api}/"):
            raise HTTPException(404)
        await super().__call__(scope, receive, send)


async def _not_found(page_request: PageRequest) -> Response:
    raise Problem(404, None, f"There is no page at {page_request.page_path[:200]}.")
