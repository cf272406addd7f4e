"""Shards that did not answer a question about all tenants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")


class Partial(Protocol):
    """An answer that names the shards which it lacks."""

    @property
    def missing(self) -> tuple[str, ...]: ...


if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    class _PartialData(Partial, DataclassInstance, Protocol): ...


A = TypeVar("A", bound="_PartialData")

_MISSING: ContextVar[set[str] | None] = ContextVar("tidemill_missing", default=None)


@contextmanager
def noting_missing() -> Iterator[set[str]]:
    """Collect the names of the shards that do not answer inside the block, also in threads with a copy of its context."""
    outer = _MISSING.get()
    names: set[str] = set()
    token = _MISSING.set(names)
    try:
        yield names
    finally:
        _MISSING.reset(token)
        if outer is not None:
            outer |= names


def note_missing(names: Iterable[str]) -> None:
    """Record shards that did not answer, for the innermost block that collects them."""
    collected = _MISSING.get()
    if collected is not None:
        collected.update(names)


def says_missing(ask: Callable[P, A]) -> Callable[P, A]:
    """Let a function name the shards that did not answer in the ``missing`` of its answer."""

    @wraps(ask)
    def asked(*args: P.args, **kwargs: P.kwargs) -> A:
        with noting_missing() as names:
            answer = ask(*args, **kwargs)
        if not names:
            return answer
        changes: dict[str, Any] = {"missing": tuple(sorted({*answer.missing, *names}))}
        return replace(answer, **changes)

    return asked
