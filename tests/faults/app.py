"""The app of the fault runs; the environment names its store."""

from __future__ import annotations

import os

from tests.faults.tasks import STORE, FaultApp

app = FaultApp(os.environ[STORE]).app
