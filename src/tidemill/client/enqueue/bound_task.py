"""Bound tasks, the objects that ``@app.task`` returns."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Unpack

from typing_extensions import TypeVar

from tidemill.client.core import Client
from tidemill.client.enqueue.options import NO_OPTIONS, CallKeywords, CallOptions
from tidemill.client.jobs.handle import Job
from tidemill.tasks.options import TaskOptions
from tidemill.tasks.parameter_rows import ParameterRow, parameter_rows
from tidemill.tasks.task import Declared

if TYPE_CHECKING:
    from tidemill.client.flows.node_jobs import NodeJobs

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", default=Any)
"""The return type of a direct call: the function's result, or a coroutine for a coroutine function."""

_ENQUEUE = "{task}.enqueue(…)"
_LATER = "{task}.using(delay=timedelta(…)).enqueue(…), with further options in using(…)"
_ELSEWHERE = {
    "delay": f"{_ENQUEUE}, or await {{task}}.aenqueue(…)",
    "delay_on_commit": "{task}.using(connection=…).enqueue(…) in your transaction",
    "apply_async": f"{_ENQUEUE} or {_LATER}",
    "apply": "{task}(…) to run it here",
    "s": _ENQUEUE,
    "si": _ENQUEUE,
    "signature": _ENQUEUE,
    "send": _ENQUEUE,
    "send_with_options": _LATER,
    "defer": _ENQUEUE,
    "defer_async": "await {task}.aenqueue(…)",
    "configure": "{task}.using(…)",
    "schedule": "app.schedule({task}, Cron(…)) to run it regularly, or " + _LATER,
    "kiq": "await {task}.aenqueue(…)",
}
"""Method names of Celery, Dramatiq, Procrastinate, Huey and TaskIQ, with the Tidemill equivalent of each."""


class LateClient(Protocol):
    """A source of the client for tasks whose app includes them later."""

    def client_for(self, task: str) -> Client: ...


class BoundTask(Generic[P, R, C]):
    """A declared task, bound to its app. ``using`` returns a copy with other options."""

    def __init__(self, home: Client | LateClient, declared: Declared, call: CallOptions = NO_OPTIONS) -> None:
        self._home = home
        self._declared = declared
        self._call = call
        functools.update_wrapper(self, declared.target, updated=())

    @property
    def _client(self) -> Client:
        home = self._home
        return home if isinstance(home, Client) else home.client_for(self.name)

    @property
    def home(self) -> object:
        """The group that declared this task, or the client of its app; for ``app.include``."""
        return self._home

    @property
    def name(self) -> str:
        """The key of this task in the registry and in every store."""
        return self._declared.name

    @property
    def options(self) -> TaskOptions:
        """The options from the task's declaration."""
        return self._declared.options

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return self._declared.arguments.schema()

    @property
    def parameters(self) -> list[ParameterRow]:
        """Its arguments as rows for forms: name, type, required, default, secret and description."""
        return parameter_rows(self._declared)

    def __call__(self, *args: Any, **kwargs: Any) -> C:
        """Run the function directly, without a job."""
        answer: C = self._declared.target(*args, **kwargs)
        return answer

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue one job; returns when the job is durable."""
        client = self._client
        place, (job,) = client.enqueuer.enqueue(self._declared, self._call, [(args, kwargs)])
        return Job(client, job, place)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue one job asynchronously; concurrent calls share a commit."""
        client = self._client
        place, (job,) = await client.enqueuer.aenqueue(self._declared, self._call, [(args, kwargs)])
        return Job(client, job, place)

    def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Job[R]]:
        """Enqueue many jobs, one for each dictionary of arguments; all of them or none."""
        client = self._client
        place, jobs = client.enqueuer.enqueue(self._declared, self._call, [((), call) for call in calls])
        return [Job(client, job, place) for job in jobs]

    async def aenqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Job[R]]:
        """Enqueue many jobs asynchronously; all of them or none."""
        client = self._client
        place, jobs = await client.enqueuer.aenqueue(
            self._declared, self._call, [((), call) for call in calls]
        )
        return [Job(client, job, place) for job in jobs]

    def validate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Raise ``BadArguments`` if a job with these arguments cannot be enqueued; nothing is stored."""
        self._client.enqueuer.build(self._declared, self._call, [(args, kwargs)])

    def call(self, *args: Any, **kwargs: Any) -> TaskCall[R]:
        """Return the task with some of its arguments, for ``flow.chain(fetch.call(url=…), parse.call(strict=True))``."""
        return TaskCall(self, args, kwargs)

    def node_jobs(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_map: bool) -> NodeJobs:
        """Build the jobs of a node of a flow; nothing is stored. For ``ctx.flow``."""
        from tidemill.client.flows.node_jobs import map_jobs, node_jobs

        build = map_jobs if is_map else node_jobs
        return build(self._client, self._declared, self._call, args, kwargs)

    def using(self, **options: Unpack[CallKeywords]) -> BoundTask[P, R, C]:
        """Return a copy of this task with these options for its jobs; other options stay unchanged."""
        return BoundTask(self._home, self._declared, self._call.merged(options))

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    if not TYPE_CHECKING:  # type checkers still report every unknown attribute

        def __getattr__(self, name: str) -> Any:
            """Raise an error that names the Tidemill equivalent of another job system's method."""
            hint = _ELSEWHERE.get(name)
            found = self.__dict__.get("_declared")
            if hint is None or found is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise AttributeError(f"task {found.name} has no {name}(); write {hint.format(task=found.name)}")


class TaskCall(Generic[R]):
    """A task with arguments; nothing is enqueued."""

    __slots__ = ("args", "kwargs", "task")

    def __init__(
        self, task: BoundTask[Any, R, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self.task, self.args, self.kwargs = task, args, kwargs

    def __repr__(self) -> str:
        return f"<call of task {self.task.name}>"


class Recipe:
    """A reusable set of options: ``recipe(task).enqueue(…)``. Options of the task's own ``using`` take precedence."""

    def __init__(self, options: CallKeywords) -> None:
        self._options = options
        NO_OPTIONS.merged(options)  # check the options now, not at the first call

    def __call__(self, task: BoundTask[P, R, C]) -> BoundTask[P, R, C]:
        profile = NO_OPTIONS.merged(self._options)
        own = task._call
        return BoundTask(task._home, task._declared, _over(profile, own))


def _over(profile: CallOptions, own: CallOptions) -> CallOptions:
    options = {
        name: getattr(own, name)
        for name in CallOptions.__dataclass_fields__
        if getattr(own, name) != getattr(NO_OPTIONS, name)
    }
    return profile.merged(options)
