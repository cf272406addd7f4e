"""Values of provided parameters for one execution, and their release after it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any

from tidemill.tasks.providers import Provider, ProviderKind

Providers = Iterable[tuple[str, Provider]]


def call_with_provided(
    call: Callable[[dict[str, Any]], Any],
    providers: Providers,
    context: object,
    wait: Callable[[Coroutine[Any, Any, Any]], Any],
) -> Any:
    """Call a function with the values of its providers, and release them afterwards.

    ``wait`` runs the coroutines of async providers.
    """
    stack = ExitStack()
    try:
        answer = call(_SyncValues(stack, context, wait).fill(providers))
    except BaseException as error:
        # Raised again even if a provider suppresses it: a job that failed must not look completed.
        stack.__exit__(type(error), error, error.__traceback__)
        raise
    stack.close()
    return answer


async def acall_with_provided(
    call: Callable[[dict[str, Any]], Any], providers: Providers, context: object
) -> Any:
    """Call a coroutine function with the values of its providers, and release them afterwards."""
    stack = AsyncExitStack()
    try:
        answer = call(await _AsyncValues(stack, context).fill(providers))
        if inspect.isawaitable(answer):
            answer = await answer
    except BaseException as error:
        await stack.__aexit__(type(error), error, error.__traceback__)
        raise
    await stack.aclose()
    return answer


class _SyncValues:
    """The values for a function. The stack releases them."""

    def __init__(
        self, stack: ExitStack, context: object, wait: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._stack, self._context, self._wait = stack, context, wait
        self._values: dict[int, Any] = {}

    def fill(self, providers: Providers) -> dict[str, Any]:
        return {name: self._value(provider) for name, provider in providers}

    def _value(self, provider: Provider) -> Any:
        if provider.cached and id(provider.function) in self._values:
            return self._values[id(provider.function)]
        arguments = self.fill(provider.providers) | dict.fromkeys(provider.context_parameters, self._context)
        value = self._made(provider, arguments)
        self._values[id(provider.function)] = value
        return value

    def _made(self, provider: Provider, arguments: dict[str, Any]) -> Any:
        match provider.kind:
            case ProviderKind.GENERATOR:
                return self._stack.enter_context(contextmanager(provider.function)(**arguments))
            case ProviderKind.ASYNC_GENERATOR:
                manager = asynccontextmanager(provider.function)(**arguments)
                value = self._wait(_entered(manager))
                self._stack.push(lambda *error: self._wait(_left(manager, error)))
                return value
            case ProviderKind.COROUTINE:
                return self._wait(provider.function(**arguments))
        return provider.function(**arguments)


class _AsyncValues:
    """The values for a coroutine. The stack releases them."""

    def __init__(self, stack: AsyncExitStack, context: object) -> None:
        self._stack, self._context = stack, context
        self._values: dict[int, Any] = {}

    async def fill(self, providers: Providers) -> dict[str, Any]:
        return {name: await self._value(provider) for name, provider in providers}

    async def _value(self, provider: Provider) -> Any:
        if provider.cached and id(provider.function) in self._values:
            return self._values[id(provider.function)]
        arguments = await self.fill(provider.providers)
        arguments |= dict.fromkeys(provider.context_parameters, self._context)
        value = await self._made(provider, arguments)
        self._values[id(provider.function)] = value
        return value

    async def _made(self, provider: Provider, arguments: dict[str, Any]) -> Any:
        match provider.kind:
            case ProviderKind.GENERATOR:
                return self._stack.enter_context(contextmanager(provider.function)(**arguments))
            case ProviderKind.ASYNC_GENERATOR:
                manager = asynccontextmanager(provider.function)(**arguments)
                return await self._stack.enter_async_context(manager)
            case ProviderKind.COROUTINE:
                return await provider.function(**arguments)
        return provider.function(**arguments)


async def _entered(manager: Any) -> Any:
    return await manager.__aenter__()


async def _left(manager: Any, error: tuple[Any, ...]) -> Any:
    return await manager.__aexit__(*error)
