"""The app that workers of the fault runs import; where its store is comes from the environment."""

from __future__ import annotations

import os

from tests.faults.tasks import STORE, Mill

app = Mill(os.environ[STORE]).app
