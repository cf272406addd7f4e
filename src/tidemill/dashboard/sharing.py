"""The script's own requests, kept cheap: tabs that show the same see the same rendering, and only so many are made a second.

Whoever comes too early is told to come again; nothing queues. So a wall of open dashboards asks the store no more than a few.
A rendering that was begun before something moved is shown to nobody who asks afterwards.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from starlette.responses import Response

from tidemill.clock import Clock
from tidemill.rest.guard import Buckets

if TYPE_CHECKING:
    from tidemill.dashboard.visit import Visit

FRESH = 1.0
"""Seconds for which a rendering is good enough for others."""

RATE = 4.0
"""Renderings a second at most, in one process."""

MOST = 64

Key = tuple[str, ...]
Version = tuple[int, int]


class Sharing:
    """Renderings of the last second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._made: OrderedDict[Key, tuple[float, Version, Response]] = OrderedDict()
        self._making: WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[tuple[Key, Version], asyncio.Future[Response]]
        ] = WeakKeyDictionary()
        self._acts = 0
        self._budget = Buckets(RATE, int(RATE), clock)

    async def answer(self, visit: Visit, make: Callable[[Visit], Awaitable[Response]]) -> Response:
        """A rendering that is a second old at most; 204 where there is none and no more can be made just now."""
        key, version = _key(visit), (visit.service.changes.told, self._acts)
        now = self._clock.monotonic()
        known = self._made.get(key)
        if known is not None and now - known[0] < FRESH and known[1] == version:
            return known[2]
        making = self._making.setdefault(asyncio.get_running_loop(), {})
        if (key, version) in making:
            return await asyncio.shield(making[key, version])
        if self._budget.take("all"):
            return Response(None, 204, {"retry-after": "1"})
        future = making[key, version] = asyncio.get_running_loop().create_future()
        try:
            response = await make(visit)
        except BaseException as error:
            future.set_exception(error)
            future.exception()  # whoever waits sees it; nobody need
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
        """Somebody did something here: what was made before is out of date."""
        self._acts += 1

    def opened(self, visit: Visit) -> None:
        """Somebody has a page that is newer than what is kept of it: the script must not bring the old one back."""
        self._made.pop(_key(visit), None)


def _key(visit: Visit) -> Key:
    return str(visit.request.url), visit.identity.role.value, visit.identity.tenant
