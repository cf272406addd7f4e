"""Tests of the store driver that a supervisor imports while a runner still imports the app."""

from __future__ import annotations

import subprocess
import sys

EXPECTING = """
import sys
from tidemill.clock import SystemClock
from tidemill.engine.supervisor.runner_hooks import RunnerHooks
from tidemill.engine.supervisor.store_group import StoreGroup
from tidemill.engine.worker_settings import WorkerSettings

clock, told = SystemClock(), []
stores = StoreGroup(WorkerSettings(), clock, told.append, RunnerHooks(clock))
before = "tidemill.stores.sql.sqlite.driver" in sys.modules
stores.start()
stores.expect("sqlite")
stores.expect("mysql")
assert stores.close(30)
print(before, "tidemill.stores.sql.sqlite.driver" in sys.modules, told)
"""


def test_a_supervisor_imports_the_driver_that_the_app_opens() -> None:
    done = subprocess.run([sys.executable, "-c", EXPECTING], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "True", "[]"], done.stderr
