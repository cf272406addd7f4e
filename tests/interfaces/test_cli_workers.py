"""``tidemill workers``: the tree, pause, resume and scale; and the depth of queues over time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, make_shop

from tidemill.domain.cluster import Worker
from tidemill.domain.depths import DepthSample
from tidemill.domain.worker_reports import (
    ProcessFigures,
    Scale,
    SlotCounts,
    SupervisorReport,
    WorkerReport,
)
from tidemill.ids import new_id

HOUR = timedelta(hours=1)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    return make_shop(tmp_path)


@pytest.fixture
def runners(shop: Shop) -> list[Worker]:
    """Two runners of one supervisor, and a worker of an older version."""
    above = SupervisorReport("h-1", 1, 2, ProcessFigures(2**20, 0.01))
    report = WorkerReport(SlotCounts(4, 2, 0), ProcessFigures(2**21, 0.5), above)
    supervisor = new_id()
    with shop.app() as app:
        made = [
            app.store.register(
                Worker(new_id(), f"w{place}", host="h", pid=place, supervisor=supervisor, place=place,
                       concurrency=6, report=report),
                lease=HOUR,
            )
            for place in (1, 2)
        ]  # fmt: skip
        app.store.register(Worker(new_id(), "old", host="h", concurrency=1), lease=HOUR)
    return made


def test_the_tree_has_hosts_supervisors_and_runners(shop: Shop, runners: list[Worker]) -> None:
    lines = shop.run("workers", "tree").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["worker", "h", "old", "supervisor", "w1", "w2"]
    assert "0/13" in lines[1]
    assert all(text in lines[3] for text in ("h-1, 2 of 2", "0/12", "1%", "1.0 MiB"))
    assert all(text in lines[4] for text in ("active", "0/6", "50%", "2.0 MiB"))
    assert [row["name"] for row in shop.json("workers", "tree")] == ["old", "w2", "w1"]


def test_a_worker_is_paused_and_resumed(shop: Shop, runners: list[Worker]) -> None:
    assert "w1 claims nothing more" in shop.run("workers", "pause", "w1").stdout
    assert "w1 is paused already" in shop.run("workers", "pause", "w1").stdout
    assert "paused" in shop.run("workers", "list").stdout
    assert [row["paused"] for row in shop.json("workers", "resume", "w1")] == [False]
    assert "w1 was not paused" in shop.run("workers", "resume", "w1").stdout
    refused = shop.run("workers", "pause", "old")
    assert refused.exit_code == 2
    assert "cannot be paused or scaled" in refused.stderr


def test_a_supervisor_is_scaled_after_a_question(shop: Shop, runners: list[Worker]) -> None:
    unsure = shop.run("workers", "scale", "w1", "--processes", "3")
    assert unsure.exit_code == 2
    assert "--yes" in unsure.stderr
    done = shop.run("workers", "scale", "w1", "--processes", "3", "--threads", "5", "--yes")
    assert "w1: 3 processes with 9 slots each" in done.stdout
    with shop.app() as app:
        pulse = app.store.beat([runners[1].id], lease=HOUR)
        assert pulse.scales[runners[1].id].scale == Scale(3, SlotCounts(4, 5, 0))
    assert "no number is given" in shop.run("workers", "scale", "w1", "--yes").stderr
    assert "started without children" in shop.run("workers", "scale", "w1", "--children", "1", "--yes").stderr
    assert shop.run("workers", "scale", "w1", "--processes", "129", "--yes").exit_code == 2


def test_the_depth_of_a_queue_over_time_is_a_report(shop: Shop) -> None:
    with shop.app() as app:
        app.store.put_depths(
            [DepthSample("mail", 7, 2, timedelta(seconds=9)), DepthSample("sms", 1, 0, HOUR)]
        )
    rows = shop.json("stats", "depth-history", "--queue", "mail")["rows"]
    assert {row["queue"] for row in rows} == {"mail"}
    assert (rows[-1]["pending"], rows[-1]["scheduled"], rows[-1]["oldest"]) == (7, 2, 9.0)
    assert {row["queue"] for row in shop.json("stats", "depth-history")["rows"]} == {"mail", "sms"}
    assert "depth-history" in shop.run("stats", "--help").stdout
