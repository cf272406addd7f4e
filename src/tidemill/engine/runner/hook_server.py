"""The enqueue hooks of an app, applied in a runner process for its supervisor.

They run on a thread of their own, never on the loop or the threads of jobs.
"""

from __future__ import annotations

import contextlib
import threading

from tidemill.domain.payload import clip
from tidemill.engine.app_lookup import Application
from tidemill.engine.fire_hooks import ENQUEUED, error_text
from tidemill.engine.frames import Data, Wire
from tidemill.engine.frames_hooks import VERSION, apply_to_data, events_from_data, jobs_from_data

_LONGEST_ERROR = 2_000  # characters


class HookServer:
    """Answers the supervisor's requests, one after another."""

    def __init__(self, app: Application, wire: Wire) -> None:
        self._app, self._wire = app, wire
        self._thread = threading.Thread(target=self._serve, name="tidemill-fire-hooks", daemon=True)

    def offer(self) -> Data:
        """The hooks and subscribers of this app for the fires of schedules. The thread is started if that is anything."""
        hooks = self._app.hooks.on_enqueue
        events = self._app.events.wants(ENQUEUED)
        if (hooks or events) and self._thread.ident is None:
            self._thread.start()
        return {"version": VERSION, "hooks": hooks, "events": events}

    def close(self) -> None:
        """Answer no more: the app is being closed, and its hooks could fail for that reason alone."""
        self._wire.hang_up()

    def _serve(self) -> None:
        try:
            with contextlib.suppress(OSError):
                while (message := self._wire.receive()) is not None:
                    self._handle(message)
        finally:
            self._wire.hang_up()  # the supervisor must not wait for an answer

    def _handle(self, message: Data) -> None:
        if message.get("kind") == "enqueued":
            for event in events_from_data(message):
                self._app.events.publish(event)
            return
        answer = self._answer(message)
        try:
            self._wire.send(answer)
        except OSError:
            raise
        # A hook may leave a value that is too large or that JSON cannot express. No part of the answer is sent then.
        except Exception as error:  # noqa: BLE001
            self._wire.send(_refusal(error))

    def _answer(self, message: Data) -> Data:
        try:
            jobs = jobs_from_data(message)
            if jobs[0].task in self._app.registry:  # otherwise another app has the hooks of this task
                jobs = tuple(self._app.hooks.pass_through(jobs))
            return apply_to_data(jobs)
        # Also SystemExit and CancelledError: the supervisor waits for an answer.
        except BaseException as error:  # noqa: BLE001
            return _refusal(error)


def _refusal(error: BaseException) -> Data:
    return {"kind": "refused", "error": clip(error_text(error), _LONGEST_ERROR)}
