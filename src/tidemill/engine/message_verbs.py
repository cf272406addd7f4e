"""The verbs of a context that wait for signals, events and answers of people.

Each verb has a twin for coroutines.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar, overload

from tidemill.domain.bounds import check_span, check_text
from tidemill.domain.durations import Duration, read_duration
from tidemill.engine import signal_waits
from tidemill.engine.step_operations import StepOutlet, adrive, drive
from tidemill.engine.steps import StepLog, Talk
from tidemill.errors import UsageError

T = TypeVar("T")

LIFETIME: Duration = "7d"
"""The time for which a callback URL works."""


class MessageVerbs:
    """Waits of durable functions. A waiting job is suspended: it holds no thread and no worker."""

    __slots__ = ()

    outlet: StepOutlet

    def durable(self) -> StepLog:
        raise NotImplementedError

    @overload
    def wait_for(self, signal: str, timeout: Duration | None = None) -> Any: ...

    @overload
    def wait_for(self, signal: str, timeout: Duration | None = None, *, type: type[T]) -> T | None: ...

    def wait_for(self, signal: str, timeout: Duration | None = None, *, type: Any = None) -> Any:
        """Wait for a signal to this job, and return its payload: ``ctx.wait_for("approved", timeout="3d")``.

        A signal that was sent before is taken at once: signals are kept in order until they are taken. At the timeout the
        answer is None, also when the job runs again. With ``type``, the payload is validated and converted.
        """
        return drive(signal_waits.wait_for(self.durable(), signal, _span(signal, timeout), type), self.outlet)

    @overload
    async def await_for(self, signal: str, timeout: Duration | None = None) -> Any: ...  # noqa: ASYNC109

    @overload
    async def await_for(
        self,
        signal: str,
        timeout: Duration | None = None,  # noqa: ASYNC109
        *,
        type: type[T],
    ) -> T | None: ...

    async def await_for(self, signal: str, timeout: Duration | None = None, *, type: Any = None) -> Any:  # noqa: ASYNC109
        """Wait for a signal like ``wait_for``."""
        span = _span(signal, timeout)
        return await adrive(signal_waits.wait_for(self.durable(), signal, span, type), self.outlet)

    def callback_url(self, signal: str, ttl: Duration = LIFETIME) -> str:
        """Return a signed URL that sends this signal to this job, once, to give to a person or another system.

        Opened in a browser, it shows a page with a button; only a ``POST`` sends the signal, with its JSON body as the payload. It
        works for the time ``ttl`` and while the job has not ended. Each call returns another URL: call it in a step if a resumed job
        needs the same one. It needs ``App(dashboard_url=…)`` and the secret ``TIDEMILL_CALLBACK_SECRET``. Coroutines call it the
        same way.
        """
        return self.outlet.signal_url(signal, read_duration(f"the ttl of {signal}", ttl, error=UsageError))

    def wait_for_event(
        self,
        name: str,
        *,
        match: object = "",
        since: datetime | None = None,
        timeout: Duration | None = None,
        type: Any = None,
    ) -> Any:
        """Wait for an event of this tenant, and return its payload: ``ctx.wait_for_event("order.paid", match=order)``.

        It sees events since the job was created, or since an instant, so none is missed between the start and the wait. A
        second wait for the same name and match sees later events only. At the timeout the answer is None.
        """
        talk = signal_waits.wait_for_event(
            self.durable(), name, _match(match), since, _span(name, timeout), type
        )
        return drive(talk, self.outlet)

    async def await_event(
        self,
        name: str,
        *,
        match: object = "",
        since: datetime | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109
        type: Any = None,
    ) -> Any:
        """Wait for an event like ``wait_for_event``."""
        talk = signal_waits.wait_for_event(
            self.durable(), name, _match(match), since, _span(name, timeout), type
        )
        return await adrive(talk, self.outlet)

    def ask(
        self,
        model: type[T],
        *,
        to: str | None = None,
        message: str | None = None,
        timeout: Duration | None = None,
        name: str | None = None,
    ) -> T | None:
        """Ask a person, and return the answer as an instance of a pydantic model: ``ctx.ask(Decision, to="finance")``.

        The job is suspended until a person answers in the dashboard, over HTTP or with ``tidemill signals answer``. The form has
        the fields of the model, and an answer that does not fit is refused. ``to`` says whose answer is expected. At the timeout
        the answer is None.
        """
        answer: T | None = drive(self._question(model, name, to, message, timeout), self.outlet)
        return answer

    async def aask(
        self,
        model: type[T],
        *,
        to: str | None = None,
        message: str | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109
        name: str | None = None,
    ) -> T | None:
        """Ask a person like ``ask``."""
        return await adrive(self._question(model, name, to, message, timeout), self.outlet)

    def _question(
        self, model: Any, name: str | None, to: str | None, message: str | None, timeout: Duration | None
    ) -> Talk[Any]:
        title = name or getattr(model, "__name__", None)
        if not title or not hasattr(model, "model_json_schema"):
            raise UsageError(f"ctx.ask needs a pydantic model, and got {model!r}")
        check_text("to", to, 200)
        check_text("message", message)
        return signal_waits.ask(self.durable(), model, title, to, message, _span(title, timeout))


def _span(name: str, timeout: Duration | None) -> Any:
    if timeout is None:
        return None
    span = read_duration(f"the timeout of {name}", timeout, error=UsageError)
    check_span(f"the timeout of {name}", span)
    return span


def _match(match: object) -> str:
    text = "" if match is None else str(match)
    check_text("match", text, 300)
    return text
