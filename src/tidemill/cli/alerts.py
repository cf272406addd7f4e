"""``tidemill alerts``: active alerts.

The command exits with 1 if there are any, for use in timers and monitoring.
"""

from __future__ import annotations

from datetime import timedelta

import click

from tidemill.cli.context import CommandContext, tenant_option, with_context
from tidemill.cli.parsers import duration
from tidemill.cli.screen import Column, age, print_json, print_table
from tidemill.client.stats.api import StatsApi
from tidemill.client.stats.reports import document


@click.command()
@click.option("--window", type=duration, default="1h", show_default=True, help="Time window of ended jobs.")
@tenant_option
@with_context
def alerts(context: CommandContext, window: timedelta, tenant: str) -> None:
    """List active alerts; exit code 1 if there are any.

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
