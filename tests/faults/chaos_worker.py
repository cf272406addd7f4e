"""A worker of the chaos run: ``tidemill worker`` with short leases, on a clock and with statements that may be wrong.

``python -m tests.faults.chaos_worker PROCESSES '{"beat": 1, …}'``
"""

from __future__ import annotations

import json
import os
import sys

from tests.faults.twist import own_clock, twist

from tidemill.engine.logs import write_logs
from tidemill.engine.settings import read_settings
from tidemill.engine.supervisor import Supervisor

APP = "tests.faults.chaos_app:app"


def main() -> None:
    twist()
    write_logs()
    processes, settings = int(sys.argv[1]), json.loads(sys.argv[2])
    supervisor = Supervisor(APP, read_settings(settings), processes=processes, clock=own_clock())
    code = supervisor.run()
    sys.stdout.flush()
    sys.stderr.flush()
    if not supervisor.clean:
        os._exit(code)  # as the command does: a thread still waits for a store that does not answer
    sys.exit(code)


if __name__ == "__main__":
    main()
