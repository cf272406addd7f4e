"""Server-rendered dashboard on top of the HTTP API.

``create_site(app)`` returns the API together with the pages, ready to serve or mount. The dashboard uses ``client``
and the app, and contains no SQL. ``web`` has what it shares with the API. There is no build step: templates are in ``templates/``, style sheets and
one script in ``static/``.

How to write a page:

-   Each page module defines one ``pages = Pages()``, and ``site.py`` lists the module in ``MODULES``.
-   A page is a coroutine with one argument. Its decorator declares the method, the path and **the least role that may
    open it**::

        pages = Pages()


        @pages.get("/queues", role=Role.VIEWER)
        async def queues(request: PageRequest) -> Response:
            queues = await request.read(request.inspection.queue_stats, tenant=request.tenant, also=())
            return request.render("queues.html", queues=queues)


        @pages.post("/queues/{name}/pause", role=Role.OPERATOR)
        async def pause_queue(request: PageRequest) -> Response:
            await request.act(request.app.control.pause_queue, request.path["name"], request.form.get("reason"))
            return request.back("/queues", f"Queue {request.path['name']} is paused.")

-   A ``PageRequest`` is a ``WebRequest`` (``tidemill.web.request``) with ``tenant``, ``home``, ``read``, ``act``,
    ``masked``, ``inspection``, ``job_row()`` and ``job()``. ``query`` holds the query and ``form`` the posted fields;
    ``get(name)`` on either returns a string or None. A page returns ``render(template, **values)``, or after an action
    ``back(path, words)``: a redirect that shows ``words`` once on the next page.
-   Use ``await request.cached(about, ask, …)`` instead of ``read`` for queries that may be slow on a large store. It
    caches the result for a few seconds. ``about`` is the cache key and must include everything the result depends on.
-   Every form has ``method="post"`` and contains ``{{ csrf_field() }}``; ``PageEndpoint`` rejects a post without the token.
    Actions are plain forms, so that they work without JavaScript. Check ``may("operator")`` before showing a button;
    ``PageEndpoint`` checks the role again.
-   Build addresses with ``url("/jobs", status="failed")``: it adds the mount prefix and keeps the selected tenant.
-   Put content that changes into an element with ``data-swap`` and an id. The page declares which kinds of changes it
    shows: ``{% block live %}jobs queues{% endblock %}``. On such a change the script fetches the page again and
    replaces the elements that differ.
-   A page whose content depends on time alone (such as a worker's last heartbeat) also declares a refresh interval in
    seconds: ``{% block every %}5{% endblock %}``.
-   Actions that affect many things, or that cannot be undone, need a confirmation page at the same address. It returns
    ``ask(request, title, words, …)``.
-   A new page needs a line in ``tests/interfaces/dashboard/table.txt`` that says which roles may open it. A test fails
    for a page without one.
-   Pages contain no ``style=`` and no inline script: the content security policy forbids both. Drawings are SVG with
    attributes and classes.
"""

from __future__ import annotations

try:
    import itsdangerous as _itsdangerous  # noqa: F401  (imported here so that the message below is raised first)
    import jinja2 as _jinja2  # noqa: F401
    import starlette as _starlette  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"the dashboard needs {missing.name}: pip install 'tidemill[server]'", name=missing.name
    ) from missing

from tidemill.dashboard.site import create_site

__all__ = ["create_site"]
