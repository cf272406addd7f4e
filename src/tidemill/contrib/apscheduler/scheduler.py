"""APScheduler's schedulers on a Tidemill app with a worker inside this process."""

from __future__ import annotations

import importlib
import inspect
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tidemill.app import App
from tidemill.client.schedules.schedule import Schedule
from tidemill.contrib.apscheduler.triggers import DateTrigger, IntervalTrigger, trigger_of, zone_name
from tidemill.contrib.celery.payload import from_json, to_json
from tidemill.domain.schedule_rules import All, Every
from tidemill.domain.triggers.base import trigger_from_data
from tidemill.engine.context import Context
from tidemill.errors import BadSettings, ScheduleExists, ScheduleNotFound, UsageError

_log = logging.getLogger("tidemill.contrib.apscheduler")

F = TypeVar("F", bound=Callable[..., Any])

GRACE = "apscheduler_grace"
"""The metadata of a job that holds ``misfire_grace_time`` in seconds."""

_DEFAULTS: dict[str, Any] = {"misfire_grace_time": 1, "coalesce": True, "max_instances": 1}


class _Unset:
    """Stands for a value that is not given, because None has a meaning."""


_UNSET = _Unset()


class JobLookupError(KeyError):
    """There is no job with this id."""


class ConflictingIdError(KeyError):
    """There is a job with this id already; pass ``replace_existing=True`` to change it."""


class ScheduledJob:
    """A job of APScheduler: a schedule of one function."""

    def __init__(self, scheduler: _Scheduler, id: str, name: str, func: str) -> None:
        self._scheduler, self.id, self.name, self.func_ref = scheduler, id, name, func

    @property
    def pending(self) -> bool:
        """Whether the scheduler has not been started, so that the job is not stored yet."""
        return self._scheduler.stored(self.id) is None

    @property
    def next_run_time(self) -> datetime | None:
        """The next time, or None if the job is paused or not stored yet."""
        schedule = self._scheduler.stored(self.id)
        if schedule is None or not schedule.enabled:
            return None
        return next(iter(self._scheduler.app.schedules.preview(self.id, 1)), None)

    def pause(self) -> ScheduledJob:
        """Stop running the job."""
        return self._scheduler.pause_job(self.id)

    def resume(self) -> ScheduledJob:
        """Run the job again at its times."""
        return self._scheduler.resume_job(self.id)

    def remove(self) -> None:
        """Remove the job."""
        self._scheduler.remove_job(self.id)

    def reschedule(self, trigger: Any, **options: Any) -> ScheduledJob:
        """Give the job another trigger."""
        return self._scheduler.reschedule_job(self.id, trigger=trigger, **options)

    def modify(self, **changes: Any) -> ScheduledJob:
        """Change arguments of the job."""
        return self._scheduler.modify_job(self.id, **changes)

    def __repr__(self) -> str:
        return f"<Job (id={self.id} name={self.name})>"


class _Scheduler:
    """The methods of all schedulers."""

    def __init__(
        self,
        gconfig: Mapping[str, Any] | None = None,
        *,
        app: App | None = None,
        store: str | None = None,
        timezone: Any = None,
        job_defaults: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        given = {**(gconfig or {}), **options}
        for name in ("jobstores", "executors"):
            if given.pop(name, None):
                raise BadSettings(
                    f"{name}: Tidemill keeps jobs in one store and runs them in a worker; give store='postgresql://…'",
                    setting=name,
                )
        if unknown := sorted(given.keys() - {"daemon", "logger"}):
            raise BadSettings(f"unknown setting {unknown[0]!r} of a scheduler", setting=unknown[0])
        if app is not None and store is not None:
            raise BadSettings("give app or store, not both: an app names its own store")
        self.app = app if app is not None else App(store, migrate=True)
        self._owns_app = app is None
        self.timezone = zone_name(timezone)
        self._defaults = {**_DEFAULTS, **(job_defaults or {})}
        self._waiting: dict[str, Callable[[], object]] = {}  # jobs added before the start
        self._jobs: dict[str, ScheduledJob] = {}
        self._worker: Any = None
        self._retired: list[threading.Thread] = []
        self._served = set[str]()

    # Start and stop ------------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the scheduler has been started and not shut down."""
        return self._worker is not None

    def start(self, paused: bool = False) -> None:
        """Store the jobs that were added, and start a worker in this process."""
        if self.running:
            raise UsageError("the scheduler is running already")
        for put in list(self._waiting.values()):
            put()
        self._waiting.clear()
        self._worker = self._started()
        if paused:
            self.pause()

    def shutdown(self, wait: bool = True) -> None:
        """Stop the worker. With ``wait``, running jobs may end."""
        worker, self._worker = self._worker, None
        if worker is None:
            raise UsageError("the scheduler is not running")
        worker.stop(None if wait else 0)
        for retired in self._retired:
            retired.join()
        if self._owns_app:
            self.app.close()

    def pause(self) -> None:
        """Pause all jobs of this scheduler."""
        for job in self.get_jobs():
            job.pause()

    def resume(self) -> None:
        """Resume all jobs of this scheduler."""
        for job in self.get_jobs():
            job.resume()

    # Jobs ----------------------------------------------------------------------------------------------------------------

    def add_job(
        self,
        func: Callable[..., Any] | str,
        trigger: Any = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        name: str | None = None,
        misfire_grace_time: float | _Unset | None = _UNSET,
        coalesce: bool | None = None,
        max_instances: int | None = None,
        next_run_time: datetime | None = None,
        jobstore: str = "default",
        executor: str = "default",
        replace_existing: bool = False,
        **trigger_args: Any,
    ) -> ScheduledJob:
        """Run a function at the times of a trigger: ``add_job(tick, "interval", minutes=5, id="tick")``.

        The function is named by ``module:function`` and must be importable in every worker. Without an id, that name is the id.
        """
        for option, value in (("jobstore", jobstore), ("executor", executor)):
            if value != "default":
                raise BadSettings(
                    f"add_job: {option}={value!r} is not supported; there is one", setting=option
                )
        if next_run_time is not None:
            raise BadSettings(
                "add_job: next_run_time is not supported; give the trigger a start_date",
                setting="next_run_time",
            )
        reference, function = _function(func)
        inspect.signature(function).bind(*(args or ()), **(kwargs or {}))
        grace: float | None = (
            self._defaults["misfire_grace_time"]
            if isinstance(misfire_grace_time, _Unset)
            else misfire_grace_time
        )
        most = max_instances or self._defaults["max_instances"]
        key = id or self._free_id(reference)
        task = self._declare(reference if most == 1 else f"{reference}.{key}", function, most)
        made = trigger_of(trigger, trigger_args, self.timezone)
        options = {
            "args": {"args": to_json(list(args or ())), "kwargs": to_json(dict(kwargs or {}))},
            "timezone": made.timezone,
            "misfire": "once" if self._chosen("coalesce", coalesce) else All(),
            "overlap": "skip" if most == 1 else "allow",
            "metadata": {} if grace is None else {GRACE: float(grace)},
        }
        job = ScheduledJob(self, key, name or function.__name__, reference)
        if key in self._jobs and not replace_existing:
            raise ConflictingIdError(f"Job identifier ({key}) conflicts with an existing job")

        def put() -> None:
            self._put(key, task, made, options, grace, replace=replace_existing or not self.running)

        self._jobs[key] = job
        if self.running:
            self._serve_new_tasks()
            put()
        else:
            self._waiting[key] = put
        return job

    def scheduled_job(self, trigger: Any, **options: Any) -> Callable[[F], F]:
        """Decorate a function: ``@scheduler.scheduled_job("cron", hour=2)``."""

        def decorate(function: F) -> F:
            self.add_job(function, trigger, replace_existing=True, **options)
            return function

        return decorate

    def _serve_new_tasks(self) -> None:
        """Replace the worker if a task was declared after it had started. The old one ends when its jobs have ended."""
        if self._served == {task.name for task in self.app.registry}:
            return
        old, self._worker = self._worker, self._started()
        retired = threading.Thread(target=old.stop, name="tidemill-retired-worker", daemon=True)
        retired.start()
        self._retired.append(retired)

    def _started(self) -> Any:
        self._served = {task.name for task in self.app.registry}
        return self.app.worker().start()

    def _chosen(self, name: str, given: Any) -> Any:
        return self._defaults[name] if given is None else given

    def _free_id(self, reference: str) -> str:
        number, key = 1, reference
        while key in self._jobs:
            number += 1
            key = f"{reference}-{number}"
        return key

    def _declare(self, name: str, function: Callable[..., Any], most: int) -> Any:
        if name in self.app.registry:
            return name
        is_async = inspect.iscoroutinefunction(function)

        async def acall(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> None:
            if not _is_missed(ctx):
                await function(*from_json(args), **from_json(kwargs))

        def call(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> None:
            if not _is_missed(ctx):
                function(*from_json(args), **from_json(kwargs))

        body: Any = acall if is_async else call
        body.__doc__ = function.__doc__
        return self.app.task(name=name, retry=None, max_concurrent=0 if most == 1 else most)(body)

    def _put(
        self,
        key: str,
        task: Any,
        made: Any,
        options: dict[str, Any],
        grace: float | None,
        *,
        replace: bool,
    ) -> None:
        """Store a job, or change the stored one."""
        now = self.app.clock.now()
        if isinstance(made, DateTrigger) and (made.run_date is None or made.run_date <= now):
            self._run_past(key, task, made, options, grace, now)
            return
        trigger = made.trigger(now)
        schedule = self.stored(key)
        if isinstance(made, IntervalTrigger) and made.start_date is None and schedule is not None:
            # The interval of an unchanged job continues across restarts and processes.
            before = trigger_from_data(schedule.row.trigger)
            if isinstance(before, Every) and before.interval == made.interval:
                trigger = before
        if schedule is None:
            try:
                self.app.schedules.add(task, trigger, key, **options)
            except ScheduleExists:
                # Another process has added it at the same time.
                if not replace:
                    raise ConflictingIdError(
                        f"Job identifier ({key}) conflicts with an existing job"
                    ) from None
            return
        if not replace:
            raise ConflictingIdError(f"Job identifier ({key}) conflicts with an existing job")
        if schedule.task != getattr(task, "name", task):
            self.app.schedules.remove(key)
            self.app.schedules.add(task, trigger, key, **options)
        else:
            self.app.schedules.update(key, trigger=trigger, **options)

    def _run_past(
        self,
        key: str,
        task: Any,
        made: DateTrigger,
        options: dict[str, Any],
        grace: float | None,
        now: datetime,
    ) -> None:
        """Run a job whose date has come, unless it is missed."""
        late = timedelta() if made.run_date is None else now - made.run_date
        self._jobs.pop(key, None)
        if grace is not None and late > timedelta(seconds=grace):
            _log.warning("job %s was missed by %s", key, late)
            return
        self.app.enqueue(getattr(task, "name", task), **options["args"])

    # Changes -------------------------------------------------------------------------------------------------------------

    def stored(self, id: str) -> Schedule | None:
        """The schedule of a job, or None if it is not stored."""
        try:
            return self.app.schedules.get(id)
        except ScheduleNotFound:
            return None

    def get_job(self, job_id: str, jobstore: str | None = None) -> ScheduledJob | None:
        """Return the job with this id, or None."""
        if job_id in self._jobs:
            return self._jobs[job_id]
        schedule = self.stored(job_id)
        return None if schedule is None else ScheduledJob(self, job_id, job_id, schedule.task)

    def get_jobs(self, jobstore: str | None = None, pending: bool | None = None) -> list[ScheduledJob]:
        """Return all jobs, those that are not stored yet included."""
        stored = {schedule.key: schedule.task for schedule in self.app.schedules.list()}
        jobs = {key: ScheduledJob(self, key, key, task) for key, task in stored.items()}
        waiting = {key: job for key, job in self._jobs.items() if key in stored or key in self._waiting}
        return list({**jobs, **waiting}.values())

    def _known(self, job_id: str) -> ScheduledJob:
        job = self.get_job(job_id)
        if job is None:
            raise JobLookupError(f"No job by the id of {job_id} was found")
        return job

    def pause_job(self, job_id: str, jobstore: str | None = None) -> ScheduledJob:
        """Stop running a job."""
        job = self._known(job_id)
        self.app.schedules.pause(job_id)
        return job

    def resume_job(self, job_id: str, jobstore: str | None = None) -> ScheduledJob:
        """Run a paused job again at its times."""
        job = self._known(job_id)
        self.app.schedules.resume(job_id)
        return job

    def remove_job(self, job_id: str, jobstore: str | None = None) -> None:
        """Remove a job."""
        self._known(job_id)
        self._jobs.pop(job_id, None)
        waited = self._waiting.pop(job_id, None) is not None
        try:
            self.app.schedules.remove(job_id)
        except ScheduleNotFound:
            if not waited:
                raise JobLookupError(f"No job by the id of {job_id} was found") from None

    def remove_all_jobs(self, jobstore: str | None = None) -> None:
        """Remove all jobs."""
        for job in self.get_jobs():
            self.remove_job(job.id)

    def reschedule_job(
        self, job_id: str, jobstore: str | None = None, trigger: Any = None, **options: Any
    ) -> ScheduledJob:
        """Give a job another trigger."""
        job = self._known(job_id)
        made = trigger_of(trigger, options, self.timezone)
        changed = made.trigger(self.app.clock.now())
        self.app.schedules.update(job_id, trigger=changed, timezone=made.timezone)
        return job

    def modify_job(self, job_id: str, jobstore: str | None = None, **changes: Any) -> ScheduledJob:
        """Change ``args``, ``kwargs``, ``coalesce`` or ``misfire_grace_time`` of a job."""
        job = self._known(job_id)
        row = self.app.schedules.get(job_id)
        known = {"args", "kwargs", "coalesce", "misfire_grace_time", "name"}
        if unknown := sorted(changes.keys() - known):
            raise BadSettings(
                f"modify_job: {unknown[0]!r} cannot be changed; remove the job and add it again"
            )
        options: dict[str, Any] = {}
        if "args" in changes or "kwargs" in changes:
            options["args"] = {
                **row.args,
                **{name: to_json(changes[name]) for name in ("args", "kwargs") if name in changes},
            }
        if "coalesce" in changes:
            options["misfire"] = "once" if changes["coalesce"] else All()
        if "misfire_grace_time" in changes:
            grace = changes["misfire_grace_time"]
            options["metadata"] = {} if grace is None else {GRACE: float(grace)}
        if options:
            self.app.schedules.update(job_id, **options)
        job.name = changes.get("name", job.name)
        return job


class BackgroundScheduler(_Scheduler):
    """Runs jobs in threads of this process."""


class AsyncIOScheduler(_Scheduler):
    """Runs coroutines on the event loop of its worker, which has a thread of its own."""


class BlockingScheduler(_Scheduler):
    """Runs jobs until the program is interrupted."""

    def start(self, paused: bool = False) -> None:
        super().start(paused)
        try:
            threading.Event().wait()
        except (KeyboardInterrupt, SystemExit):
            self.shutdown()


def _is_missed(ctx: Context) -> bool:
    """Whether the run is later than its ``misfire_grace_time``."""
    fire_at, grace = ctx.job.details.fire_at, ctx.job.details.metadata.get(GRACE)
    if fire_at is None or not isinstance(grace, int | float):
        return False
    late = ctx.now() - fire_at
    if late <= timedelta(seconds=grace):
        return False
    ctx.log(f"the run was missed by {late}", level="warning")
    return True


def _function(func: Callable[..., Any] | str) -> tuple[str, Callable[..., Any]]:
    """A function and the name of its task."""
    if isinstance(func, str):
        module, _, name = func.partition(":")
        target: Any = importlib.import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
        return f"{module}.{name}", target
    name = getattr(func, "__qualname__", "")
    if not name or "<lambda>" in name:
        raise UsageError(
            f"{func!r} has no name, so that other processes cannot find it; give a function of a module"
        )
    return f"{func.__module__}.{name.replace('<locals>.', '')}", func
