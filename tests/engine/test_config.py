"""Tests of the settings that operators make for all workers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemill.domain.job import Claim
from tidemill.domain.records import Setting
from tidemill.engine.runtime_settings import RuntimeSettings
from tidemill.ids import new_id

AT = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
CLAIM = Claim(
    new_id(), "send", "mail", "acme", 0, 2, 4, 0, 1, AT, AT, None, MINUTE, "{}", None, None, False, None
)


@pytest.mark.parametrize(
    ("said", "attempts", "timeout"),
    [
        ({}, 4, MINUTE),
        ({"max_attempts": 7, "timeout": 5}, 7, timedelta(seconds=5)),
        ({"max_attempts": 1}, 2, MINUTE),  # the current attempt is not revoked
        ({"timeout": None}, 4, None),
        ({"timeout": "soon", "max_attempts": "many"}, 4, MINUTE),
        ({"timeout": -1}, 4, MINUTE),
        ({"timeout": True}, 4, MINUTE),
    ],
)
def test_task_settings_override_claims_and_invalid_ones_are_ignored(
    said: dict[str, Any], attempts: int, timeout: timedelta | None
) -> None:
    config = RuntimeSettings.read([Setting("task/send", said)])
    found = config.applied(CLAIM)
    assert (found.max_attempts, found.timeout) == (attempts, timeout)
    assert config.applied(CLAIM._replace(task="other")) == CLAIM._replace(task="other")


def test_an_invalid_value_is_ignored() -> None:
    rows = [
        ("worker_enabled", "no"),
        ("priority_ageing", "often"),
        ("task/send", 5),
        ("tenant/acme", {"weight": 0}),
    ]
    assert RuntimeSettings.read([Setting(key, value) for key, value in rows]) == RuntimeSettings()
    rows = [("worker_enabled", False), ("priority_ageing", 60), ("tenant/acme", {"weight": 3})]
    assert RuntimeSettings.read([Setting(key, value) for key, value in rows]) == RuntimeSettings(
        False, 60.0, {}, {"acme": 3.0}
    )
