"""The steps of one execution: replay by name, new records, retries and suspension.

Every verb is one generator. It yields operations (``StepOperation``), and ``drive`` or ``adrive`` carries them out: the twins of a
verb for functions and coroutines share all their rules.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar

from tidemill.domain.graph import Additions
from tidemill.domain.job import Claim
from tidemill.domain.outcome import Suspended
from tidemill.domain.steps import (
    PREFIX,
    SHORT_RETRY,
    SHORT_SLEEP,
    TRY,
    VERSION,
    StepView,
    check_room,
    error_record,
    has_fingerprint,
    note_record,
    numbered,
    plain_name,
    read_instant,
    read_note,
    recorded_value,
    step_records,
    step_views,
    tries_of,
    value_record,
    versions_of,
)
from tidemill.engine import sanitize
from tidemill.engine.completion import Connections
from tidemill.engine.step_operations import (
    Invoke,
    Read,
    StepOperation,
    StepOutlet,
    StoreTime,
    WaitInPlace,
    Write,
    WriteOn,
)
from tidemill.engine.step_values import (
    dumped,
    error_arguments,
    fingerprint_of,
    loaded,
    rebuilt_error,
    type_path,
)
from tidemill.engine.suspension import Suspending, Suspension, additions_of
from tidemill.errors import PermanentError, Review, Snooze, StepChanged, Suspend, UsageError
from tidemill.tasks.steps import Step

T = TypeVar("T")

CURRENT: ContextVar[str | None] = ContextVar("tidemill_step", default=None)
"""The name of the step whose function runs."""

NOT_RECORDED = object()

Talk = Generator[StepOperation, Any, T]
"""A verb: it yields operations, receives their results, and returns its own."""

_NEWER_CODE = timedelta(seconds=5)
"""How long a job waits that newer code has run than this worker has."""

TWO_WAITS = (
    "this job waits in two places at once, for {0!r} and for {1!r}; wait for the first of several things with"
    " ctx.first(…), or for all of them with ctx.join([…])"
)


class StepLog:
    """The recorded steps of a job, and the state of this execution of it. Threads and coroutines of the job share it."""

    def __init__(self, outlet: StepOutlet, say: Callable[[str, str], None]) -> None:
        self.outlet, self._say = outlet, say
        self._lock = threading.RLock()
        self._left = threading.Condition(self._lock)
        self._records: dict[str, str] | None = None
        self._size = 0
        self._counts: Counter[str] = Counter()
        self._names: set[str] = set()  # names of this execution that were reached
        self._active: set[str] = set()  # steps that run
        self._waiters: list[Callable[[], object]] = []
        self._unwritten: dict[str, str] = {}  # lazy records and caught failures
        self._waiting: str | None = None  # the wait that suspends the job
        self._signal: Suspending | None = None
        self._misuse: UsageError | None = None
        self._version: int | None = None

    # State -------------------------------------------------------------------------------------------------------------

    @property
    def claim(self) -> Claim:
        return self.outlet.claim

    @property
    def suspending(self) -> bool:
        """Whether the job is being suspended."""
        return self._signal is not None

    def records(self) -> Talk[dict[str, str]]:
        """The job's records, which are read once for each execution."""
        if self._records is None:
            checkpoints = yield Read()
            with self._lock:
                if self._records is None:
                    records = step_records(checkpoints)
                    self._size = sum(map(len, records.values()))
                    self._check_version(versions_of(records))
                    self._records = records
        return self._records

    def views(self) -> Talk[list[StepView]]:
        """The recorded steps, those that are not written yet included."""
        records = yield from self.records()
        both = {**records, **self._unwritten}
        return step_views({PREFIX + name: value for name, value in both.items()})

    # Versions ----------------------------------------------------------------------------------------------------------

    def version(self) -> Talk[int | None]:
        """The version of the task that began this job; this code's version if no step was recorded yet."""
        yield from self.records()
        return self._version

    def _check_version(self, ran: list[int]) -> None:
        options = self.outlet.declared.options
        mine = options.version
        self._version = ran[0] if ran else mine
        if mine is None or not ran:
            return
        if ran[-1] > mine:
            raise Snooze(
                _NEWER_CODE, f"version {ran[-1]} of the task has run this job, and this worker has {mine}"
            )
        if ran[0] < (options.resumes or 0):
            raise Review(
                f"the job was begun by version {ran[0]} of the task, and version {mine} resumes jobs"
                f" of version {options.resumes} and later"
            )

    def _with_version(self, records: dict[str, str]) -> dict[str, str]:
        """The records, and the version of this code if it is not recorded yet."""
        mine = self.outlet.declared.options.version
        if mine is None or f"{VERSION}{mine}" in (self._records or {}):
            return records
        return {f"{VERSION}{mine}": note_record("version"), **records}

    # Names -------------------------------------------------------------------------------------------------------------

    def enter(self, name: str) -> str:
        """The numbered name of a step that begins now. Raises the suspension of the job if there is one."""
        with self._lock:
            if self._signal is not None:
                raise self._signal
            if name in self._active:
                raise UsageError(
                    f"the step {name!r} runs twice at the same time; give each its own name or key: Step({name!r}, key=…)"
                )
            self._counts[name] += 1
            full = numbered(name, self._counts[name])
            self._names.add(full)
            return full

    def recall(
        self, step: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """The recorded result of the next step of this name; ``NOT_RECORDED`` if it must be performed.

        A short cut: a job that resumes passes here once for each recorded step.
        """
        records = self._records
        if records is None or type(step) is not str:
            return NOT_RECORDED
        with self._lock:
            name = plain_name(step)
            record = records.get(numbered(name, self._counts[name] + 1))
            if record is None:
                return NOT_RECORDED
            name = self.enter(name)
        return self.replayed(name, record, fn, fingerprint_of(fn, args, kwargs))

    def enter_again(self, name: str) -> bool:
        """Enter a step that keeps its name when it is repeated; return whether it was reached before."""
        with self._lock:
            if self._signal is not None:
                raise self._signal
            reached = name in self._names
            self._names.add(name)
            return reached

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """The time in which a step runs. A suspension waits for its end."""
        with self._lock:
            self._active.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._active.discard(name)
                if not self._active:
                    self._left.notify_all()
                    waiters, self._waiters = self._waiters, []
                    for wake in waiters:
                        wake()

    def wait_idle(self) -> None:
        """Wait until no step runs."""
        with self._left:
            self._left.wait_for(lambda: not self._active)

    def call_when_idle(self, act: Callable[[], object]) -> None:
        """Call ``act`` once no step runs."""
        with self._lock:
            if self._active:
                self._waiters.append(act)
                return
        act()

    # Writing -----------------------------------------------------------------------------------------------------------

    def write(self, name: str, record: str, *, lazy: bool = False) -> Talk[None]:
        """Write a record, with the records that wait for the next write. A lazy one waits itself."""
        records = yield from self.records()
        with self._lock:
            check_room(len(records) + len(self._unwritten) + 1, self._size + len(record))
            self._size += len(record)
            if lazy:
                self._unwritten[name] = record
                return
            batch, self._unwritten = self._with_version({**self._unwritten, name: record}), {}
            records.update(batch)
        try:
            yield Write(batch)
        except BaseException:
            with self._lock:
                for unwritten in batch:
                    records.pop(unwritten, None)
            raise

    def keep(self, name: str, record: str) -> None:
        """Keep a record that another write has stored already."""
        with self._lock:
            if self._records is not None:
                self._records[name] = record
            self._size += len(record)

    def forget(self, name: str) -> None:
        """Drop a failure that was not caught after all, or was overtaken by a result."""
        with self._lock:
            self._unwritten.pop(name, None)

    # Suspension --------------------------------------------------------------------------------------------------------

    def suspend(self, name: str, suspension: Suspension) -> Talk[NoReturn]:
        """Suspend the job at the wait of this name, after the steps that run in other branches have ended."""
        with self._lock:
            if self._waiting not in (None, name):
                self._misuse = UsageError(TWO_WAITS.format(self._waiting, name))
                raise self._misuse
            self._waiting = name
        yield StoreIdle(self)
        if not suspension.is_tied:
            # A record that says how long to wait may be written first; the finish of the job is then a plain one.
            with self._lock:
                batch, self._unwritten = {**self._unwritten, **suspension.records}, {}
            if batch:
                yield Write(self._with_version(batch))
            suspension = suspension._replace(records={})
        now = yield StoreTime()
        with self._lock:
            self._signal = Suspending(suspension, now)
            raise self._signal

    def suspended(self) -> tuple[Suspended, Additions | None] | None:
        """The outcome of a suspended execution, and the rows to write with it; None if it was not suspended."""
        if self._misuse is not None:
            raise self._misuse
        if self._signal is None:
            return None
        suspension = self._signal.suspension
        with self._lock:
            unwritten = dict(self._unwritten)
        if unwritten or suspension.records:
            unwritten = self._with_version(unwritten)
        return self._signal.outcome, additions_of(suspension, self.claim, unwritten)

    def completed(self) -> Additions | None:
        """The lazy records to write with the completion of the job. Logs recorded steps that were not reached."""
        with self._lock:
            left = sorted(name for name in set(self._records or ()) - self._names if not name.startswith("@"))
            if left:
                shown = ", ".join(left[:10]) + (f" and {len(left) - 10} more" if len(left) > 10 else "")
                self._say(f"recorded steps were not reached: {shown}", "warning")
            if not self._unwritten:
                return None
            nothing = Suspension("")
            return additions_of(nothing, self.claim, self._with_version(self._unwritten))

    # Replay ------------------------------------------------------------------------------------------------------------

    def changed(self, name: str, what: str) -> None:
        """Report that a recorded step is called in another way: in the log, or by a review if the task is strict."""
        problem = f"step {name} was recorded with {what}; its recorded result is used"
        if self.outlet.declared.options.steps == "strict":
            raise StepChanged(f"step {name} was recorded with {what}")
        self._say(problem, "warning")

    def key(self) -> str:
        """The key of the step that this code runs in."""
        name = CURRENT.get()
        if name is None:
            raise UsageError("ctx.step_key is for the function of a step, and this code runs in none")
        return f"{self.claim.id}/{name}"

    def replayed(self, name: str, record: str, fn: Callable[..., Any], fingerprint: str) -> Any:
        """The recorded result of a step; raises the recorded error."""
        value = recorded_value(record)
        if value is not None:
            if not has_fingerprint(record, fingerprint):
                self.changed(
                    name, f"another function or other arguments ({read_note(record)['f']}, now {fingerprint})"
                )
            return loaded(name, fn, value, self.claim.id)
        note = read_note(record)
        if note["is"] == "error":
            raise rebuilt_error(name, note)
        self.changed(name, f"something else, a {note['is']}")
        raise UsageError(f"step {name} was recorded as a {note['is']}; give the new step another name")


class StoreIdle(StepOperation):
    """Waits until no step of the job runs."""

    def __init__(self, log: StepLog) -> None:
        self._log = log

    def run(self, outlet: StepOutlet) -> None:
        self._log.wait_idle()

    async def arun(self, outlet: StepOutlet) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        idle = loop.create_future()
        self._log.call_when_idle(lambda: loop.call_soon_threadsafe(_wake, idle))
        await idle


def _wake(future: Any) -> None:
    if not future.done():
        future.set_result(None)


# Verbs -------------------------------------------------------------------------------------------------------------------


def perform(
    log: StepLog, step: Step | str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Talk[Any]:
    """``ctx.step``: the recorded result of a step, or that of calling its function."""
    if not callable(fn):
        raise UsageError(f"{fn!r} is not a function; write ctx.step(name, function, *arguments)")
    base = plain_name(step) if isinstance(step, str) else step.full_name
    records = yield from log.records()
    name = log.enter(base)
    fingerprint = fingerprint_of(fn, args, kwargs)
    record = records.get(name)
    if record is not None:
        return log.replayed(name, record, fn, fingerprint)
    options = Step(step) if isinstance(step, str) else step
    if options.compensate is not None:
        # Imported here: compensation builds on this module.
        from tidemill.engine.compensation import intend

        yield from intend(log, name, options.compensate)
    with log.running(base):
        return (yield from _perform(log, options, name, fingerprint, fn, args, kwargs))


def perform_in(
    log: StepLog,
    connections: Connections,
    connection: object,
    step: Step | str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Talk[Any]:
    """``ctx.step_in``: a step whose record commits with the user's own transaction."""
    options = Step(step) if isinstance(step, str) else step
    if options.retry is not None or options.lazy or options.compensate is not None:
        raise UsageError(
            "a step in your own transaction has no retry, lazy or compensate: the transaction decides"
        )
    records = yield from log.records()
    name = options.full_name
    if log.enter_again(name):
        # The transaction of the first call may have committed or rolled back, so the name gets no number.
        records = step_records((yield Read()))
    fingerprint = fingerprint_of(fn, args, kwargs)
    if name in records:
        return log.replayed(name, records[name], fn, fingerprint)
    with log.running(options.full_name):
        invoke = Invoke(name, fn, args, kwargs, options.timeout)
        token = CURRENT.set(name)
        try:
            value = yield invoke
        finally:
            CURRENT.reset(token)
        text = dumped(name, fn, value, log.claim.id)
        record = value_record(text, fingerprint, invoke.milliseconds)
        check_room(len(records) + 1, log._size + len(record))
        batch = log._with_version({name: record})
        yield WriteOn(connections, connection, batch)
        # Not kept in memory: only the user's commit makes it a record.
        return loaded(name, fn, text, log.claim.id)


def _perform(
    log: StepLog,
    step: Step,
    name: str,
    fingerprint: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Talk[Any]:
    tries = tries_of((yield from log.records()), name) if step.retry is not None else 0
    value: Any = None
    while True:
        invoke = Invoke(name, fn, args, kwargs, step.timeout)
        token = CURRENT.set(name)
        try:
            value = yield invoke
            break
        except Exception as error:
            tries += 1
            delay = _next_try(step, tries, error)
            if delay is None:
                failure = error_record(
                    type_path(error),
                    sanitize.text_of(error)[:2000],
                    fingerprint,
                    invoke.milliseconds,
                    error_arguments(error),
                )
                # Written with the next record: only a failure that the function caught is followed by one.
                log._unwritten[name] = failure
                raise
            CURRENT.set(None)
            yield from _before_retry(log, name, tries, delay, error)
        finally:
            CURRENT.reset(token)
    text = dumped(name, fn, value, log.claim.id)
    yield from log.write(name, value_record(text, fingerprint, invoke.milliseconds), lazy=step.lazy)
    return loaded(name, fn, text, log.claim.id)


def _next_try(step: Step, tries: int, error: Exception) -> timedelta | None:
    """The delay before the next try of a step; None if there is none."""
    policy = step.retry
    if policy is None or tries >= policy.max_attempts or isinstance(error, PermanentError):
        return None
    return policy.delay(tries, random.random())  # noqa: S311  (not security-relevant)


def _before_retry(log: StepLog, name: str, tries: int, delay: timedelta, error: Exception) -> Talk[None]:
    problem = f"{sanitize.type_of(error)}: {sanitize.text_of(error)[:500]}"
    log._say(
        f"step {name} failed at try {tries}: {problem}; next try in {delay.total_seconds():g} s", "warning"
    )
    if delay < SHORT_RETRY:
        yield WaitInPlace(delay.total_seconds())
        return
    now = yield StoreTime()
    record = {f"{TRY}{name}/{tries}": note_record("try", error=problem)}
    with log._lock:
        # This step itself no longer runs.
        log._active.discard(name.partition("#")[0])
    yield from log.suspend(
        name,
        Suspension(f"step {name} failed, try {tries + 1} follows: {problem}", now + delay, records=record),
    )


def sleep(log: StepLog, name: str, span: timedelta) -> Talk[None]:
    """``ctx.sleep``."""
    return (yield from _sleep(log, name, lambda now: now + span, short=span < SHORT_SLEEP, span=span))


def sleep_until(log: StepLog, name: str, at: datetime) -> Talk[None]:
    """``ctx.sleep_until``."""
    return (yield from _sleep(log, name, lambda _: at))


def _sleep(
    log: StepLog,
    name: str,
    wake_at: Callable[[datetime], datetime],
    *,
    short: bool = False,
    span: timedelta = SHORT_SLEEP,
) -> Talk[None]:
    records = yield from log.records()
    full = log.enter(Step(name).full_name)
    record = records.get(full)
    if record is None and short:
        yield WaitInPlace(max(span.total_seconds(), 0.0))
        now = yield StoreTime()
        yield from log.write(full, note_record("sleep", at=now.isoformat()), lazy=True)
        return
    now = yield StoreTime()
    if record is None:
        at = wake_at(now)
        new = {full: note_record("sleep", at=at.isoformat())}
    else:
        note = read_note(record)
        if note["is"] != "sleep":
            raise UsageError(f"step {full} was recorded as a {note['is']}; give the sleep another name")
        at, new = read_instant(note), {}
    if at <= now:
        if new:
            yield from log.write(full, new[full], lazy=True)
        return
    if at - now < SHORT_SLEEP and not new:
        yield WaitInPlace((at - now).total_seconds())
        return
    yield from log.suspend(
        full, Suspension(f"sleeps until {at.isoformat(timespec='seconds')}", at, records=new)
    )


def is_suspension(error: BaseException) -> bool:
    """Whether this is the signal that suspends the job, or a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_suspension(one) for one in error.exceptions)
    return isinstance(error, Suspend)
