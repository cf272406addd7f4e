"""``tidemill flows``: list, watch, draw, explain, signal, retry, skip and cancel flows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tidemill.cli.completion import flow_ids
from tidemill.cli.context import CommandContext, ask_first, own_tenant_option, with_context
from tidemill.cli.flows_check import check_flows
from tidemill.cli.groups import InOrder
from tidemill.cli.parsers import json_or_text
from tidemill.cli.screen import (
    Column,
    age,
    heading,
    percent,
    print_fields,
    print_json,
    print_json_line,
    print_lines,
    print_table,
)
from tidemill.cli.short_ids import by_short_id
from tidemill.cli.signals import read_json
from tidemill.cli.suggestions import OneOf
from tidemill.client.flows.api import Flows
from tidemill.client.flows.documents import (
    flow_document,
    flow_with_counts,
    graph_document,
    node_document,
    node_reason_document,
)
from tidemill.client.flows.run import FlowRun
from tidemill.client.jobs.api import SHOWN
from tidemill.domain.graph import FlowState
from tidemill.errors import FlowNotFound
from tidemill.tasks.ambient import tenant_scope

_STATUSES = [state.value for state in FlowState]
_SHOWN = 200


@click.group(cls=InOrder)
def flows() -> None:
    """List, draw, check, explain, signal, retry and cancel flows."""


flows.add_command(check_flows)


def find(context: CommandContext, id: str, tenant: str) -> FlowRun:
    """Return the flow with this id, or with the only id that begins or ends like this."""
    with tenant_scope(tenant):
        api = Flows(context.client)
        try:
            return api.get(id)
        except FlowNotFound:
            run = by_short_id(id, api.list(limit=1_000, archived=True), lambda run: run.id, "flows")
            if run is None:
                raise
            return run


@flows.command("list")
@click.option("--name", metavar="NAME", help="Only flows with this name.")
@click.option("--key", metavar="KEY", help="Only the flow with this key.")
@click.option("--status", type=OneOf(_STATUSES), multiple=True, help="Only flows with this status.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of flows."
)
@click.option("--archived", is_flag=True, help="Include archived flows.")
@own_tenant_option
@with_context
def list_flows(
    context: CommandContext,
    tenant: str,
    name: str | None,
    key: str | None,
    status: tuple[str, ...],
    limit: int,
    archived: bool,
) -> None:
    """List flows, the newest first."""
    with tenant_scope(tenant):
        runs = Flows(context.client).list(
            name=name, key=key, status=status or None, limit=limit, archived=archived
        )
        if context.as_json:
            print_json([flow_document(run) for run in runs])
            return
        now = context.now()
        columns = (
            Column("id", tail=SHOWN), Column("name", flexible=True), Column("key", flexible=True, optional=True),
            Column("status"), Column("age", right=True),
        )  # fmt: skip
        rows = [[run.id, run.name, run.key, run.row.state, age(run.created_at, now)] for run in runs]
        print_table(columns, rows, empty="no flows")


@flows.command()
@click.argument("flow", shell_complete=flow_ids)
@own_tenant_option
@with_context
def show(context: CommandContext, tenant: str, flow: str) -> None:
    """Show a flow with its nodes and its critical path."""
    run = find(context, flow, tenant)
    if context.as_json:
        nodes = [node_document(node) for node in run.nodes()[:1_000]]
        print_json({**flow_with_counts(run), "nodes": nodes})
        return
    now, graph = context.now(), run.graph()
    counts = run.counts()
    print_fields(
        [
            ("flow", run.name),
            ("id", run.id),
            ("key", run.key),
            ("status", run.row.state),
            ("progress", percent(run.progress)),
            ("jobs", f"{counts.total:,}, {counts.remaining:,} not ended, {counts.bad:,} failed"),
            ("started", age(run.created_at, now)),
            ("cancelled", run.row.cancel_reason),
            (
                "archived",
                None if run.archived_at is None else f"{age(run.archived_at, now)}, tier {run.row.tier}",
            ),
        ]
    )
    names = {node.id: node.name for node in graph.nodes}
    path = graph.critical_path()
    if path.seconds:
        way = " → ".join(names[id] for id in path.ids[:12])
        print_fields([("critical path", f"{path.seconds:.1f} s: {way}")])
    heading("Nodes")
    columns = (
        Column("node", flexible=True), Column("status"), Column("jobs", right=True), Column("attempt", right=True),
        Column("seconds", right=True), Column("reason", flexible=True, optional=True),
    )  # fmt: skip
    rows = [
        [
            node.name,
            node.status,
            f"{node.ended:,}/{node.total:,}" if node.is_map else "1",
            node.attempt,
            "" if node.seconds is None else f"{node.seconds:.1f}",
            node.reason,
        ]
        for node in graph.nodes[:_SHOWN]
    ]
    print_table(columns, rows, empty="no nodes")


@flows.command()
@click.argument("flow", shell_complete=flow_ids)
@own_tenant_option
@with_context
def watch(context: CommandContext, tenant: str, flow: str) -> None:
    """Follow a flow until it has ended.

    The exit code is 1 if it failed or was cancelled.
    """
    run = find(context, flow, tenant)
    last = ""
    for _ in run.watch():
        counts = run.counts()
        line = f"{run.row.state}  {counts.total - counts.remaining:,} of {counts.total:,} ended, {counts.bad:,} failed"
        if line != last:
            last = line
            if context.as_json:
                print_json_line(flow_with_counts(run))
            else:
                print_lines([(line, "")])
    if run.row.state is not FlowState.COMPLETED:
        raise SystemExit(1)


@flows.command()
@click.argument("flow", shell_complete=flow_ids)
@click.option("--mermaid", "form", flag_value="mermaid", help="In the language of Mermaid.")
@click.option("--dot", "form", flag_value="dot", help="In the language of Graphviz.")
@click.option("--text", "form", flag_value="text", default=True, help="As text, the default.")
@own_tenant_option
@with_context
def graph(context: CommandContext, tenant: str, flow: str, form: str) -> None:
    """Draw a flow as text, or for Mermaid or Graphviz."""
    made = find(context, flow, tenant).graph()
    if context.as_json:
        print_json(graph_document(made))
        return
    draw: dict[str, Callable[[], str]] = {
        "mermaid": made.to_mermaid,
        "dot": made.to_dot,
        "text": made.to_text,
    }
    click.echo(draw[form](), nl=False)


@flows.command()
@click.argument("flow", shell_complete=flow_ids)
@click.argument("node", required=False)
@own_tenant_option
@with_context
def why(context: CommandContext, tenant: str, flow: str, node: str | None) -> None:
    """Explain why a flow has not ended, or why it failed.

    Shows the nodes that the others wait for, the nodes that failed, or one node. One job of a map is "load [3]".
    """
    run = find(context, flow, tenant)
    reasons = run.why(node)
    if context.as_json:
        documents = [node_reason_document(reason) for reason in reasons]
        print_json({"id": str(run.id), "status": run.row.state.value, "reasons": documents})
        return
    print_lines([(f"flow {run.name} {run.id}: {run.row.state}", "bold")])
    print_lines(
        (
            (f"- {reason.text}" if reason.node is None else f"- {reason.node}: {reason.text}", "")
            for reason in reasons
        ),
        hang=2,
    )


@flows.command()
@click.argument("flow", shell_complete=flow_ids)
@click.argument("node")
@click.argument("name")
@click.option("--data", metavar="JSON", help="Payload as JSON.")
@click.option("--key", metavar="KEY", help="Key; a job accepts it once.")
@own_tenant_option
@with_context
def signal(
    context: CommandContext, tenant: str, flow: str, node: str, name: str, data: str | None, key: str | None
) -> None:
    """Send a signal to the job of a node.

    The job keeps it until it takes it. One job of a map is "load [3]".
    """
    run = find(context, flow, tenant)
    accepted = run.signal(node, name, read_json("--data", data), key=key)
    if context.as_json:
        print_json({"flow": str(run.id), "node": node, "name": name, "accepted": accepted})
    elif accepted:
        print_lines([(f"sent {name} to node {node} of flow {run.name} ({run.id})", "")])
    else:
        print_lines([(f"node {node} has accepted a signal with the key {key} before; nothing was sent", "")])


@flows.command()
@click.argument("flow", shell_complete=flow_ids)
@click.option("--from", "from_", metavar="NODE", help="Begin with this node.")
@click.option("--downstream", is_flag=True, help="Run completed nodes after it again, too.")
@own_tenant_option
@with_context
def retry(context: CommandContext, tenant: str, flow: str, from_: str | None, downstream: bool) -> None:
    """Run failed nodes again, and the nodes skipped after them."""
    run = find(context, flow, tenant)
    _acted(context, run, lambda: run.retry(from_, downstream=downstream), "runs again")


@flows.command()
@click.argument("flow", shell_complete=flow_ids)
@click.argument("node")
@click.option("--result", metavar="JSON", help="Result for nodes that take it.")
@own_tenant_option
@with_context
def skip(context: CommandContext, tenant: str, flow: str, node: str, result: str | None) -> None:
    """Count a node as succeeded without running it."""
    run = find(context, flow, tenant)
    value = None if result is None else json_or_text(result)
    _acted(context, run, lambda: run.skip(node, value), f"continues without {node}")


@flows.command()
@click.argument("flow", shell_complete=flow_ids)
@click.option("--reason", metavar="TEXT", help="Reason, shown on the flow and its jobs.")
@click.option("--hard", is_flag=True, help="Drop the nodes that run at the end, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@own_tenant_option
@with_context
def cancel(
    context: CommandContext, tenant: str, flow: str, reason: str | None, hard: bool, yes: bool
) -> None:
    """Let no further node begin, and ask running ones to stop."""
    run = find(context, flow, tenant)
    if not yes:
        ask_first(f"Cancel flow {run.name} ({run.id})?")
    _acted(context, run, lambda: run.cancel(reason, hard=hard), "is cancelled")


def _acted(context: CommandContext, run: FlowRun, act: Callable[[], Any], words: str) -> None:
    act()
    if context.as_json:
        print_json(flow_document(run))
    else:
        print_lines([(f"flow {run.name} ({run.id}) {words}", "")])
