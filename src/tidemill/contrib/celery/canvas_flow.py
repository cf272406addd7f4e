"""Chains, groups and chords of Celery as flows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.client.flows.builder import Flow, Node
from tidemill.contrib.celery.callbacks import takes_the_request
from tidemill.contrib.celery.canvas import (
    CanvasPart,
    CeleryChain,
    CeleryChord,
    CeleryChunks,
    CeleryGroup,
    CelerySignature,
    parts_of,
)
from tidemill.contrib.celery.group_result import CeleryGroupResult
from tidemill.contrib.celery.payload import to_json
from tidemill.contrib.celery.request import CHORD
from tidemill.contrib.celery.result import AsyncResult
from tidemill.errors import UsageError

if TYPE_CHECKING:
    from tidemill.contrib.celery.application import Celery

_FIRST = ("countdown", "eta")
"""Options of a canvas that apply to its first calls only."""

_NAMES = {CeleryChain: "celery.chain", CeleryGroup: "celery.group", CeleryChord: "celery.chord"}


@dataclass(frozen=True)
class _Laid:
    """A part of a canvas in a flow: its last nodes, their future value, and the result for the caller."""

    nodes: list[Node[Any]] = field(default_factory=list)
    value: Any = None
    result: Any = None


_NOTHING = _Laid()


def start(part: CanvasPart, options: Mapping[str, Any]) -> Any:
    """Store a canvas as a flow, and return its result."""
    if isinstance(part, CeleryChunks):
        part = part.group()
    if isinstance(part, CeleryGroup) and not part.tasks:
        return CeleryGroupResult([])
    builder = _Builder(part.app, part.app.flow(_NAMES.get(type(part), "celery.canvas")))
    laid = builder.lay(part, _NOTHING, dict(options))
    builder.flow.start()
    return laid.result


class _Builder:
    """Adds the parts of one canvas to a flow."""

    def __init__(self, app: Celery, flow: Flow) -> None:
        self._app, self.flow = app, flow

    def lay(self, part: CanvasPart, before: _Laid, options: dict[str, Any]) -> _Laid:
        """Add a part that takes the value of the parts before it."""
        match part:
            case CelerySignature():
                return self._call(part, before, options)
            case CeleryChain():
                return self._chain(part, before, options)
            case CeleryGroup():
                return self._group(part, before, options)
            case CeleryChord():
                return self._chord(part, before, options)
            case CeleryChunks():
                return self._group(part.group(), before, options)
        raise TypeError(f"{part!r} is not a signature")

    def _call(self, part: CelerySignature, before: _Laid, options: dict[str, Any]) -> _Laid:
        chosen = {**part.options, **{name: options[name] for name in options if name not in part.options}}
        for name in ("link", "link_error"):
            chosen[name] = [*parts_of(part.options.get(name)), *parts_of(options.get(name))]
        errbacks = chosen["link_error"]
        # These run in jobs of their own, and only after the failure is stored.
        later = [one for one in errbacks if not (isinstance(one, CelerySignature) and takes_the_request(one))]
        chosen["link_error"] = [one for one in errbacks if one not in later]
        takes = before is not _NOTHING and not part.immutable
        task, arguments = self._app.prepare(part.type, chosen)
        args = [*([before.value] if takes else []), *to_json(part.args)]
        node = self.flow.add(task, args=args, kwargs=to_json(part.kwargs), **arguments)
        if before.nodes and not takes:
            node.after(*before.nodes)
        id = chosen.get("task_id") or str(node.id)
        result = AsyncResult(id, self._app, parent=before.result)
        for errback in later:
            self._after_failure(errback, node, id)
        return _Laid([node], node.result, result)

    def _after_failure(self, errback: CanvasPart, node: Node[Any], id: str) -> None:
        """Add a callback that takes the id of a failed call."""
        if not isinstance(errback, CelerySignature):
            raise UsageError(f"link_error takes the signature of one task, not {errback!r}")
        call = errback.clone((id,))
        task, arguments = self._app.prepare(call.type, call.options)
        added = self.flow.add(task, args=to_json(call.args), kwargs=to_json(call.kwargs), **arguments)
        added.after(node, on="failure")

    def _chain(self, part: CeleryChain, before: _Laid, options: dict[str, Any]) -> _Laid:
        own = {**part.options, **options}
        common = {name: value for name, value in own.items() if name not in (*_FIRST, "link", "task_id")}
        laid = before
        steps = list(part.tasks)
        for number, step in enumerate(steps):
            chosen = dict(common)
            if number == 0:
                chosen |= {name: own[name] for name in _FIRST if name in own}
            if number == len(steps) - 1:
                chosen |= {name: own[name] for name in ("link", "task_id") if name in own}
            follows_group = number > 0 and isinstance(steps[number - 1], CeleryGroup | CeleryChunks)
            if follows_group:
                chosen["headers"] = {**(chosen.get("headers") or {}), CHORD: "1"}
            laid = self.lay(step, laid, chosen)
        return laid

    def _group(self, part: CeleryGroup, before: _Laid, options: dict[str, Any]) -> _Laid:
        own = {**part.options, **options}
        laid = [self.lay(member, before, own) for member in part.tasks]
        result = CeleryGroupResult([member.result for member in laid], parent=before.result)
        return _Laid([node for member in laid for node in member.nodes], [one.value for one in laid], result)

    def _chord(self, part: CeleryChord, before: _Laid, options: dict[str, Any]) -> _Laid:
        header, body = part.parts()
        first = {name: value for name, value in options.items() if name in _FIRST}
        laid = self._group(header, before, first)
        chosen = {name: value for name, value in options.items() if name not in _FIRST}
        chosen["headers"] = {**(chosen.get("headers") or {}), CHORD: "1"}
        return self.lay(body, laid, chosen)
