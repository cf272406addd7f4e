"""The dashboard: pages for people, rendered here, over the same questions and acts that the HTTP API has.

``create_site(app)`` is the API with the pages beside it, to be served or mounted. It speaks to ``client`` (through ``rest``'s
calls) and knows no SQL. There is no build step: templates in ``templates/``, styles and one script in ``static/``.

How a page is written:

-   A file of pages holds one ``pages = Pages()``; ``site.py`` names the file once, in ``FILES``.
-   A page is a coroutine with one argument, declared by its verb, its path and **the least role that may open it**::

        pages = Pages()

        @pages.get("/queues", role=Role.VIEWER)
        async def queues(visit: Visit) -> Response:
            found = await visit.read(queue_stats, visit.app.store, tenant=visit.tenant)
            return visit.render("queues.html", queues=found)

        @pages.post("/queues/{name}/pause", role=Role.OPERATOR)
        async def pause_queue(visit: Visit) -> Response:
            await visit.act(visit.app.control.pause_queue, visit.path["name"], visit.form.get("reason"))
            return visit.back("/queues", f"Queue {visit.path['name']} is paused.")

-   A ``Visit`` is a ``Call`` (``tidemill.rest.call``): ``tenant``, ``home``, ``read``, ``act``, ``masked``, ``facts()``, ``job()``. ``asked`` is
    the query, ``form`` what was posted; both answer ``get(name)`` with a text or None. A visit answers with ``render(template,
    **facts)``, or after an act with ``back(path, words)``: a redirect, and the words once on the page that follows.
-   What may take a large store long is asked with ``await visit.figures(about, ask, …)`` in place of ``read``: ``about`` names it and all that it
    depends on, and who comes meanwhile gets what was found a moment ago.
-   Every form is ``method="post"`` with ``{{ csrf_field() }}`` inside; its door refuses a post without it. Acts are forms first, so that
    they work without a script. Ask ``may("operator")`` before showing a button; the door asks again.
-   Addresses are made with ``url("/jobs", state="failed")``: it knows where the site is mounted, and keeps the chosen tenant.
-   What moves stands in an element with ``data-swap`` and an id, inside a page that says what it shows: ``{% block live %}jobs queues{%
    endblock %}``. The script fetches the page again when such things moved, and swaps what differs.
-   What is told by time alone (a worker's silence) also says how often to look, in seconds: ``{% block every %}5{% endblock %}``.
-   What is wide, or cannot be undone, is asked first: a page at the same address that answers with ``ask(visit, title, words, …)``.
-   A new page needs a line in ``tests/interfaces/dashboard/table.txt``: who may open it. A page that is not there fails a test.
-   No ``style=`` and no script in a page: the content policy forbids them. Drawings are SVG with attributes and classes.
"""

from __future__ import annotations

try:
    import fastapi as _fastapi  # noqa: F401  (asked for here, so that the sentence below is what is read)
    import itsdangerous as _itsdangerous  # noqa: F401
    import jinja2 as _jinja2  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"the dashboard needs {missing.name}: pip install 'tidemill[server]'", name=missing.name
    ) from missing

from tidemill.dashboard.site import create_site

__all__ = ["create_site"]
