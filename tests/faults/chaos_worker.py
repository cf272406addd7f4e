"""A chaos run's worker with short leases and an optional wrong clock or query.

``python -m tests.faults.chaos_worker PROCESSES '{"beat": 1, …}' [APP [HEALTH_PORT]]``
"""

from __future__ import annotations

import json
import sys

from tests.faults.mutations import apply_mutation, own_clock
from tests.faults.protections import switch_off

from tidemill.cli.worker import work
from tidemill.early_signals import end_on_sigterm
from tidemill.engine.health import LOOPBACK
from tidemill.engine.log_formats import write_logs
from tidemill.engine.supervisor.supervisor import Supervisor
from tidemill.engine.worker_settings import read_settings

APP = "tests.faults.chaos_app:app"


def main() -> None:
    end_on_sigterm(0)  # as the command
    apply_mutation()
    switch_off()
    write_logs()
    processes, settings = int(sys.argv[1]), json.loads(sys.argv[2])
    app = sys.argv[3] if len(sys.argv) > 3 else APP
    health = (LOOPBACK, int(sys.argv[4])) if len(sys.argv) > 4 else None
    supervisor = Supervisor(
        app, read_settings(settings), processes=processes, clock=own_clock(), health=health
    )
    work(supervisor)


if __name__ == "__main__":
    main()
