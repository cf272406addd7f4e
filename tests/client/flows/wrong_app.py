"""The app of ``worker_app``, in a process that removes the guard that the environment names."""

from __future__ import annotations

from tests.client.flows import worker_app
from tests.faults.mutations import apply_mutation

apply_mutation()
app = worker_app.app
