"""Unmanaged model of the stored jobs, for the admin."""

from __future__ import annotations

from typing import Any

from django.db import connections, models

from tidemill.contrib.django.fields import InstantField, JobIdField
from tidemill.contrib.django.project import alias_of, project_settings
from tidemill.domain.states import JobState


def jobs_table() -> str:
    """Return the name of the view with all jobs, as Django quotes it."""
    alias = alias_of(project_settings())
    vendor = connections[alias].vendor if alias in connections else ""
    # Quoted, this is "tidemill"."jobs": a view in a schema of its own.
    return 'tidemill"."jobs' if vendor == "postgresql" else "tidemill_jobs"


class ReadOnly(Exception):
    """A program tried to change a job through the model; ``app.jobs`` changes jobs."""


class StoredJob(models.Model):  # type: ignore[misc]  # Django has no types
    """One job, read from the store. ``app.jobs.get(record.pk)`` returns the handle that can change it."""

    id = JobIdField(primary_key=True)
    task = models.TextField()
    state = models.TextField(choices=[(state.value, state.value.replace("_", " ")) for state in JobState])
    tenant = models.TextField()
    queue = models.TextField()
    priority = models.IntegerField()
    attempt = models.IntegerField()
    max_attempts = models.IntegerField()
    args = models.TextField()
    result = models.TextField(null=True)
    error = models.TextField(null=True)
    reason = models.TextField(null=True)
    run_at = InstantField()
    created_at = InstantField()
    started_at = InstantField(null=True)
    finished_at = InstantField(null=True)

    class Meta:
        """Options of the model."""

        managed = False
        db_table = jobs_table()
        verbose_name = "job"
        ordering = ("-id",)
        default_permissions = ("view",)
        permissions = (("operate_storedjob", "Can retry, cancel and approve jobs"),)

    def __str__(self) -> str:
        return f"{self.task} {self.id}"

    def save(self, *_: Any, **__: Any) -> None:
        raise ReadOnly("jobs are read-only here; use app.jobs.get(id)")

    def delete(self, *_: Any, **__: Any) -> Any:
        raise ReadOnly("jobs are read-only here; use app.jobs.get(id).delete()")
