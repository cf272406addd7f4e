"""The HTTP API: one file per resource, all of them in the same manner. It speaks to ``client`` and the app, and knows no SQL.

``create_api(app)`` gives an ASGI application for a server, or to be mounted in an application of yours.

How a file of routes is written:

-   It holds one ``routes = Routes("tag")`` and nothing that is global beside it. ``create_api`` names the file once, in ``FILES``.
-   A route is a coroutine with one argument, declared by its verb, its path and **the least role that may call it**::

        routes = Routes("queues")

        class QueueQuery(Query):                      # names and types of the query; unknown names are refused
            limit: Limit = 100

        class QueueDocument(Document):                # what is answered: for the OpenAPI document only
            name: str = Field(examples=["media"])
            pending: int

        @routes.get("/api/queues", role=Role.VIEWER, query=QueueQuery, answer=Items[QueueDocument])
        async def list_queues(call: Call) -> Response:
            '''The first line is the summary, the rest the description.'''
            found = await call.read(queue_stats, call.app.store, tenant=call.tenant)
            return call.page([queue_document(each) for each in found])

-   ``role=None`` is a route for everybody (health). ``everywhere=True`` refuses keys of one tenant: what is told or changed there
    belongs to all tenants. ``body=`` is a ``Body`` model, read strictly from JSON; ``mutates`` follows from the verb.
-   ``call.tenant`` is what may be **read**: the key's tenant, or for a key of all tenants the one chosen with ``?tenant=``, else
    ``"*"``. ``call.home`` is one tenant in any case, to **write** for. Every question to the client carries one of them.
-   ``await call.read(function, *args, **kwargs)`` and ``await call.act(function, …)`` run what blocks on the bounded threads of
    the API; ``act`` also says who acts, for the audit. Nothing that blocks is called on the loop.
-   Answers: ``call.reply(document, status=200)`` for one thing, ``call.page(items, following=None)`` for several. Documents are plain
    dictionaries with the names of the Python API; instants are ISO texts, durations are seconds. What may hold secrets
    (arguments, results, metadata) goes through ``call.masked(…)``, which masks for viewers.
-   Errors are raised: ours (``tidemill.errors``) or ``Problem(status, code, detail)``. ``problems.py`` makes the document.
-   A new route needs a line in ``tests/interfaces/rest/table.txt``: who may call it. A route that is not there fails a test.
"""

from __future__ import annotations

try:
    import fastapi as _fastapi  # noqa: F401  (asked for here, so that the sentence below is what is read)
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"the HTTP API needs {missing.name}: pip install 'tidemill[server]'", name=missing.name
    ) from missing

from tidemill.rest.api import create_api
from tidemill.rest.settings import ApiSettings

__all__ = ["ApiSettings", "create_api"]
