"""Celery's canvas: signatures of calls, and chains, groups, chords and chunks of them.

A canvas of more than one call becomes a flow: all its jobs are stored in one transaction.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from tidemill.contrib.celery.group_result import CeleryGroupResult
from tidemill.contrib.celery.payload import from_json, to_json
from tidemill.contrib.celery.result import AsyncResult, EagerResult

if TYPE_CHECKING:
    from tidemill.contrib.celery.application import Celery
    from tidemill.contrib.celery.task import CeleryTask

Result = AsyncResult | EagerResult | CeleryGroupResult


class CanvasPart:
    """Anything that can be applied, linked and combined with ``|``."""

    options: dict[str, Any]

    @property
    def app(self) -> Celery:
        """The app that runs it."""
        raise NotImplementedError

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """Enqueue it with options."""
        if self.app.conf.task_always_eager:
            return self.apply(args, kwargs, **options)
        from tidemill.contrib.celery.canvas_flow import start

        return start(self.with_arguments(args, kwargs), options)

    def apply(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Run it here."""
        raise NotImplementedError

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> CanvasPart:
        """Return a copy whose first calls take further arguments."""
        raise NotImplementedError

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue it."""
        return self.apply_async(args, kwargs)

    def set(self, **options: Any) -> Self:
        """Set options of the call, such as ``countdown``."""
        self.options.update(options)
        return self

    def link(self, callback: CanvasPart) -> CanvasPart:
        """Call another signature with the result, if there is one; return that signature."""
        _append(self.options, "link", callback)
        return callback

    def link_error(self, errback: CanvasPart) -> CanvasPart:
        """Call another signature after a failure; return that signature."""
        _append(self.options, "link_error", errback)
        return errback

    def on_error(self, errback: CanvasPart) -> Self:
        """Call another signature after a failure; return this one."""
        self.link_error(errback)
        return self

    def __or__(self, other: object) -> Any:
        if not isinstance(other, CanvasPart):
            return NotImplemented
        return CeleryChain(self, other)

    def __invert__(self) -> Any:
        return self.apply_async().get()

    def __copy__(self) -> Self:
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        made.options = {
            name: list(value) if isinstance(value, list) else value for name, value in self.options.items()
        }
        return made


def _append(options: dict[str, Any], name: str, signature: CanvasPart) -> None:
    known = options.get(name) or []
    known = list(known) if isinstance(known, list | tuple) else [known]
    if signature not in known:
        known.append(signature)
    options[name] = known


class CelerySignature(CanvasPart):
    """A call of a task that is made later: ``add.s(1, 2).delay()``."""

    def __init__(
        self,
        task: CeleryTask,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        immutable: bool = False,
    ) -> None:
        self.type, self.task, self.immutable = task, task.name, immutable
        self.args, self.kwargs, self.options = tuple(args), dict(kwargs or {}), dict(options or {})

    @property
    def app(self) -> Celery:
        return self.type.app

    def clone(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> CelerySignature:
        """Return a copy. Further arguments precede its own, unless it is immutable."""
        if self.immutable:
            args, kwargs = (), {}
        return CelerySignature(
            self.type,
            (*(args or ()), *self.args),
            {**self.kwargs, **(kwargs or {})},
            {**self.options, **options},
            self.immutable,
        )

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> CelerySignature:
        return self.clone(args, kwargs)

    def set(self, immutable: bool | None = None, **options: Any) -> Self:
        if immutable is not None:
            self.immutable = immutable
        self.options.update(options)
        return self

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult | EagerResult:
        """Enqueue the call with options."""
        made = self.clone(args, kwargs, **options)
        return self.type.apply_async(made.args, made.kwargs, **made.options)

    def apply(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> EagerResult:
        """Run the call here."""
        made = self.clone(args, kwargs, **options)
        return self.type.apply(made.args, made.kwargs, **made.options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self.clone(args, kwargs)
        return self.type(*made.args, **made.kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CelerySignature) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.task, len(self.args)))

    def __repr__(self) -> str:
        words = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.task}({', '.join(words)})"


class _Parts(CanvasPart):
    """A canvas of several parts."""

    def __init__(self, parts: Sequence[CanvasPart], options: Mapping[str, Any] | None = None) -> None:
        self.tasks = list(parts)
        self.options = dict(options or {})

    @property
    def app(self) -> Celery:
        if self.tasks:
            return self.tasks[0].app
        from tidemill.contrib.celery.application import default_app

        return default_app()

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.apply_async(args, **options)

    def __len__(self) -> int:
        return len(self.tasks)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), len(self.tasks)))


class CeleryChain(_Parts):
    """Calls one after the other; each takes the result of the one before as its first argument."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        given = parts[0] if len(parts) == 1 and not isinstance(parts[0], CanvasPart) else parts
        flat: list[CanvasPart] = []
        for part in given:
            # A chain inside a chain is unrolled; its own callbacks stay with it.
            if isinstance(part, CeleryChain) and not part.options:
                flat += part.tasks
            else:
                flat.append(_unrolled(part))
        super().__init__(flat, options)

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> CeleryChain:
        made = copy.copy(self)
        made.tasks = [self.tasks[0].with_arguments(args, kwargs), *self.tasks[1:]] if self.tasks else []
        return made

    def apply(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        last: Any = None
        for part in self.with_arguments(args, kwargs).tasks:
            ended = part.apply(() if last is None else (last.get(),), **options)
            ended.parent, last = last, ended
        return last

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks))


class CeleryGroup(_Parts):
    """Calls that run at the same time. The result is the list of their results, in order."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        given = parts[0] if len(parts) == 1 and not isinstance(parts[0], CanvasPart) else parts
        super().__init__(list(given), options)

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> CeleryGroup:
        made = copy.copy(self)
        made.tasks = [part.with_arguments(args, kwargs) for part in self.tasks]
        return made

    def apply(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> CeleryGroupResult:
        return CeleryGroupResult([part.apply(args, kwargs, **options) for part in self.tasks])

    def link_error(self, errback: CanvasPart) -> CanvasPart:
        for part in self.tasks:
            part.link_error(errback)
        return errback

    def __iter__(self) -> Iterator[CanvasPart]:
        return iter(self.tasks)

    def __repr__(self) -> str:
        return f"group([{', '.join(map(repr, self.tasks))}])"


class CeleryChord(CanvasPart):
    """A group, and a call that takes the list of its results: ``chord(header)(body)``."""

    def __init__(self, header: Any, body: CanvasPart | None = None, **options: Any) -> None:
        self.header = header if isinstance(header, CeleryGroup) else CeleryGroup(header)
        self.body, self.options = body, dict(options)

    @property
    def app(self) -> Celery:
        return self.header.app

    @property
    def tasks(self) -> list[CanvasPart]:
        """The calls of the header."""
        return self.header.tasks

    def __call__(self, body: CanvasPart | None = None, **options: Any) -> Any:
        made = copy.copy(self)
        made.body = body if body is not None else self.body
        return made.apply_async(**options)

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> CeleryChord:
        made = copy.copy(self)
        made.header = self.header.with_arguments(args, kwargs)
        return made

    def parts(self) -> tuple[CeleryGroup, CanvasPart]:
        """The header and the body, which must be there by now."""
        if self.body is None:
            raise TypeError("the chord has no body; call it with one: chord(header)(body)")
        body = copy.copy(self.body)
        body.options.update(self.options)
        return self.header, body

    def link(self, callback: CanvasPart) -> CanvasPart:
        return self.parts()[1].link(callback) if self.body is None else self.body.link(callback)

    def link_error(self, errback: CanvasPart) -> CanvasPart:
        self.header.link_error(errback)
        return errback if self.body is None else self.body.link_error(errback)

    def apply(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        header, body = self.parts()
        return body.apply((header.apply(args, kwargs, **options).get(),), **options)

    def __len__(self) -> int:
        return len(self.header)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CeleryChord) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((CeleryChord, len(self.header)))

    def __repr__(self) -> str:
        return f"chord({self.header!r}, {self.body!r})"


class CeleryChunks(CanvasPart):
    """Calls of one task, in jobs of ``n`` calls each: ``add.chunks(zip(a, b), 10)``."""

    def __init__(self, task: CeleryTask, items: Iterable[Any], n: int) -> None:
        self._task, self._items, self._n = task, list(items), n
        self.options: dict[str, Any] = {}

    @property
    def app(self) -> Celery:
        return self._task.app

    def group(self) -> CeleryGroup:
        """The jobs as a group."""
        rest = iter(self._items)
        parts = iter(lambda: list(islice(rest, self._n)), [])
        return CeleryGroup([self._task.starmap(part) for part in parts])

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> CeleryGroup:
        return self.group()

    def apply(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> CeleryGroupResult:
        return self.group().apply(**options)

    def __call__(self, **options: Any) -> Any:
        return self.apply_async(**options)


def _unrolled(part: CanvasPart) -> CanvasPart:
    """A group of one call in a chain is that call."""
    return part.tasks[0] if isinstance(part, CeleryGroup) and len(part.tasks) == 1 else part


# Signatures as JSON, for callbacks that travel with a job ------------------------------------------------------------------


def part_to_data(part: Any) -> dict[str, Any]:
    """Encode a canvas."""
    options = {
        name: [part_to_data(one) for one in parts_of(value)]
        if name in ("link", "link_error")
        else to_json(value)
        for name, value in part.options.items()
    }
    match part:
        case CelerySignature():
            return {
                "task": part.task,
                "args": to_json(part.args),
                "kwargs": to_json(part.kwargs),
                "immutable": part.immutable,
                "options": options,
            }
        case CeleryChord():
            header, body = part.parts()
            return {"header": part_to_data(header), "body": part_to_data(body), "options": {}}
        case CeleryChain() | CeleryGroup():
            kind = "chain" if isinstance(part, CeleryChain) else "group"
            return {kind: [part_to_data(one) for one in part.tasks], "options": options}
        case CeleryChunks():
            return part_to_data(part.group())
    raise TypeError(f"{part!r} is not a signature")


def part_from_data(app: Celery, data: Mapping[str, Any]) -> CanvasPart:
    """Decode a canvas."""
    options = {
        name: [part_from_data(app, one) for one in value]
        if name in ("link", "link_error")
        else from_json(value)
        for name, value in data["options"].items()
    }
    if "task" in data:
        made = app.signature(
            data["task"], from_json(data["args"]), from_json(data["kwargs"]), immutable=data["immutable"]
        )
        made.options.update(options)
        return made
    if "header" in data:
        header, body = part_from_data(app, data["header"]), part_from_data(app, data["body"])
        return CeleryChord(header, body)
    if "chain" in data:
        return CeleryChain([part_from_data(app, one) for one in data["chain"]], **options)
    return CeleryGroup([part_from_data(app, one) for one in data["group"]], **options)


def parts_of(given: Any) -> list[CanvasPart]:
    """One signature or several as a list."""
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]
