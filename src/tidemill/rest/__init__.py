"""HTTP API with one module per resource.

``create_api(app)`` returns an ASGI application, ready to serve or mount. The API uses ``client`` and the app, and
contains no SQL. ``web`` has what the API shares with the dashboard.

How to write a route module:

-   It defines one ``routes = Routes("tag")`` and has no further global state. ``api.py`` lists the module in ``MODULES``.
-   A route is a coroutine with one argument. Its decorator declares the method, the path and **the least role that may
    call it**::

        routes = Routes("queues")


        class QueueQuery(QueryModel):                    # query parameters; unknown names are refused
            limit: Limit = 100


        class QueueDocument(Document):                # response model, used only for the OpenAPI document
            name: str = Field(examples=["media"])
            pending: int


        @routes.get("/api/queues", role=Role.VIEWER, query=QueueQuery, answer=Items[QueueDocument])
        async def list_queues(request: ApiRequest) -> Response:
            '''The first line is the summary, the rest the description.'''
            queues = await request.read(request.inspection.queue_stats, tenant=request.tenant, also=())
            return request.page([queue_document(queue) for queue in queues])

-   ``role=None`` declares a public route, such as a health check. ``everywhere=True`` refuses keys of a single tenant;
    use it for data that belongs to all tenants. ``body=`` is a ``Body`` model, validated strictly. ``mutates`` follows
    from the method.
-   ``request.tenant`` is the tenant to **read** for: the key's tenant, or for a key of all tenants the one in
    ``?tenant=``, else ``"*"``. ``request.home`` is always a single tenant, to **write** for. Pass one of them to every client call.
-   ``request.app`` is the app with its client APIs, and ``request.inspection`` has the reads that users do not need. A route
    never uses a store.
-   ``await request.read(function, *args, **kwargs)`` and ``await request.act(function, …)`` run blocking calls on the bounded
    thread pool of the API. ``act`` also sets the actor for the audit log. Never block the event loop.
-   Respond with ``request.reply(document, status=200)`` for one item and ``request.page(items, following=None)`` for a list.
    Documents are plain dictionaries with the names of the Python API; instants are ISO strings, durations are seconds.
    Pass data that may contain secrets (arguments, results, metadata) through ``request.masked(…)``, which masks it for
    viewers.
-   Raise errors from ``tidemill.errors``, or ``Problem(status, code, detail)``. ``problems.py`` builds the response.
-   A new route needs a line in ``tests/interfaces/rest/table.txt`` that says which roles may call it. A test fails for
    a route without one.
"""

from __future__ import annotations

try:
    import starlette as _starlette  # noqa: F401  (imported here so that the message below is raised first)
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"the HTTP API needs {missing.name}: pip install 'tidemill[server]'", name=missing.name
    ) from missing

from tidemill.rest.api import create_api
from tidemill.web.oidc_settings import Oidc
from tidemill.web.settings import ApiSettings

__all__ = ["ApiSettings", "Oidc", "create_api"]
