"""A worker whose wall clock can be stepped through a file.

``python -m tests.faults.stepped_worker supervise APP PROCESSES SETTINGS`` starts a supervisor, which starts its runners with
``python -m tests.faults.stepped_worker run …``. Both add the file's seconds to the wall clock; the monotonic clock is unchanged.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tidemill.clock import SystemClock

WHERE = "FAULTS_LEAP"
"""Environment variable: the file with the seconds to add to the wall clock."""


def install() -> None:
    """Make every system clock of this process follow the file."""
    file = Path(os.environ[WHERE])

    def now() -> datetime:
        try:
            seconds = float(file.read_text() or 0)
        except (OSError, ValueError):  # the file is being written
            seconds = 0.0
        return datetime.now(UTC) + timedelta(seconds=seconds)

    SystemClock.now = staticmethod(now)


def supervise(app: str, processes: str, settings: str) -> int:
    """Start a supervisor on the stepped clock, as ``tests.faults.kit`` starts one."""
    from tidemill.engine.log_formats import LogOutput, write_logs
    from tidemill.engine.supervisor import supervisor
    from tidemill.engine.worker_settings import read_settings

    def command(app: str, *, logs: LogOutput | None = None, sources: bool = False) -> list[str]:
        return [
            sys.executable,
            "-m",
            "tests.faults.stepped_worker",
            "run",
            "--app",
            app,
            *(logs or LogOutput()).words(),
        ]

    vars(supervisor)["runner_command"] = command
    write_logs()
    given = read_settings(json.loads(settings))
    return supervisor.Supervisor(app, given, processes=int(processes)).run()


if __name__ == "__main__":
    install()
    if sys.argv[1] == "supervise":
        sys.exit(supervise(*sys.argv[2:]))
    from tidemill.engine.runner.main import main

    sys.exit(main(sys.argv[2:]))
