"""The streams of a job: values that a running job writes for live readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import stream_item_document
from tidemill.domain.access import Role
from tidemill.domain.states import ENDED
from tidemill.domain.streams import START, StreamPosition, check_stream_name, read_position
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.events import is_authorised
from tidemill.rest.models import Document, Items
from tidemill.rest.routes import Routes
from tidemill.web.streams import LatestValue, PageStream, StreamEvent

routes = Routes("jobs")

POLL = 1.0
"""Seconds between two reads when no wake-up arrives."""

_END = "-end"


class StreamDocument(Document):
    """A stream of a job."""

    name: str
    items: int


class StreamItemDocument(Document):
    """One value of a stream."""

    id: str = Field(description="Position of the item; resume with it.", examples=["1-300"])
    execution: int = Field(description="Number of the execution that wrote it.")
    index: int = Field(description="Place among the items of that execution, from 1.")
    value: Any


@routes.get("/api/jobs/{id}/streams", role=Role.VIEWER, answer=Items[StreamDocument])
async def list_streams(request: ApiRequest) -> Response:
    """List the streams of a job."""
    job = await request.job()
    streams = await request.read(job.streams)
    return request.page([{"name": name, "items": items} for name, items in streams.items()])


class StreamEndDocument(Document):
    """The end of a stream."""

    id: str = Field(description="Position of the last item.", examples=["1-300"])


@routes.get(
    "/api/jobs/{id}/streams/{name}",
    role=Role.VIEWER,
    answer=StreamItemDocument,
    stream=True,
    events=(StreamEndDocument,),
    also={204: "The stream has ended, and no more items will follow."},
)
async def follow_stream(request: ApiRequest) -> Response:
    """Stream the values that a job writes with `ctx.stream(name)`, in order, until the job ends.

    Earlier items come first. Events are named `item`; the last one is named `end`. Each has an id, and with `Last-Event-ID` only
    later events are sent; 204 means that no more will follow. If the job runs again, `execution` rises and `index` begins with 1.
    """
    row = await request.job_row()
    name = request.path["name"]
    check_stream_name(name)
    last = request.headers.get("last-event-id", "")
    position = read_position(last.removesuffix(_END)) if last else START
    if last.endswith(_END) and row.state in ENDED:
        return request.empty()
    source = request.inspection.stream_source(row, name)
    slot = LatestValue()
    watch, follow = None, row.archived_at is None

    async def subscribe() -> Callable[[], None]:
        nonlocal watch
        slot.put(None)
        if not follow:
            return lambda: None
        watch, end = await request.read(source.follow, lambda: slot.put(None))
        ticker = asyncio.create_task(_tick(slot))

        def stop() -> None:
            ticker.cancel()
            end()

        return stop

    async def pages() -> tuple[list[StreamEvent], bool]:
        nonlocal position
        ended = watch is None or watch.ended
        page = await request.read(source.page, position)
        events = [StreamEvent(item.id, "item", stream_item_document(item)) for item in page.items]
        if page.items:
            position = StreamPosition(page.items[-1].execution, page.items[-1].index)
        if ended and not page.is_full:
            end = position.text()
            events.append(StreamEvent(end + _END, "end", {"id": end}, last=True))
        return events, page.is_full

    return PageStream(request, slot, subscribe, pages, lambda: is_authorised(request))


async def _tick(slot: LatestValue) -> None:
    """Fill the slot from time to time: wake-ups may be lost."""
    while True:
        await asyncio.sleep(POLL)
        slot.put(None)
