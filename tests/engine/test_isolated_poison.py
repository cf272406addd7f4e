"""Tests of misbehaving jobs in child processes."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from tests.engine.isolated_kit import APP, CLOCK, is_alive, marked, open_lane, until
from tests.engine.kit import Notes

from tidemill.domain.outcome import (
    Cancelled,
    Crashed,
    Failed,
    Outcome,
    ReviewRequested,
    Snoozed,
    Succeeded,
    TimedOut,
)
from tidemill.domain.payload import ERROR_MESSAGE_LENGTH, clip
from tidemill.engine.executors.child_process import ChildProcess

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

UNSTOPPABLE = ["spins", "holds_the_gil", "ignores_everything", "ignores_cancelling"]


@pytest.mark.parametrize(
    ("task", "args", "how"),
    [
        ("kills_itself", {}, "was killed by SIGKILL"),
        ("exits", {"code": 3}, "exited with code 3"),
        ("exits", {"code": 0}, "exited with code 0"),
        ("segfault", {}, "was killed by SIGSEGV"),
        ("closes_everything", {}, "exited with code 70, as its socket to the runner was closed"),
        ("writes_rubbish", {}, "was killed by SIGKILL"),
    ],
)
def test_a_job_that_ends_its_process_has_crashed_and_the_next_one_runs(
    task: str, args: dict[str, int], how: str
) -> None:
    with open_lane() as lane:
        before = lane.result("who")
        ended = lane.run(task, **args)
        assert isinstance(ended.outcome, Crashed)
        assert ended.outcome.reason.startswith(
            f"child process {before} {how} while running task {task} (job "
        )
        assert ended.result is None
        assert ended.error is None
        assert lane.result("who") != before


def test_a_crash_is_charged_only_to_the_job_that_caused_it(tmp_path: Path) -> None:
    with open_lane(2) as lane:
        neighbour = lane.begin("waits_politely", sign=str(tmp_path / "sign"))
        marked(tmp_path / "sign")
        for _ in range(3):
            assert isinstance(lane.run("kills_itself").outcome, Crashed)
        assert neighbour.ends == []
        assert lane.running == 1
        lane.cancel(neighbour.id, "enough")
        assert neighbour.end().outcome == Cancelled("enough")


@pytest.mark.parametrize("task", UNSTOPPABLE)
def test_an_unstoppable_job_is_killed_at_its_timeout(task: str, tmp_path: Path) -> None:
    with open_lane() as lane:
        lane.warm(60)
        job = lane.begin(task, sign=str(tmp_path / "sign"), timeout=1.0)
        pid = marked(tmp_path / "sign")
        ended = job.end()
        assert isinstance(ended.outcome, TimedOut)
        assert ended.outcome.limit.total_seconds() == 1
        assert 1.0 <= ended.ended - ended.began < 2.0
        assert not is_alive(pid)
        assert lane.result("who") != pid


@pytest.mark.long
def test_twenty_unstoppable_jobs_are_killed_within_a_second_of_their_timeout() -> None:
    with open_lane(20) as lane:
        assert lane.warm(120) == 20
        tasks = ["spins", "holds_the_gil", "ignores_everything"]
        jobs = [lane.begin(tasks[number % 3], timeout=3.0) for number in range(20)]
        ends = [job.end() for job in jobs]
        assert all(isinstance(ended.outcome, TimedOut) for ended in ends)
        late = [job.at - ended.began - 3.0 for job, ended in zip(jobs, ends, strict=True)]
        assert max(late) < 1.0
        assert min(late) >= 0.0


@pytest.mark.parametrize("task", UNSTOPPABLE)
def test_an_uncooperative_job_is_killed_after_the_patience(task: str, tmp_path: Path) -> None:
    with open_lane(patience=timedelta(seconds=0.3)) as lane:
        job = lane.begin(task, sign=str(tmp_path / "sign"))
        pid = marked(tmp_path / "sign")
        asked = CLOCK.monotonic()
        assert lane.cancel(job.id, "we close")
        assert job.end().outcome == Cancelled("we close")
        assert 0.3 <= job.at - asked < 1.3
        assert not is_alive(pid)


def daemons(folder: Path) -> list[int]:
    until(lambda: len(list(folder.iterdir())) == 3)
    return [int(path.name) for path in folder.iterdir()]


def test_processes_left_by_a_job_are_killed_before_its_end_is_reported(tmp_path: Path) -> None:
    with open_lane() as lane:
        child = lane.result("leaves_daemons", folder=f"{tmp_path}/")
        assert not any(is_alive(pid) for pid in [child, *daemons(tmp_path)])
        assert lane.result("who") != child


def test_a_killed_job_takes_all_its_processes_with_it(tmp_path: Path) -> None:
    folder, sign = tmp_path / "daemons", tmp_path / "sign"
    folder.mkdir()
    with open_lane() as lane:
        job = lane.begin("daemons_and_spins", folder=f"{folder}/", sign=str(sign), timeout=60.0)
        child = marked(sign)
        lane.kill(job.id, Crashed("enough"))
        assert job.end().outcome == Crashed("enough")
        until(lambda: not any(is_alive(pid) for pid in [child, *daemons(folder)]), 2)


def test_processes_that_exited_by_themselves_cost_no_new_child() -> None:
    with open_lane() as lane:
        child = lane.result("reaped_child")
        assert lane.result("who") == child


def test_a_fork_that_holds_the_socket_does_not_hide_the_death_of_its_child(tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    with open_lane() as lane:
        ended = lane.run("dies_with_a_fork_holding_on", sign=str(sign))
        assert isinstance(ended.outcome, Crashed)
        assert "exited with code 5" in ended.outcome.reason
    os.kill(marked(sign), 9)  # it moved to its own session before the check


def test_a_job_that_changes_process_state_does_not_affect_the_next_job() -> None:
    with open_lane() as lane:
        before = lane.result("probe", wait=0)
        assert lane.result("vandal") == before[0]
        assert lane.result("probe", wait=0.4) == before
        assert before[1:5] == [str(Path.cwd()), True, True, True]
        assert before[6] is True


def test_a_child_that_cannot_be_restored_is_replaced() -> None:
    with open_lane() as lane:
        assert lane.result("closes_output") != lane.result("who")


def test_output_of_a_thread_after_the_end_of_its_job_is_dropped() -> None:
    own, other = Notes(), Notes()
    with open_lane() as lane:
        assert isinstance(lane.run("speaks_after_the_end", outlet=own).outcome, Succeeded)
        lane.result("probe", wait=0.5, outlet=other)
    assert other.lines == []
    assert other.reports == []


@pytest.mark.parametrize("task", ["raises", "a_raises"])
def test_any_exception_of_a_job_is_an_outcome_and_the_child_survives(task: str) -> None:
    expected: dict[str, Outcome | str] = {
        "interrupt": "KeyboardInterrupt",
        "generator": "GeneratorExit",
        "exit": "SystemExit",
        "base": "BaseException",
        "group": "ExceptionGroup",
        "base group": "BaseExceptionGroup",
        "unspeakable": "tests.engine.isolated_app.Unspeakable",
        "memory": "MemoryError",
        "recursion": "RecursionError",
        "surrogates": "ValueError",
        "huge": "ValueError",
        "permanent": "tidemill.errors.PermanentError",
        "huge reason": Cancelled(clip("r" * 2 * ERROR_MESSAGE_LENGTH, ERROR_MESSAGE_LENGTH)),
        "cancelled": Cancelled(None),
        "cancel": Cancelled("by itself"),
        "review": ReviewRequested("look", '{"a":1}'),
    }
    with open_lane() as lane:
        child = lane.result("who")
        for which, outcome in expected.items():
            ended = lane.run(task, which=which)
            if isinstance(outcome, str):
                assert isinstance(ended.outcome, Failed), which
                assert ended.error is not None
                assert ended.error.type == outcome
                assert len(ended.error.message) <= 2_000
            else:
                assert ended.outcome == outcome, which
        assert isinstance(lane.run(task, which="snooze").outcome, Snoozed)
        assert lane.run(task, which="review").result == '{"a":1}'
        assert lane.result("who") == child


def test_a_job_that_sends_itself_sigint_has_failed() -> None:
    with open_lane() as lane:
        ended = lane.run("interrupts_itself")
        assert ended.error is not None
        assert ended.error.type == "KeyboardInterrupt"
        assert isinstance(lane.run("nothing").outcome, Succeeded)


def test_output_arrives_in_order_and_oversized_output_is_cut(capfd: pytest.CaptureFixture[str]) -> None:
    notes = Notes()
    with open_lane() as lane:
        lane.run("chatter", lines=5_000, outlet=notes)
        assert [line.message for line in notes.lines] == [f"line {number}" for number in range(5_000)]
        lane.run("long_line", outlet=notes)
        assert notes.lines[-1].message.startswith("x" * 9_000)
        assert len(notes.lines[-1].message) < 10_100  # cut, with a mark
        details = notes.lines[-1].details
        assert details is not None
        assert str(details["blob"]).endswith("bytes cut)")
        ended = lane.run("huge_checkpoint")
        assert ended.error is not None
        assert ended.error.type == "tidemill.errors.PayloadTooLarge"
        lane.run("huge_output", size=3_000_000)
        assert isinstance(lane.run("nothing").outcome, Succeeded)
    told = capfd.readouterr()
    assert told.out.count("o") >= 3_000_000
    assert told.err.count("e") >= 3_000_000


@pytest.mark.long
def test_fifty_kills_leave_no_descriptor_and_no_zombie() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def zombies() -> list[str]:
        own = os.getpid()
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, parent = path.read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(parent) == own and state == "Z":
                found.append(path.parent.name)
        return found

    with open_lane(2) as lane:
        lane.warm(60)
        before = open_files()
        for _ in range(4):
            for job in [lane.begin("kills_itself"), lane.begin("spins", timeout=0.1)]:
                job.end()
        assert lane.warm(60) == 2
        for _ in range(42):  # children killed before they have imported anything
            child = ChildProcess(APP)
            child.kill()
            assert child.reap() == "was killed by SIGKILL"
        assert open_files() == before
        assert zombies() == []


def test_environment_module_path_and_limits_are_restored_between_jobs() -> None:
    with open_lane() as lane:
        before = lane.result("process_as_found")
        assert lane.result("changes_its_process") == before[0]
        assert lane.result("process_as_found") == before


def test_a_child_whose_limits_cannot_be_raised_again_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may raise hard limits again, so the app gives up that right when this variable is set.
    monkeypatch.setenv("ISOLATED_APP_UNPRIVILEGED", "1")
    with open_lane() as lane:
        before = lane.result("process_as_found")
        assert lane.result("changes_its_process", hard=True) == before[0]
        after = lane.result("process_as_found")
    assert after[0] != before[0]
    assert after[1:] == before[1:]


def test_a_fork_that_returns_from_the_handler_does_not_end_the_job(tmp_path: Path) -> None:
    with open_lane() as lane:
        assert lane.result("forks_and_returns", sign=str(tmp_path / "sign")) == "the job"
        assert lane.result("add", one=1, other=2) == 3
