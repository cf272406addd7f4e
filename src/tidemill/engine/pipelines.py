"""The verb of a context that runs the declared stages of its task as a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tidemill.domain.steps import StepView
from tidemill.errors import UsageError
from tidemill.tasks.options import StageFunction
from tidemill.tasks.steps import Step
from tidemill.tasks.task import Declared


class PipelineVerbs:
    """Runs the stages of a task in order. Each is a step, so a retry begins with the stage that failed."""

    __slots__ = ()

    outlet: Any

    def stage(self, name: str) -> AbstractContextManager[None]:
        raise NotImplementedError

    def step(self, step: Step | str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def astep(self, step: Step | str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    @property
    def steps(self) -> list[StepView]:
        raise NotImplementedError

    async def asteps(self) -> list[StepView]:
        raise NotImplementedError

    def run_stages(self, *args: Any, **kwargs: Any) -> Any:
        """Run the functions that ``stages=`` of the task declares, in order, and return the result of the last one.

        The first stage gets these arguments, every other one the result of the stage before it. Each result is recorded like
        that of a step: when the job runs again, it continues with the first stage that has no result.
        """
        functions = _functions(self.outlet.declared)
        recorded = {view.name for view in self.steps}
        for name, function in functions:
            if name in recorded:
                args, kwargs = (self.step(name, function, *args, **kwargs),), {}
                continue
            with self.stage(name):
                args, kwargs = (self.step(name, function, *args, **kwargs),), {}
        return args[0]

    async def arun_stages(self, *args: Any, **kwargs: Any) -> Any:
        """Run the stages of the task like ``run_stages``; they may be coroutines."""
        functions = _functions(self.outlet.declared)
        recorded = {view.name for view in await self.asteps()}
        for name, function in functions:
            if name in recorded:
                args, kwargs = (await self.astep(name, function, *args, **kwargs),), {}
                continue
            with self.stage(name):
                args, kwargs = (await self.astep(name, function, *args, **kwargs),), {}
        return args[0]


def _functions(declared: Declared) -> list[tuple[str, Callable[..., Any]]]:
    stages = declared.options.stages
    functions = [(str(stage), stage.function) for stage in stages if isinstance(stage, StageFunction)]
    if not functions or len(functions) < len(stages):
        raise UsageError(
            f"task {declared.name} declares no functions as its stages; write stages=(extract, transform, load) with functions"
        )
    return functions
