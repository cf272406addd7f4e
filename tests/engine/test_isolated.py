"""Tests of the process executor: warm children, output of jobs, and stopping."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.engine.isolated_kit import CLOCK, LONG, Lane, is_alive, marked, open_lane, until
from tests.engine.kit import Notes, a_claim

from tidemill.domain.job import NO_DETAILS, Details, Progress
from tidemill.domain.outcome import Cancelled, Failed, Released, Succeeded, TimedOut
from tidemill.engine.deathwatch import descendants
from tidemill.engine.runner.execution import ExecutionEnd
from tidemill.errors import StoreUnavailable, UsageError
from tidemill.ids import new_id

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]


@pytest.fixture(scope="module")
def lane() -> Iterator[Lane]:
    """An executor for tests that do not damage its child."""
    with open_lane() as lane:
        lane.warm(LONG)
        yield lane


# Input and output of a job -------------------------------------------------------------------------------------------


def test_a_function_and_a_coroutine_run_in_another_process_and_return(lane: Lane) -> None:
    before = CLOCK.monotonic()
    ended = lane.run("add", one=1, other=2)
    assert ended.outcome == Succeeded("3")
    assert ended.result == "3"
    assert before <= ended.began <= ended.ended <= CLOCK.monotonic()
    assert lane.result("a_add", one=40, other=2) == 42
    assert lane.result("who") != os.getpid()


def test_a_warm_child_runs_one_job_after_another(lane: Lane) -> None:
    assert len({lane.result("who") for _ in range(5)}) == 1


def test_the_output_of_a_job_goes_through_its_outlet(lane: Lane) -> None:
    notes = Notes()
    notes.kept["place"] = "from before"
    details = Details(correlation_id="c-1")
    job = lane.begin("talk", before="ü", outlet=notes, details=details)
    assert job.end().result == '["from before","ü","acme","c-1","1"]'
    first = notes.reports[0]
    assert isinstance(first, Progress)
    assert (first.fraction, first.step, first.total, first.message) == (0.5, 1, 2, "half")
    line = notes.lines[0]
    assert (line.message, line.level, line.job_id, line.number) == ("a line", "warning", job.id, 7)
    assert line.details is not None
    assert [line.stage for line in notes.lines[1:3]] == ["copy", "copy"]


def test_a_store_error_on_a_checkpoint_read_becomes_the_error_of_the_job(lane: Lane) -> None:
    class Down(Notes):
        def checkpoint(self, name: str) -> str | None:
            raise StoreUnavailable("the store is down")

    ended = lane.run("talk", before="", outlet=Down())
    assert ended.error is not None
    assert (ended.error.type, ended.error.message) == (
        "tidemill.errors.StoreUnavailable",
        "the store is down",
    )


def test_output_that_the_outlet_rejects_does_not_fail_the_job(
    lane: Lane, caplog: pytest.LogCaptureFixture
) -> None:
    class Deaf(Notes):
        def report(self, progress: Progress) -> None:
            raise RuntimeError("deaf")

    assert isinstance(lane.run("talk", before="", outlet=Deaf()).outcome, Succeeded)
    assert "cannot forward the output of a job" in caplog.text


def test_the_hooks_of_the_app_wrap_a_job_in_its_child(lane: Lane) -> None:
    lane.run("nothing")
    assert lane.result("steps_seen")[-2:] == ["nothing", "steps_seen"]


def test_enqueueing_into_an_in_memory_store_of_the_child_is_refused(lane: Lane) -> None:
    ended = lane.run("enqueues")
    assert ended.error is not None
    assert ended.error.type == "tidemill.errors.UsageError"
    assert "process of its own" in ended.error.message


def test_a_task_unknown_to_the_child_is_an_error_and_not_a_crash(lane: Lane) -> None:
    ended = lane.run("unheard_of")
    assert isinstance(ended.outcome, Failed)
    assert ended.outcome.error.type == "tidemill.errors.TaskNotFound"


# Stopping ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["waits_politely", "waits_asleep"])
def test_a_cooperative_job_stops_on_request_and_its_child_survives(
    lane: Lane, task: str, tmp_path: Path
) -> None:
    job = lane.begin(task, sign=str(tmp_path / "sign"))
    child = marked(tmp_path / "sign")
    assert lane.cancel(job.id, "we close")
    assert job.end().outcome == Cancelled("we close")
    assert lane.result("who") == child


def test_a_cooperative_job_is_stopped_at_its_timeout(tmp_path: Path) -> None:
    with open_lane() as lane:
        ended = lane.run("waits_politely", sign=str(tmp_path / "sign"), timeout=0.5)
        assert ended.outcome == TimedOut(timedelta(seconds=0.5))


def test_an_unknown_job_cannot_be_stopped(lane: Lane) -> None:
    assert not lane.cancel(new_id(), "why")
    assert not lane.kill(new_id(), Released("why"))


def test_a_killed_job_ends_with_the_given_outcome(tmp_path: Path) -> None:
    with open_lane() as lane:
        job = lane.begin("spins", sign=str(tmp_path / "sign"))
        child = marked(tmp_path / "sign")
        assert lane.kill(job.id, Released("handed back"))
        assert job.end().outcome == Released("handed back")
        assert not is_alive(child)


def test_a_job_that_has_not_started_is_stopped_without_running(tmp_path: Path) -> None:
    with open_lane(2) as lane:
        cancelled = lane.begin("spins", sign=str(tmp_path / "one"))
        killed = lane.begin("spins", sign=str(tmp_path / "other"))
        assert lane.free == 0
        lane.cancel(cancelled.id, "not needed")
        lane.kill(killed.id, Released("handed back"))
        assert cancelled.end().outcome == Cancelled("not needed")
        assert killed.end().outcome == Released("handed back")
        assert lane.free == 2
        assert lane.warm(LONG) == 2
        assert list(tmp_path.iterdir()) == []


# Slots ---------------------------------------------------------------------------------------------------------------


def test_the_executor_starts_no_child_before_it_is_needed() -> None:
    with open_lane(2) as lane:
        assert (lane.free, lane.running) == (2, 0)
        assert lane.warm() == 0  # they are starting
        assert lane.warm(LONG) == 2


def test_more_jobs_than_slots_are_refused(tmp_path: Path) -> None:
    with open_lane() as lane:
        job = lane.begin("waits_politely", sign=str(tmp_path / "sign"))
        assert (lane.free, lane.running) == (0, 1)
        with pytest.raises(UsageError, match="busy"):
            lane.begin("nothing")
        lane.cancel(job.id, "enough")
        job.end()


def test_a_slot_is_free_when_the_end_of_its_job_is_reported() -> None:
    free: list[int] = []
    over = threading.Event()
    with open_lane() as lane:

        def told(ended: ExecutionEnd) -> None:
            free.append(lane.free)
            if len(free) < 3:
                lane.submit(claim, NO_DETAILS, Notes(), None, told)
            else:
                over.set()

        claim = a_claim()._replace(task="nothing")
        lane.submit(claim, NO_DETAILS, Notes(), None, told)
        assert over.wait(LONG)
    assert free == [1, 1, 1]


def test_a_child_is_replaced_after_its_maximum_number_of_jobs() -> None:
    with open_lane(max_jobs=2) as lane:
        first, second, third = (lane.result("who") for _ in range(3))
        assert first == second
        assert third != first


def test_a_child_that_dies_idle_is_replaced_and_no_job_is_charged(caplog: pytest.LogCaptureFixture) -> None:
    with open_lane() as lane:
        child = lane.result("who")
        os.kill(child, signal.SIGKILL)
        until(lambda: "while it had nothing to do" in caplog.text)
        assert lane.result("who") != child


# A child that cannot start -------------------------------------------------------------------------------------------


def test_an_app_that_cannot_be_imported_releases_jobs_and_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broken_app.py").write_text("from tidemill import App\napp = App('memory://')\n1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with open_lane(2, app="broken_app:app") as lane:
        jobs = [lane.begin("nothing"), lane.begin("nothing")]
        for job in jobs:
            outcome = job.end().outcome
            assert isinstance(outcome, Released)
            assert "ZeroDivisionError" in outcome.reason
        assert lane.free == 0  # it pauses before the next start
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "broken_app.py" in errors[0].getMessage()


def test_an_app_that_is_fixed_is_imported_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = "from tidemill import App\napp = App('memory://')\n@app.task\ndef nothing() -> None: ...\n"
    module = tmp_path / "mending_app.py"
    module.write_text("import os\nos._exit(4)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with open_lane(app="mending_app") as lane:
        outcome = lane.run("nothing").outcome
        assert isinstance(outcome, Released)
        assert "exited with code 4 before it was ready" in outcome.reason
        module.write_text(good)
        until(lambda: lane.free)
        assert isinstance(lane.run("nothing").outcome, Succeeded)


def test_an_import_that_does_not_end_is_aborted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "endless_app.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with open_lane(app="endless_app:app", start_limit=timedelta(seconds=0.5)) as lane:
        outcome = lane.run("nothing").outcome
        assert isinstance(outcome, Released)
        assert "not imported within 0.5 seconds" in outcome.reason


# Closing -------------------------------------------------------------------------------------------------------------


def test_closing_waits_for_the_grace_period_and_releases_unfinished_jobs(tmp_path: Path) -> None:
    with open_lane(2) as lane:
        lane.warm(LONG)
        quick, endless = lane.begin("probe", wait=0.5), lane.begin("spins", sign=str(tmp_path / "sign"))
        child = marked(tmp_path / "sign")
        lane.close(1.5)
        assert isinstance(quick.end().outcome, Succeeded)
        assert endless.end().outcome == Released("the worker stopped")
        assert not is_alive(child)
        assert lane.free == 0
        with pytest.raises(UsageError, match="closed"):
            lane.begin("nothing")


def test_an_idle_child_exits_by_itself_when_the_executor_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign = tmp_path / "sign"
    lines = ["import atexit, pathlib", "from tidemill import App", "app = App('memory://')"]
    lines.append(f"atexit.register(pathlib.Path({str(sign)!r}).touch)")
    (tmp_path / "polite_app.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    with open_lane(app="polite_app") as lane:
        assert lane.warm(LONG) == 1
    assert sign.exists()


RUNNER = """
import sys, threading
from tests.engine.isolated_kit import open_lane
folder = sys.argv[1]
with open_lane(4) as lane:
    lane.warm(60)
    for task in ("spins", "holds_the_gil"):
        lane.begin(task, sign=f"{folder}/{task}")
    lane.begin("waits_for_a_program", sign=f"{folder}/waits", program_sign=f"{folder}/program")
    threading.Event().wait()
"""


def test_children_and_their_processes_die_with_a_killed_runner(tmp_path: Path) -> None:
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, str(tmp_path)], cwd=ROOT)
    try:
        busy = {marked(tmp_path / task) for task in ("spins", "holds_the_gil", "waits")}
        family = descendants(runner.pid)
        assert busy < family
        assert marked(tmp_path / "program") in family
        assert len(family) == 5  # one child is idle
    finally:
        runner.kill()
        runner.wait()
    until(lambda: not any(is_alive(pid) for pid in family), 2)


def test_a_fork_of_the_runner_does_not_keep_its_children_alive(tmp_path: Path) -> None:
    forking = RUNNER.replace(
        "    threading.Event().wait()", f"    fork({str(tmp_path)!r}); threading.Event().wait()"
    )
    fork = (
        "import os, time\ndef fork(folder):\n    if not os.fork():\n"
        "        open(folder + '/fork', 'w').write(str(os.getpid())); time.sleep(600)\n"
    )
    runner = subprocess.Popen([sys.executable, "-c", fork + forking, str(tmp_path)], cwd=ROOT)
    try:
        child, forked = marked(tmp_path / "spins"), marked(tmp_path / "fork")
    finally:
        runner.kill()
        runner.wait()
    until(lambda: not is_alive(child), 2)
    assert is_alive(forked)
    os.kill(forked, signal.SIGKILL)
