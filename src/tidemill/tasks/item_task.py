"""Tasks over many items: iteration, counts, progress and resumption.

Items are streamed and never held in memory together. This module does not access the store: the context saves the state
between attempts.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sized
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, Protocol, TypeVar, cast

from tidemill.errors import PermanentError
from tidemill.tasks.task import Shape, Task

C = TypeVar("C")
R = TypeVar("R")

CHECKPOINT: Final = "tidemill.items"
EVERY: Final = timedelta(seconds=1)

_log = logging.getLogger("tidemill.tasks")


class Skip(Enum):
    """The type of ``SKIP``."""

    SKIP = "skip"


SKIP: Final = Skip.SKIP
"""Return value of ``process`` for an item that needs no work. The item is counted as skipped."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Item counts of one job over all of its attempts. ``total`` is None while it is unknown."""

    total: int | None = None
    processed: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def seen(self) -> int:
        """Number of items handled so far."""
        return self.processed + self.failed + self.skipped

    def words(self) -> str:
        """Return the counts as a progress message.

        >>> Counts(10, 4, 1).words()
        'Processed 5/10 (1 failed)'
        """
        of = "" if self.total is None else f"/{self.total}"
        return f"Processed {self.seen}{of} ({self.failed} failed)"


class ItemContext(Protocol):
    """The part of a job's context that item tasks use."""

    def progress(self, step: int, total: int | None, message: str | None = None, /) -> None: ...

    def log(self, message: str, level: str = "info", **details: object) -> None: ...

    def check(self) -> None: ...

    def now(self) -> datetime: ...

    def checkpoint(self, name: str) -> str | None: ...

    def save_checkpoint(self, name: str, value: str) -> None: ...


class ItemTask(Task[C, R]):
    """Base class of tasks that process many items in the same way. ``C`` is the type of an item.

    ::

        @app.task
        class Thumbnails(ItemTask[Path, dict[str, int]]):
            def items(self, folder: Path) -> Iterator[Path]:
                return folder.glob("*.jpg")

            def process(self, item: Path, index: int, ctx: Context) -> None:
                shrink(item)

    The task's arguments are those of ``items``. If ``process`` raises an exception, the item is counted as failed and
    the exception is logged. ``PermanentError`` and signals end the execution. After a failure, the next attempt
    continues after the last item that was handled, so ``items`` must return the same order again. An item may be
    processed twice when a worker dies.
    """

    def items(self, *args: Any, **kwargs: Any) -> Iterable[C] | AsyncIterable[C] | Awaitable[Iterable[C]]:
        """Return the items: a list, a generator, or an asynchronous generator."""
        raise NotImplementedError(f"{type(self).__name__} has no items method")

    def process(self, item: C, index: int, ctx: Any) -> bool | Skip | Awaitable[bool | Skip | None] | None:
        """Process one item. Return None or True if it was processed, ``SKIP`` if it was skipped, False if it failed."""
        raise NotImplementedError(f"{type(self).__name__} has no process method")

    def total(self, *args: Any, **kwargs: Any) -> int | None:
        """Return the number of items for the same arguments. Only needed if the result of ``items`` has no length."""
        return None

    def summary(self, counts: Counts) -> R:
        """Return the job's result: by default the counts as a dictionary."""
        return cast("R", {name: getattr(counts, name) for name in Counts.__dataclass_fields__})

    @classmethod
    def __tidemill_shape__(cls) -> Shape:
        """Return where arguments and result are declared. The ``run`` method belongs to the framework."""
        waits = inspect.iscoroutinefunction(cls.process) or inspect.iscoroutinefunction(cls.items)
        return Shape(cls.items, cls.summary, is_async=waits or inspect.isasyncgenfunction(cls.items))

    def run(self, ctx: ItemContext, /, **arguments: Any) -> Any:
        """Process all items, as a coroutine if ``items`` or ``process`` is asynchronous."""
        if self.__tidemill_shape__().is_async:
            return self._run_async(ctx, arguments)
        items = self.items(**arguments)
        if not isinstance(items, Iterable):
            return self._run_async(ctx, arguments, items)
        walk = _Walk(ctx, self._length(items, arguments))
        with walk.position_saved(), _closing(items):
            for index, item in enumerate(items):
                if walk.comes_to(index):
                    with walk.one(index) as note:
                        note(self.process(item, index, ctx))
            walk.end()
            return self.summary(walk.counts)

    async def _run_async(self, ctx: ItemContext, arguments: dict[str, Any], items: Any = None) -> R:
        items = self.items(**arguments) if items is None else items
        if inspect.isawaitable(items):
            items = await items
        walk = _Walk(ctx, self._length(items, arguments))
        index = 0
        with walk.position_saved():
            async with aclosing(_stream(items)) as stream:
                async for item in stream:
                    if walk.comes_to(index):
                        with walk.one(index) as note:
                            answer: Any = self.process(item, index, ctx)
                            note(await answer if inspect.isawaitable(answer) else answer)
                    index += 1
            walk.end()
            return self.summary(walk.counts)

    def _length(self, items: object, arguments: dict[str, Any]) -> int | None:
        return len(items) if isinstance(items, Sized) else self.total(**arguments)


class _Walk:
    """Position and counts of one execution, and when they were last saved."""

    def __init__(self, ctx: ItemContext, total: int | None) -> None:
        self._ctx = ctx
        self._behind, self.counts = _resume(ctx.checkpoint(CHECKPOINT), total)
        self._saved_at = ctx.now()

    def comes_to(self, index: int) -> bool:
        """Whether this item is still to be processed. Checks first whether the job may continue."""
        self._ctx.check()
        return index >= self._behind

    @contextmanager
    def one(self, index: int) -> Iterator[Callable[[object], None]]:
        """Process one item inside the block. An exception is counted and logged, but not raised."""
        answers: list[object] = []
        try:
            yield answers.append
        except PermanentError:
            raise
        except Exception as error:  # noqa: BLE001  (a failing item must not affect the others)
            answers = [False]
            kind = type(error).__name__
            _log.debug("item %d failed", index, exc_info=True)
            self._ctx.log(
                f"item {index} failed: {kind}: {_text(error)}", level="error", index=index, error=kind
            )
        match answers:
            case [Skip()]:
                self.counts = replace(self.counts, skipped=self.counts.skipped + 1)
            case [False]:
                self.counts = replace(self.counts, failed=self.counts.failed + 1)
            case _:
                self.counts = replace(self.counts, processed=self.counts.processed + 1)
        self._behind = index + 1
        self._ctx.progress(self.counts.seen, self.counts.total, self.counts.words())
        if self._ctx.now() - self._saved_at >= EVERY:
            self._save()

    @contextmanager
    def position_saved(self) -> Iterator[None]:
        """Save the position before an exception leaves the block."""
        try:
            yield
        except BaseException:
            try:
                self._save()
            except Exception:  # noqa: BLE001
                # Raise the original error. The next attempt repeats at most a second's work.
                _log.warning("a checkpoint could not be saved", exc_info=True)
            raise

    def end(self) -> None:
        """Save and report that all items have been handled."""
        if self.counts.total is None:
            self.counts = replace(self.counts, total=self.counts.seen)
        self._ctx.progress(self.counts.seen, self.counts.total, self.counts.words())
        self._save()

    def _save(self) -> None:
        counts = self.counts
        value = [self._behind, counts.processed, counts.failed, counts.skipped]
        self._ctx.save_checkpoint(CHECKPOINT, json.dumps(value, separators=(",", ":")))
        self._saved_at = self._ctx.now()


def _resume(saved: str | None, total: int | None) -> tuple[int, Counts]:
    behind, processed, failed, skipped = (0, 0, 0, 0) if saved is None else json.loads(saved)
    return behind, Counts(total, processed, failed, skipped)


@contextmanager
def _closing(items: object) -> Iterator[None]:
    """Close a generator at once. Other iterables are left to the user."""
    try:
        yield
    finally:
        if inspect.isgenerator(items):
            items.close()


async def _stream(items: Any) -> AsyncGenerator[Any, None]:
    if isinstance(items, AsyncIterable):
        try:
            async for item in items:
                yield item
        finally:
            if inspect.isasyncgen(items):
                await items.aclose()
    else:
        with _closing(items):
            for item in items:
                yield item


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception as why:  # noqa: BLE001  (a user's __str__ may raise anything)
        return f"<its text cannot be read: {type(why).__name__}>"
