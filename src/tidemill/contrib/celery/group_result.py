"""The result of a group: the results of its calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4


class CeleryGroupResult:
    """The results of the calls of a group, in order."""

    def __init__(self, results: Sequence[Any], id: str | None = None, parent: Any = None) -> None:
        self.id = id or str(uuid4())
        self.results, self.parent = list(results), parent

    @property
    def children(self) -> list[Any]:
        """The results of the calls."""
        return self.results

    def get(self, timeout: float | None = None, propagate: bool = True, **options: Any) -> list[Any]:
        """Wait for all calls, and return their results in order; raise the exception of the first that failed."""
        return [result.get(timeout=timeout, propagate=propagate, **options) for result in self.results]

    join = join_native = get

    def ready(self) -> bool:
        """Whether all calls have ended."""
        return all(result.ready() for result in self.results)

    def waiting(self) -> bool:
        """Whether a call has not ended."""
        return not self.ready()

    def successful(self) -> bool:
        """Whether all calls have ended with a result."""
        return all(result.successful() for result in self.results)

    def failed(self) -> bool:
        """Whether a call has failed."""
        return any(result.failed() for result in self.results)

    def completed_count(self) -> int:
        """The number of calls that have ended with a result."""
        return sum(bool(result.successful()) for result in self.results)

    def revoke(self, terminate: bool = False, **_: Any) -> None:
        """Cancel all calls."""
        for result in self.results:
            result.revoke(terminate=terminate)

    def forget(self) -> None:
        """Delete all calls and their results."""
        for result in self.results:
            result.forget()

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __getitem__(self, index: int) -> Any:
        return self.results[index]

    def __bool__(self) -> bool:
        return bool(self.results)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CeleryGroupResult) and self.id == other.id and self.results == other.results

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<GroupResult: {self.id} [{', '.join(str(result) for result in self.results)}]>"
