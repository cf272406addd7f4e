"""Celery's tasks: declaration, calls, retries and execution."""

from __future__ import annotations

import inspect
import json
import random
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from tidemill.contrib.celery import signals, states
from tidemill.contrib.celery.callbacks import MAP, STARMAP, call_eagerly, call_errbacks, call_links
from tidemill.contrib.celery.canvas import CeleryChunks, CelerySignature, parts_of
from tidemill.contrib.celery.exceptions import (
    CeleryRetry,
    Ignore,
    MaxRetriesExceededError,
    Reject,
    SoftTimeLimitExceeded,
)
from tidemill.contrib.celery.payload import from_json, to_json
from tidemill.contrib.celery.request import (
    ARGUMENTS,
    ERROR,
    STATE,
    CeleryRequest,
    eager_request,
    request_of,
    running,
)
from tidemill.contrib.celery.result import AsyncResult, EagerResult
from tidemill.engine.context import Context
from tidemill.errors import Cancel, Snooze
from tidemill.errors import Retry as RetrySignal

if TYPE_CHECKING:
    from tidemill.contrib.celery.application import Celery

_PER = {"s": 1, "m": 60, "h": 3600}


class CeleryEnd(NamedTuple):
    """How a call ended: its state, the value or the exception, and the traceback."""

    state: str
    value: Any
    traceback: str | None = None


class CeleryTask:
    """A task. Attributes are the options of ``@app.task``; ``run`` is the function."""

    name: str = ""
    max_retries: int | None = 3
    default_retry_delay: float = 180
    autoretry_for: Sequence[type[BaseException]] = ()
    dont_autoretry_for: Sequence[type[BaseException]] = ()
    retry_backoff: bool | float = False
    retry_backoff_max: float = 600
    retry_jitter: bool = True
    retry_kwargs: Mapping[str, Any] = {}
    rate_limit: str | float | None = None
    time_limit: float | None = None
    soft_time_limit: float | None = None
    ignore_result: bool | None = None
    track_started: bool | None = None
    throws: Sequence[type[BaseException]] = ()
    typing: bool = True
    queue: str | None = None
    priority: int | None = None
    expires: float | datetime | None = None
    serializer: str = "json"

    # Always so here: a job whose worker dies runs again, and is removed from its queue when it ends.
    acks_late: bool = True
    acks_on_failure_or_timeout: bool = True
    reject_on_worker_lost: bool = True
    send_events: bool = True
    trail: bool = True

    abstract: bool = True
    MaxRetriesExceededError: ClassVar[type[MaxRetriesExceededError]] = MaxRetriesExceededError

    _app: Celery | None = None

    @property
    def app(self) -> Celery:
        """The app of the task; for a shared task the current one."""
        if self._app is not None:
            return self._app
        from tidemill.contrib.celery.application import default_app

        return default_app()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The body of the task."""
        raise NotImplementedError("Tasks must define the run method.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        current = running.get()
        if current is not None and current[0] is self:
            return self.run(*args, **kwargs)
        token = running.set((self, CeleryRequest(task=self.name, args=args, kwargs=kwargs)))
        try:
            return self.run(*args, **kwargs)
        finally:
            running.reset(token)

    @property
    def request(self) -> CeleryRequest:
        """The running call of this task."""
        current = running.get()
        return current[1] if current is not None and current[0] is self else CeleryRequest()

    # Options ---------------------------------------------------------------------------------------------------------

    @property
    def hard_limit(self) -> float | None:
        """The seconds after which the task is killed."""
        return self.time_limit or self.app.conf.task_time_limit

    @property
    def soft_limit(self) -> float | None:
        """The seconds after which ``SoftTimeLimitExceeded`` is raised inside the task."""
        return self.soft_time_limit or self.app.conf.task_soft_time_limit

    @property
    def ignores_result(self) -> bool:
        """Whether the result is dropped."""
        ignore = self.ignore_result
        return bool(self.app.conf.task_ignore_result if ignore is None else ignore)

    @property
    def rate(self) -> tuple[int, timedelta] | None:
        """The rate limit, as a number of calls for a time."""
        given = self.rate_limit if self.rate_limit is not None else self.app.conf.task_default_rate_limit
        if not given:
            return None
        text, _, unit = str(given).partition("/")
        number, seconds = float(text), _PER[unit or "s"]
        if number < 1:
            return 1, timedelta(seconds=seconds / number)
        return int(number), timedelta(seconds=seconds)

    # Calls -----------------------------------------------------------------------------------------------------------

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult | EagerResult:
        """Enqueue a call with these arguments."""
        return self.apply_async(args, kwargs)

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Enqueue a call when the current Django transaction commits."""
        from django.db import transaction

        transaction.on_commit(partial(self.delay, *args, **kwargs))

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        **options: Any,
    ) -> AsyncResult | EagerResult:
        """Enqueue a call: ``task.apply_async((1, 2), countdown=10, queue="mail")``."""
        args, kwargs = tuple(args or ()), dict(kwargs or {})
        if self.typing:
            # Raises TypeError where the call is made.
            inspect.signature(self.run).bind(*args, **kwargs)
        if self.app.conf.task_always_eager:
            options.pop("throw", None)
            return self.apply(
                args, kwargs, task_id, link=options.get("link"), link_error=options.get("link_error")
            )
        for option in ("queue", "priority", "expires"):
            if getattr(self, option) is not None:
                options.setdefault(option, getattr(self, option))
        if options.get("link_error"):
            # A callback that is a job waits for the failure in a flow.
            from tidemill.contrib.celery.canvas_flow import start

            call = CelerySignature(self, args, kwargs, options)
            result: AsyncResult = start(call.set(task_id=task_id) if task_id else call, {})
            return result
        return self.app.send_task(self.name, args, kwargs, task_id=task_id, **options)

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        throw: bool | None = None,
        retries: int = 0,
        link: Any = None,
        link_error: Any = None,
        **_: Any,
    ) -> EagerResult:
        """Run a call here, with its retries at once, and return its result."""
        request = eager_request(self, args or (), kwargs or {}, task_id, retries)
        ended = self.trace(request)
        while ended.state == states.RETRY:
            again: CeleryRetry = ended.value
            request = eager_request(
                self,
                request.args if again.args_again is None else again.args_again,
                request.kwargs if again.kwargs_again is None else again.kwargs_again,
                request.id,
                request.retries + 1,
            )
            ended = self.trace(request)
        call_eagerly(request, ended, parts_of(link), parts_of(link_error))
        throw = self.app.conf.task_eager_propagates if throw is None else throw
        if throw and ended.state == states.FAILURE:
            raise ended.value
        return EagerResult(str(request.id), ended.value, ended.state, ended.traceback, self.name)

    def s(self, *args: Any, **kwargs: Any) -> CelerySignature:
        """Return a signature of a call."""
        return CelerySignature(self, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> CelerySignature:
        """Return a signature of a call that takes no further arguments."""
        return CelerySignature(self, args, kwargs, immutable=True)

    def signature(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> CelerySignature:
        """Return a signature of a call with options."""
        immutable = bool(options.pop("immutable", False))
        return CelerySignature(self, args, kwargs, options, immutable)

    subtask = signature

    def map(self, items: Iterable[Any]) -> CelerySignature:
        """Return a signature of one job that calls the task for each item: ``[task(item) for item in items]``."""
        return self.app.tasks[MAP].s(task=self.name, it=list(items))

    def starmap(self, items: Iterable[Any]) -> CelerySignature:
        """Return a signature of one job that calls the task with the arguments of each item."""
        return self.app.tasks[STARMAP].s(task=self.name, it=[list(item) for item in items])

    def chunks(self, items: Iterable[Any], n: int) -> CeleryChunks:
        """Return calls with the arguments of each item, in jobs of ``n`` calls each."""
        return CeleryChunks(self, items, n)

    def AsyncResult(self, task_id: str) -> AsyncResult:  # noqa: N802  (Celery's name)
        """Return the result of a call by its id."""
        return AsyncResult(task_id, app=self.app)

    # Inside a task ---------------------------------------------------------------------------------------------------

    def retry(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **_: Any,
    ) -> CeleryRetry:
        """Run this call again later: ``raise self.retry(exc=error, countdown=10)``."""
        request = self.request
        if request.called_directly:
            if exc is not None:
                raise exc
            raise CeleryRetry("Task can be retried", None)
        if eta is None and countdown is None:
            countdown = self.default_retry_delay
        most = self.max_retries if max_retries is None else max_retries
        if most is not None and request.retries + 1 > most:
            if exc is not None:
                raise exc
            raise self.MaxRetriesExceededError(
                f"Can't retry {self.name}[{request.id}] args:{request.args} kwargs:{request.kwargs}",
                task_args=request.args,
                task_kwargs=request.kwargs,
            )
        again = CeleryRetry(exc=exc, when=eta if eta is not None else countdown, is_eager=request.is_eager)
        again.args_again = None if args is None else tuple(args)
        again.kwargs_again = None if kwargs is None else dict(kwargs)
        if throw:
            raise again
        return again

    def update_state(
        self, task_id: str | None = None, state: str | None = None, meta: Any = None, **_: Any
    ) -> None:
        """Publish a state of your own and its data: ``self.update_state(state="PROGRESS", meta={"current": 5})``."""
        context = self.request.context
        if context is None or task_id not in (None, self.request.id):
            return
        context.save_checkpoint(STATE, json.dumps([context.attempt, state, to_json(meta)]))
        if isinstance(meta, Mapping) and isinstance(meta.get("current"), int) and meta.get("total"):
            context.progress(meta["current"], int(meta["total"]), state)

    # Handlers that subclasses override -------------------------------------------------------------------------------

    def before_start(self, task_id: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Called before the task runs."""

    def on_success(self, retval: Any, task_id: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Called after a success."""

    def on_failure(
        self, exc: BaseException, task_id: str, args: Sequence[Any], kwargs: Mapping[str, Any], einfo: Any
    ) -> None:
        """Called after a failure."""

    def on_retry(
        self, exc: BaseException, task_id: str, args: Sequence[Any], kwargs: Mapping[str, Any], einfo: Any
    ) -> None:
        """Called when the task is to be retried."""

    def after_return(
        self,
        status: str,
        retval: Any,
        task_id: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        einfo: Any,
    ) -> None:
        """Called after a success or a failure."""

    # Execution -------------------------------------------------------------------------------------------------------

    def execute(
        self,
        context: Context,
        args: list[Any],
        kwargs: dict[str, Any],
        links: Mapping[str, list[Any]] | None = None,
    ) -> Any:
        """Run the call of a job with its callbacks, and return its result for the store."""
        request = request_of(self, context, args, kwargs)
        if request.retries and (changed := context.checkpoint(ARGUMENTS)) is not None:
            request.args, request.kwargs = from_json(json.loads(changed))
        ended = self.trace(request)
        match ended.state:
            case states.RETRY:
                _put_back(context, request, ended.value)
            case states.FAILURE:
                self._note_error(context, ended.value)
                call_errbacks(self.app, (links or {}).get("link_error", ()), request, ended)
                raise ended.value
            case states.IGNORED if isinstance(ended.value, Reject):
                if ended.value.requeue:
                    raise Snooze(timedelta(seconds=1))
                raise Cancel(f"rejected: {ended.value.reason}")
        if links and ended.state == states.SUCCESS:
            call_links(self.app, links.get("link", ()), context, ended.value)
        # The next call of a canvas takes the value of this one, also if no caller wants it.
        dropped = request.ignore_result and context.job.details.flow_id is None
        return None if dropped else to_json(ended.value)

    def trace(self, request: CeleryRequest) -> CeleryEnd:
        """Run a call with its handlers and signals, and return how it ended."""
        token = running.set((self, request))
        ended = CeleryEnd(states.IGNORED, None)
        call = {"task_id": request.id, "args": request.args, "kwargs": request.kwargs}
        try:
            signals.task_prerun.send(self, task=self, **call)
            ended = self._ended(request)
            self._report(request, ended)
        finally:
            signals.task_postrun.send(self, task=self, retval=ended.value, state=ended.state, **call)
            running.reset(token)
        return ended

    def _ended(self, request: CeleryRequest) -> CeleryEnd:
        try:
            with _soft_limit(request.timelimit[1]):
                self.before_start(str(request.id), request.args, request.kwargs)
                overridden = type(self).__call__ is not CeleryTask.__call__
                body: Callable[..., Any] = self if overridden else self.run
                return CeleryEnd(states.SUCCESS, self._with_autoretry(body, request))
        except CeleryRetry as again:
            return CeleryEnd(states.RETRY, again, traceback.format_exc())
        except (Ignore, Reject) as ignored:
            return CeleryEnd(states.IGNORED, ignored)
        except Exception as error:  # noqa: BLE001  (any exception of a task is its failure)
            return CeleryEnd(states.FAILURE, error, traceback.format_exc())

    def _with_autoretry(self, body: Callable[..., Any], request: CeleryRequest) -> Any:
        if not self.autoretry_for:
            return body(*request.args, **request.kwargs)
        try:
            return body(*request.args, **request.kwargs)
        except (Ignore, CeleryRetry):
            raise
        except tuple(self.dont_autoretry_for):
            raise
        except tuple(self.autoretry_for) as error:
            options = dict(self.retry_kwargs)
            if self.retry_backoff:
                options["countdown"] = self._backoff(request.retries)
            raise self.retry(exc=error, **options) from error

    def _backoff(self, retries: int) -> int:
        countdown = min(self.retry_backoff_max, max(1, int(self.retry_backoff)) * 2**retries)
        if self.retry_jitter:
            countdown = random.randrange(int(countdown) + 1)  # noqa: S311  (spreads load, keeps no secret)
        return max(0, int(countdown))

    def _report(self, request: CeleryRequest, ended: CeleryEnd) -> None:
        """Call the handlers and send the signal of this end."""
        id, args, kwargs = str(request.id), request.args, request.kwargs
        if ended.state == states.SUCCESS:
            self.on_success(ended.value, id, args, kwargs)
            signals.task_success.send(self, result=ended.value)
            self.after_return(ended.state, ended.value, id, args, kwargs, None)
        elif ended.state == states.FAILURE:
            self.on_failure(ended.value, id, args, kwargs, ended.traceback)
            signals.task_failure.send(
                self,
                task_id=id,
                exception=ended.value,
                args=args,
                kwargs=kwargs,
                traceback=ended.value.__traceback__,
                einfo=ended.traceback,
            )
            self.after_return(ended.state, ended.value, id, args, kwargs, ended.traceback)
        elif ended.state == states.RETRY:
            reason = ended.value.exc or ended.value
            self.on_retry(reason, id, args, kwargs, ended.traceback)
            signals.task_retry.send(self, request=request, reason=reason, einfo=ended.traceback)

    def _note_error(self, context: Context, error: BaseException) -> None:
        """Save the arguments of an exception, unless its text is enough to make it again."""
        if error.args == (str(error),):
            return
        try:
            saved = json.dumps(to_json(error.args))
        except TypeError:
            saved = json.dumps([str(part) for part in error.args])
        context.save_checkpoint(ERROR, saved)

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"


def _put_back(context: Context, request: CeleryRequest, again: CeleryRetry) -> NoReturn:
    """Let the job run again, with its new arguments if there are any."""
    if again.args_again is not None or again.kwargs_again is not None:
        args = request.args if again.args_again is None else again.args_again
        kwargs = request.kwargs if again.kwargs_again is None else again.kwargs_again
        context.save_checkpoint(ARGUMENTS, json.dumps([to_json(args), to_json(kwargs)]))
    when = again.when
    if isinstance(when, datetime):
        at = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        when = max(0.0, (at - context.now()).total_seconds())
    raise RetrySignal(after=timedelta(seconds=when or 0), reason=str(again))


@contextmanager
def _soft_limit(seconds: float | None) -> Iterator[None]:
    """Raise ``SoftTimeLimitExceeded`` in the main thread after this time; other threads have no soft limit."""
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not seconds or not usable:
        yield
        return

    def expire(*_: object) -> NoReturn:
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
