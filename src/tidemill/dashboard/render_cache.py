"""Cache of rendered pages for the script's refresh requests.

Open tabs with the same address share one rendering, and a process renders at most ``RATE`` refreshes per second. Excess
requests get 204 and retry later instead of queueing. A large number of open dashboards therefore causes little more load
than a few. A rendering that started before a change is never returned after it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from starlette.responses import Response

from tidemill.clock import Clock
from tidemill.web.guard import Buckets
from tidemill.web.sessions import COLUMNS

if TYPE_CHECKING:
    from tidemill.dashboard.page_request import PageRequest

FRESH = 1.0
"""Maximum age of a shared rendering, in seconds."""

RATE = 4.0
"""Maximum number of renderings per second in one process."""

MOST = 64

Key = tuple[str, ...]
Version = tuple[int, int]


class RenderCache:
    """Renderings of the last second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._made: OrderedDict[Key, tuple[float, Version, Response]] = OrderedDict()
        self._making: WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[tuple[Key, Version], asyncio.Future[Response]]
        ] = WeakKeyDictionary()
        self._acts = 0
        self._budget = Buckets(RATE, int(RATE), clock)

    async def answer(
        self, request: PageRequest, make: Callable[[PageRequest], Awaitable[Response]]
    ) -> Response:
        """Return a rendering that is at most one second old, or 204 if there is none and the rate limit is reached."""
        key, version = _key(request), (request.service.changes.told, self._acts)
        now = self._clock.monotonic()
        cached = self._made.get(key)
        if cached is not None and now - cached[0] < FRESH and cached[1] == version:
            return cached[2]
        making = self._making.setdefault(asyncio.get_running_loop(), {})
        if (key, version) in making:
            return await asyncio.shield(making[key, version])
        if self._budget.take("all"):
            return Response(None, 204, {"retry-after": "1"})
        future = making[key, version] = asyncio.get_running_loop().create_future()
        try:
            response = await make(request)
        except BaseException as error:
            future.set_exception(error)
            # Mark the exception as retrieved, because there may be no other waiter.
            future.exception()
            raise
        else:
            future.set_result(response)
        finally:
            del making[key, version]
        self._made[key] = (self._clock.monotonic(), version, response)
        while len(self._made) > MOST:
            self._made.popitem(last=False)
        return response

    def acted(self) -> None:
        """Invalidate all renderings, because an action in this process changed something."""
        self._acts += 1

    def opened(self, request: PageRequest) -> None:
        """Drop the shared rendering of a page that was loaded in full, so that a refresh never shows older content."""
        self._made.pop(_key(request), None)


def _key(request: PageRequest) -> Key:
    url, identity = str(request.http.url), request.identity
    grants = " ".join(map(str, identity.grants))
    # The columns are the only choice of a reader that a live page shows; it has no bar with names and views.
    columns = request.site.sessions.preference(request.http, COLUMNS)
    return url, identity.role.value, identity.tenant, grants, columns, str(request.takes_gzip)
