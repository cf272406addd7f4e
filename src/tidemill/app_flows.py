"""The flows and batches of an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tidemill.domain.durations import Duration

if TYPE_CHECKING:
    from tidemill.client.core import Client
    from tidemill.client.enqueue.bound_task import BoundTask
    from tidemill.client.flows.api import Flows
    from tidemill.client.flows.batches import Batch, Batches
    from tidemill.client.flows.builder import Flow


class FlowApp:
    """Base class of apps: their flows. Modules about flows are imported on first use."""

    _client: Client

    def flow(
        self,
        name: str,
        key: str | None = None,
        on_failure: Literal["skip", "stop", "hold"] = "skip",
        timeout: Duration | None = None,
        *,
        stop_running: bool = False,
        callback_url: str | None = None,
    ) -> Flow:
        """Return a new flow, a graph of jobs to build and start: ``flow = app.flow("import", key="2026-11-16")``.

        A second start with the same key returns the first flow. ``on_failure`` decides what a failed node does to the
        rest: ``"skip"`` skips what needs it, ``"stop"`` lets no further node begin, ``"hold"`` lets what needs it wait
        for a person. ``timeout`` cancels the flow after this time. ``callback_url`` receives a signed webhook at the end.
        """
        from tidemill.client.flows.builder import Flow

        return Flow(
            self._client, name, key, on_failure, timeout, stop_running=stop_running, callback_url=callback_url
        )

    @property
    def flows(self) -> Flows:
        """Find flows that were started."""
        from tidemill.client.flows.api import Flows

        return Flows(self._client)

    def batch(
        self,
        name: str,
        *,
        on_complete: BoundTask[Any, Any, Any] | None = None,
        on_success: BoundTask[Any, Any, Any] | None = None,
        on_failure: BoundTask[Any, Any, Any] | None = None,
        description: str | None = None,
        key: str | None = None,
        on_error: Literal["complete", "cancel"] = "complete",
        callback_url: str | None = None,
    ) -> Batch:
        """Count jobs together: jobs enqueued inside ``with app.batch("import") as batch:`` become its members.

        The callbacks are tasks with one argument ``batch: BatchInfo``: ``on_complete`` runs when all jobs have ended,
        ``on_success`` when none failed, ``on_failure`` at the first failure. Each runs once. ``callback_url`` receives a
        signed webhook when all jobs have ended.
        """
        from tidemill.client.flows.batches import Batch

        callbacks = {"on_complete": on_complete, "on_success": on_success, "on_failure": on_failure}
        return Batch(
            self._client,
            name,
            callbacks=callbacks,
            description=description,
            key=key,
            on_error=on_error,
            callback_url=callback_url,
        )

    @property
    def batches(self) -> Batches:
        """Find batches that were started."""
        from tidemill.client.flows.batches import Batches

        return Batches(self._client)
