"""``manage.py tidemill import-beat`` with the models of django-celery-beat."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from tests.contrib.django.test_project import Project

ROWS = """
from datetime import datetime, timedelta, timezone
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask
night = CrontabSchedule.objects.create(minute="30", hour="2", timezone="Europe/Berlin")
both = CrontabSchedule.objects.create(minute="0", hour="2", day_of_month="1", day_of_week="1")
often = IntervalSchedule.objects.create(every=10, period="minutes")
once = ClockedSchedule.objects.create(clocked_time=datetime.now(timezone.utc) + timedelta(days=1))
make = PeriodicTask.objects.create
make(name="ship at night", task="shop.tasks.ship", crontab=night, args="[7]", queue="slow", priority=3)
make(name="ship often", task="shop.tasks.ship", interval=often, kwargs='{"order": 8}', enabled=False)
make(name="ship once", task="shop.tasks.ship", clocked=once, one_off=True, args="[9]")
make(name="first monday", task="shop.tasks.ship", crontab=both, args="[1]")
make(name="unknown", task="shop.tasks.none", interval=often)
print("1")
"""


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("django_celery_beat") is None,
    reason="django-celery-beat has no release for Django 6",
)
def test_the_rows_of_beat_become_schedules(tmp_path: Path) -> None:
    project = Project(f"sqlite:///{tmp_path}/shop.sqlite3", tmp_path)
    beat: dict[str, Any] = {"SHOP_BEAT": "1", "PYTHONWARNINGS": "default"}
    refused = project.manage("tidemill", "import-beat", check=False)
    assert refused.returncode == 1
    assert "django_celery_beat is not in INSTALLED_APPS" in refused.stderr
    project.manage("migrate", **beat)
    project.manage("shell", "--verbosity", "0", "-c", ROWS, **beat)

    planned = project.manage("tidemill", "import-beat", "--dry-run", "--json", check=False, **beat)
    assert planned.returncode == 1
    assert [row["outcome"] for row in json.loads(planned.stdout)].count("would be added") == 3
    assert json.loads(project.manage("tidemill", "schedules", "list", "--json").stdout) == []

    done = project.manage("tidemill", "import-beat", "--json", check=False, **beat)
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "first monday": "refused",
        "ship at night": "added",
        "ship often": "added",
        "ship once": "added",
        "unknown": "refused",
    }, rows
    assert "if both match" in rows["first monday"]["note"]
    assert "shop.tasks.none" in rows["unknown"]["note"]
    stored = json.loads(project.manage("tidemill", "schedules", "list", "--json").stdout)
    found = {schedule["key"]: schedule for schedule in stored}
    assert found["ship-at-night"]["timezone"] == "Europe/Berlin"
    assert [found[key]["enabled"] for key in ("ship-at-night", "ship-often", "ship-once")] == [
        True,
        False,
        True,
    ]
    again = project.manage("tidemill", "import-beat", "--json", check=False, **beat)
    assert [row["outcome"] for row in json.loads(again.stdout)].count("unchanged") == 3
    changed = project.manage("tidemill", "import-beat", "--replace", "--json", check=False, **beat)
    assert [row["outcome"] for row in json.loads(changed.stdout)].count("updated") == 3
