"""The web kit of the HTTP API and the dashboard: requests, routes, guard, errors, streams, server.

-   ``app`` creates the ASGI application; every endpoint of it is guarded.
-   ``routes`` declares operations, and ``endpoint`` serves those of one path.
-   ``request`` is the authorised request; ``rest`` and ``dashboard`` extend it with their responses.
-   ``service`` holds what all requests of one application share: settings, threads, guard, change notifications.
"""
