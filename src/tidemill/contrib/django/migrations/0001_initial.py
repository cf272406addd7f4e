"""The unmanaged model of the jobs."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models

from tidemill.contrib.django.fields import InstantField, JobIdField
from tidemill.contrib.django.models import jobs_table
from tidemill.domain.states import JobState


class Migration(migrations.Migration):  # type: ignore[misc]  # Django has no types
    """Creates no table."""

    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[object]] = [
        migrations.CreateModel(
            name="StoredJob",
            fields=[
                ("id", JobIdField(primary_key=True, serialize=False)),
                ("task", models.TextField()),
                (
                    "state",
                    models.TextField(
                        choices=[(state.value, state.value.replace("_", " ")) for state in JobState]
                    ),
                ),
                ("tenant", models.TextField()),
                ("queue", models.TextField()),
                ("priority", models.IntegerField()),
                ("attempt", models.IntegerField()),
                ("max_attempts", models.IntegerField()),
                ("args", models.TextField()),
                ("result", models.TextField(null=True)),
                ("error", models.TextField(null=True)),
                ("reason", models.TextField(null=True)),
                ("run_at", InstantField()),
                ("created_at", InstantField()),
                ("started_at", InstantField(null=True)),
                ("finished_at", InstantField(null=True)),
            ],
            options={
                "verbose_name": "job",
                "db_table": jobs_table(),
                "ordering": ("-id",),
                "permissions": (("operate_storedjob", "Can retry, cancel and approve jobs"),),
                "default_permissions": ("view",),
                "managed": False,
            },
        )
    ]
