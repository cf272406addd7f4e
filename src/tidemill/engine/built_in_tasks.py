"""Tasks that every worker knows: the fan-out of a map, and the stop of a flow."""

from __future__ import annotations

from typing import Any

from tidemill.domain.fan_out import FAN_OUT, STOP_FLOW, fanned_out
from tidemill.domain.flow_plan import MOST_NODES
from tidemill.engine.context import Context
from tidemill.errors import PermanentError
from tidemill.ids import new_id
from tidemill.tasks.options import TaskOptions
from tidemill.tasks.registry import BUILT_IN
from tidemill.tasks.task import declare


def fan_out(ctx: Context, items: Any, into: str, args: str, job: dict[str, Any]) -> int:
    """Make one job per item, written with the completion of this one."""
    if not isinstance(items, list):
        raise PermanentError(
            f"the map over {into!r} needs a list, and the node before returned {type(items).__name__}"
        )
    if len(items) > MOST_NODES:
        raise PermanentError(
            f"the map over {into!r} has {len(items):,} items; at most {MOST_NODES:,} are possible"
        )
    row = ctx.job
    ctx.growth.add_rows(
        fanned_out(
            items,
            into=into,
            args=args,
            template=job,
            ids=[new_id() for _ in items],
            tenant=row.tenant,
            details=row.details,
        )
    )
    return len(items)


def stop_flow(ctx: Context) -> None:
    """Let no further node of this job's flow begin."""
    flow = ctx.job.details.flow_id
    store = ctx.outlet.flow_store
    if flow is not None:
        store.change_flow(flow, tenant=ctx.tenant, stops=True)
        store.notify(["cascade"])


for _target, _name in ((fan_out, FAN_OUT), (stop_flow, STOP_FLOW)):
    BUILT_IN[_name] = declare(_target, TaskOptions(name=_name))
