"""Tests of stepped clocks and of the conversion of wall time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from tests.faults.stepping import ClockControl, Step, SteppedClock, Timeline
from tests.servers.postgres import PrivatePostgres, running_postgres
from tests.servers.processes import ServiceMissing
from tests.services import go_without

from tidemill.clock import SystemClock

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NEAR = timedelta(seconds=30)


def test_a_stepped_clock_follows_its_control(tmp_path: Path) -> None:
    control = ClockControl(tmp_path)
    clock, system = SteppedClock(control.path), SystemClock()
    for offset in (0.0, 3600.0, -3600.0, 60.0, 0.0):
        control.set(offset)
        assert abs(clock.now() - system.now() - timedelta(seconds=offset)) < NEAR
        assert abs(control.now() - clock.now()) < NEAR
    assert [step.offset for step in control.steps] == [3600.0, -3600.0, 60.0, 0.0]
    assert control.highest == 3600.0
    before = clock.monotonic()
    control.set(-3600.0)
    assert clock.monotonic() >= before


def test_a_timeline_returns_every_reading_of_a_wall_time() -> None:
    timeline = Timeline(NOON, [Step(100.0, 60.0), Step(130.0, 0.0)])
    assert timeline.wall(50.0) == NOON + timedelta(seconds=50)
    assert timeline.wall(110.0) == NOON + timedelta(seconds=170)
    assert timeline.readings(NOON + timedelta(seconds=50)) == [50.0]
    assert timeline.readings(NOON + timedelta(seconds=170)) == [110.0, 170.0]
    assert timeline.readings(NOON + timedelta(seconds=115)) == [100.0]
    assert timeline.latest_wall(90.0, 140.0) == NOON + timedelta(seconds=200)


def test_a_skipped_moment_maps_to_the_step() -> None:
    timeline = Timeline(NOON, [Step(100.0, 3600.0)])
    assert timeline.readings(NOON + timedelta(seconds=2000)) == [100.0]


@pytest.fixture
def stepped_postgres(tmp_path: Path) -> Iterator[tuple[PrivatePostgres, ClockControl]]:
    """Yield a server with a stepped clock. Its folder is readable by the user that the server runs as."""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    control = ClockControl(tmp_path)
    with contextlib.ExitStack() as stack:
        try:
            environment = control.server_environment()
        except ServiceMissing as missing:
            go_without("faketime", missing)
        try:
            server = stack.enter_context(running_postgres(environment=environment))
        except ServiceMissing as missing:
            go_without("postgres", missing)
        yield server, control


def test_the_clock_of_a_running_server_can_be_stepped(
    stepped_postgres: tuple[PrivatePostgres, ClockControl],
) -> None:
    server, control = stepped_postgres
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for offset in (HOUR, -HOUR, timedelta(0)):
            control.set(offset.total_seconds())
            row = connection.execute("select clock_timestamp(), now()").fetchone()
            assert row is not None
            assert all(abs(shown - SystemClock().now() - offset) < NEAR for shown in row)
