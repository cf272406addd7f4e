"""The JSON documents that commands print: those of ``tidemill.client.documents``, which the HTTP API answers with, too."""

from __future__ import annotations

from tidemill.client.documents import (
    audit_document,
    definition_document,
    duties_of,
    error_document,
    eta_of,
    execution_document,
    fire_document,
    fraction_of,
    instant,
    job_document,
    key_document,
    key_state,
    lease_document,
    limit_document,
    log_document,
    pause_document,
    plain,
    schedule_document,
    seconds,
    setting_document,
    worker_document,
)

__all__ = [
    "audit_document", "definition_document", "duties_of", "error_document", "eta_of", "execution_document", "fire_document",
    "fraction_of", "instant", "job_document", "key_document", "key_state", "lease_document", "limit_document", "log_document", "pause_document", "plain",
    "schedule_document", "seconds", "setting_document", "worker_document",
]  # fmt: skip
