"""Tasks over many items: the framework goes through them, counts, reports, survives bad ones, and resumes after a failure.

The items are streamed and never held together. It knows no store: what it remembers between attempts goes through the
context it is handed.
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
"""Returned by ``process`` for an item that needs no work: it counts as skipped."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How the items of one job went, over all of its attempts. ``total`` is None as long as nobody knows it."""

    total: int | None = None
    processed: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def seen(self) -> int:
        """All items that were gone through."""
        return self.processed + self.failed + self.skipped

    def words(self) -> str:
        """The counts as a progress message.

        >>> Counts(10, 4, 1).words()
        'Processed 5/10 (1 failed)'
        """
        of = "" if self.total is None else f"/{self.total}"
        return f"Processed {self.seen}{of} ({self.failed} failed)"


class ItemContext(Protocol):
    """What going through items needs of a job's context."""

    def progress(self, step: int, total: int | None, message: str | None = None, /) -> None: ...

    def log(self, message: str, level: str = "info", **details: object) -> None: ...

    def check(self) -> None: ...

    def now(self) -> datetime: ...

    def checkpoint(self, name: str) -> str | None: ...

    def save_checkpoint(self, name: str, value: str) -> None: ...


class ItemTask(Task[C, R]):
    """Base of tasks that do the same to each of many items; ``C`` is the type of an item.

    ::

        @app.task
        class Thumbnails(ItemTask[Path, dict[str, int]]):
            def items(self, folder: Path) -> Iterator[Path]:
                return folder.glob("*.jpg")

            def process(self, item: Path, index: int, ctx: Context) -> None:
                shrink(item)

    The task's arguments are those of ``items``. An exception of ``process`` counts its item as failed and is logged;
    ``PermanentError`` and signals end the execution. After a failure the next attempt goes on behind the last item that was
    done, so ``items`` must give the same order again; an item may be processed twice when a worker dies.
    """

    def items(self, *args: Any, **kwargs: Any) -> Iterable[C] | AsyncIterable[C] | Awaitable[Iterable[C]]:
        """What to go through: a list, a generator, or an asynchronous generator."""
        raise NotImplementedError(f"{type(self).__name__} has no items method")

    def process(self, item: C, index: int, ctx: Any) -> bool | Skip | Awaitable[bool | Skip | None] | None:
        """Do one item. Nothing or True: it is processed; ``SKIP``: skipped; False: failed."""
        raise NotImplementedError(f"{type(self).__name__} has no process method")

    def total(self, *args: Any, **kwargs: Any) -> int | None:
        """How many items there will be, from the same arguments; only needed where ``items`` gives no length."""
        return None

    def summary(self, counts: Counts) -> R:
        """The job's result; the counts as a dictionary unless you say otherwise."""
        return cast("R", {name: getattr(counts, name) for name in Counts.__dataclass_fields__})

    @classmethod
    def __tidemill_shape__(cls) -> Shape:
        """Where arguments and result are declared: not at ``run``, which is the framework's."""
        waits = inspect.iscoroutinefunction(cls.process) or inspect.iscoroutinefunction(cls.items)
        return Shape(cls.items, cls.summary, is_async=waits or inspect.isasyncgenfunction(cls.items))

    def run(self, ctx: ItemContext, /, **arguments: Any) -> Any:
        """Go through all items: at once, or as a coroutine if anything here is one."""
        if self.__tidemill_shape__().is_async:
            return self._run_async(ctx, arguments)
        items = self.items(**arguments)
        if not isinstance(items, Iterable):
            return self._run_async(ctx, arguments, items)
        walk = _Walk(ctx, self._length(items, arguments))
        with walk.kept(), _closing(items):
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
        with walk.kept():
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
    """One execution's way through the items: what is behind it, and when that was last written down."""

    def __init__(self, ctx: ItemContext, total: int | None) -> None:
        self._ctx = ctx
        self._behind, self.counts = _resume(ctx.checkpoint(CHECKPOINT), total)
        self._saved_at = ctx.now()

    def comes_to(self, index: int) -> bool:
        """Whether this item is still to be done; asks first whether the job may go on."""
        self._ctx.check()
        return index >= self._behind

    @contextmanager
    def one(self, index: int) -> Iterator[Callable[[object], None]]:
        """Do one item inside; its own exception is counted, written down, and goes no further."""
        answers: list[object] = []
        try:
            yield answers.append
        except PermanentError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever an item does, the others are done)
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
    def kept(self) -> Iterator[None]:
        """Whatever ends the block, how far it came is written down first."""
        try:
            yield
        except BaseException:
            try:
                self._save()
            except Exception:  # noqa: BLE001
                # The first error is the one that matters; the next attempt repeats a second's work at most.
                _log.warning("a checkpoint could not be saved", exc_info=True)
            raise

    def end(self) -> None:
        """All items are behind."""
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
    """Generators are ours to close, and at once; whatever else there is to go through is the user's."""
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
    except Exception as why:  # noqa: BLE001  (a user's __str__ may do anything)
        return f"<its text cannot be read: {type(why).__name__}>"
