"""A task that can be asked for: what ``@app.task`` gives back. Calling it just runs the function."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

from tidemill.client.core import Client
from tidemill.client.handle import Job
from tidemill.client.options import NO_OPTIONS, CallKeywords, CallOptions
from tidemill.tasks.options import TaskOptions
from tidemill.tasks.task import Declared

P = ParamSpec("P")
R = TypeVar("R")


class BoundTask(Generic[P, R]):
    """A declared task and where its jobs go. ``using`` gives a copy that asks differently."""

    def __init__(self, client: Client, declared: Declared, call: CallOptions = NO_OPTIONS) -> None:
        self._client = client
        self._declared = declared
        self._call = call
        functools.update_wrapper(self, declared.target, updated=())

    @property
    def name(self) -> str:
        """The key of this task in the registry and in every store."""
        return self._declared.name

    @property
    def options(self) -> TaskOptions:
        """What was said when it was declared."""
        return self._declared.options

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return self._declared.arguments.schema()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it here and now, as if it were no task."""
        return self._declared.target(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Ask for one run; returns when the job is durable."""
        (facts,) = self._client.enqueue(self._declared, self._call, [(args, kwargs)])
        return Job(self._client, facts, self._call.store)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """The same, awaited; calls that wait at the same time share a commit."""
        (facts,) = await self._client.aenqueue(self._declared, self._call, [(args, kwargs)])
        return Job(self._client, facts, self._call.store)

    def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Job[R]]:
        """Ask for many runs, each given by its arguments; all of them or none."""
        found = self._client.enqueue(self._declared, self._call, [((), call) for call in calls])
        return [Job(self._client, facts, self._call.store) for facts in found]

    async def aenqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Job[R]]:
        """The same, awaited."""
        found = await self._client.aenqueue(self._declared, self._call, [((), call) for call in calls])
        return [Job(self._client, facts, self._call.store) for facts in found]

    def using(self, **options: Unpack[CallKeywords]) -> BoundTask[P, R]:
        """A copy of this task whose jobs are asked for with these options; what is left out stays as it is."""
        return BoundTask(self._client, self._declared, self._call.merged(options))

    def __repr__(self) -> str:
        return f"<task {self.name}>"


class Recipe:
    """A profile of options, said once: ``recipe(task).enqueue(…)``. What a call says itself wins."""

    def __init__(self, options: CallKeywords) -> None:
        self._options = options
        NO_OPTIONS.merged(options)  # what is wrong is said now

    def __call__(self, task: BoundTask[P, R]) -> BoundTask[P, R]:
        profile = NO_OPTIONS.merged(self._options)
        own = task._call
        return BoundTask(task._client, task._declared, _over(profile, own))


def _over(profile: CallOptions, own: CallOptions) -> CallOptions:
    said = {
        name: getattr(own, name)
        for name in CallOptions.__dataclass_fields__
        if getattr(own, name) != getattr(NO_OPTIONS, name)
    }
    return profile.merged(said)
