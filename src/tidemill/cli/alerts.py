"""``tidemill alerts``: active alerts, their history, and acknowledgements.

Without a subcommand it evaluates the rules now and exits with 1 if there are alerts, for use in timers and monitoring.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import click

from tidemill.cli.context import CommandContext, tenant_option, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.parsers import duration
from tidemill.cli.screen import Column, age, print_json, print_lines, print_table
from tidemill.cli.short_ids import by_short_id
from tidemill.client.documents import alert_document
from tidemill.client.jobs.api import SHOWN
from tidemill.client.notifications import Alerts
from tidemill.client.stats.api import StatsApi
from tidemill.client.stats.reports import document
from tidemill.domain.alert_history import StoredAlert


@click.group(cls=InOrder, invoke_without_command=True)
@click.option("--window", type=duration, default="1h", show_default=True, help="Time window of ended jobs.")
@tenant_option
@with_context
def alerts(context: CommandContext, window: timedelta, tenant: str) -> None:
    """Evaluate the alert rules now; exit code 1 if there are alerts.

    The thresholds are settings: alerts.failure_rate, alerts.queue_depth, alerts.stuck_after and others.
    """
    raised = StatsApi(context.client).alerts(window=window, tenant=tenant)
    if context.as_json:
        print_json(document(raised))
    else:
        now = context.now()
        columns = (
            Column("severity"),
            Column("alert"),
            Column("since", right=True, optional=True),
            Column("what", folds=True),
        )
        rows = [
            [
                alert.severity.value,
                alert.code,
                None if alert.since is None else age(alert.since, now),
                alert.text,
            ]
            for alert in raised
        ]
        print_table(columns, rows, empty="no alerts")
    if raised:
        click.get_current_context().exit(1)


@alerts.command("list")
@with_context
def list_alerts(context: CommandContext) -> None:
    """List the open alerts that workers have recorded."""
    _print(context, Alerts(context.client).list())


@alerts.command()
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Number of alerts."
)
@with_context
def history(context: CommandContext, limit: int) -> None:
    """List the alerts of the last 90 days, the newest first."""
    _print(context, Alerts(context.client).history(limit=limit))


@alerts.command()
@click.argument("id")
@with_context
def acknowledge(context: CommandContext, id: str) -> None:
    """Note that you look after an open alert.

    The first or last characters of its id are enough.
    """
    api = Alerts(context.client)
    open_alert = by_short_id(id, api.list(limit=1000), lambda alert: alert.id, "alerts")
    alert = api.acknowledge(id if open_alert is None else open_alert.id)
    if context.as_json:
        print_json(alert_document(alert))
    else:
        print_lines([(f"alert {alert.code} is acknowledged by {alert.acknowledged_by}", "")])


def _print(context: CommandContext, shown: Sequence[StoredAlert]) -> None:
    if context.as_json:
        print_json([alert_document(alert) for alert in shown])
        return
    now = context.now()
    columns = (
        Column("id", tail=SHOWN), Column("severity"), Column("alert"), Column("opened", right=True), Column("recovered", right=True),
        Column("acknowledged by", optional=True), Column("what", folds=True),
    )  # fmt: skip
    rows = [
        [
            str(alert.id),
            alert.severity,
            alert.code,
            age(alert.opened_at, now),
            _age(alert.recovered_at, now),
            alert.acknowledged_by,
            alert.text,
        ]
        for alert in shown
    ]
    print_table(columns, rows, empty="no alerts")


def _age(at: datetime | None, now: datetime) -> str | None:
    return None if at is None else age(at, now)
