"""Tasks of the flows in a chaos run, and the file in which they record what they did.

The records are apart from those of plain jobs: a durable function runs many times, and most of its runs end by suspension.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from tests.faults.ledger import WHERE

from tidemill import RESULT, BatchInfo, Context, NoRetry, PermanentError, Step, undo

FILE = "flow_effects"
"""File next to the ledger with one JSON array per line."""

PREFIX = "f."
"""The beginning of the names of all these tasks."""


class Effect(NamedTuple):
    """One record: ``B`` for a begun job, ``E`` for one about to end, ``S`` for an executed step."""

    kind: str
    job: UUID
    token: int
    name: str
    at: float


def record(kind: str, ctx: Context, name: str = "") -> None:
    """Write a record; it is on disk before the handler continues."""
    path = Path(os.environ[WHERE]).with_name(FILE)
    line = json.dumps([kind, str(ctx.job.id), ctx.job.token, name, time.monotonic()]) + "\n"
    file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(file, line.encode())
        os.fsync(file)
    finally:
        os.close(file)


def effects(folder: Path) -> list[Effect]:
    """Return all records. The last line may be cut off by a kill."""
    path = folder / FILE
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [Effect(kind, UUID(job), token, name, at) for kind, job, token, name, at in map(json.loads, lines)]


def work(ctx: Context, value: int = 1, fails: bool = False, seconds: float = 0.0) -> int:
    """Return the value, or fail permanently."""
    record("B", ctx)
    time.sleep(seconds)
    if fails:
        raise PermanentError("on purpose")
    record("E", ctx)
    return value


def items(ctx: Context, count: int) -> list[int]:
    """Return numbers for a map."""
    record("B", ctx)
    record("E", ctx)
    return list(range(count))


def total(ctx: Context, parts: list[int | None]) -> int:
    """Add up the results of other nodes."""
    record("B", ctx)
    record("E", ctx)
    return sum(part or 0 for part in parts)


def child(ctx: Context, value: int) -> int:
    """The child of a durable function."""
    record("B", ctx)
    record("E", ctx)
    return value


def plan(ctx: Context, count: int) -> int:
    """Add nodes to the flow."""
    record("B", ctx)
    for number in range(count):
        ctx.flow.add(_task("f.work"), value=number).before("end")
    record("E", ctx)
    return count


def revert(ctx: Context, step: int | None) -> None:
    """Compensate a step."""
    record("B", ctx)
    record("E", ctx)


def _step(ctx: Context, name: str) -> int:
    record("S", ctx, name)
    return ctx.job.token


def durable(ctx: Context, number: int, joins: str | None = None) -> dict[str, Any]:
    """Steps, a nap, children, a job that exists, and a signal."""
    record("B", ctx)
    first = ctx.step("first", lambda: _step(ctx, "first"))
    ctx.sleep("nap", 0.2)
    children = ctx.map("children", _task("f.child"), [{"value": number + place} for place in range(3)])
    joined = None if joins is None else ctx.join(UUID(joins))
    message = ctx.wait_for("go")
    last = ctx.step("last", lambda: _step(ctx, "last"))
    record("E", ctx)
    return {"first": first, "last": last, "children": children, "joined": joined, "message": message}


def gate(ctx: Context) -> int:
    """Hold the flow until a signal arrives."""
    record("B", ctx)
    message = ctx.wait_for("go")
    record("E", ctx)
    return int(message)


def saga(ctx: Context, fails: bool) -> int:
    """Two steps with compensations; then it completes or fails."""
    record("B", ctx)
    for name in ("one", "two"):
        ctx.step(Step(name, compensate=undo(_task("f.revert"), step=RESULT)), partial(_step, ctx, name))
    if fails:
        raise PermanentError("on purpose")
    record("E", ctx)
    return 1


def report(batch: BatchInfo, ctx: Context) -> int:
    """The callback of a batch."""
    record("B", ctx)
    record("E", ctx)
    return batch.total


_BOUND: dict[str, Any] = {}


def _task(name: str) -> Any:
    return _BOUND[name]


def declare(app: Any) -> dict[str, Any]:
    """Declare the tasks on an app; return them by name."""
    bound = {}
    for target in (work, items, total, child, plan, revert, durable, gate, saga, report):
        once = {"retry": NoRetry()} if target in (work, saga) else {}
        task = app.task(name=f"{PREFIX}{target.__name__}", **once)(target)
        bound[task.name] = task
    _BOUND.update(bound)
    return bound
