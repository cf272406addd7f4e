"""Log lines of jobs in every executor: on the console, in daily files, and found by ``tidemill logs search``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.engine.worker_kit import until
from tests.interfaces.cli_kit import Shop, make_shop

PROGRAM = """
import logging
import sys

from tidemill import App, Fixed

app = App({url!r}, capture_logs="INFO", migrate=True)
log = logging.getLogger("shop")
AGAIN = Fixed(max_attempts=2, wait=0)


def work():
    log.info("inside the job")
    print("printed by the job")
    raise ConnectionError("the bank is away")


@app.task(retry=AGAIN)
def in_thread() -> None:
    work()


@app.task(retry=AGAIN)
async def on_loop() -> None:
    work()


@app.task(retry=AGAIN, isolation="process")
def in_process() -> None:
    work()
"""
TASKS = ("in_thread", "on_loop", "in_process")


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidemill", *words],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        check=True,
    )


def search(folder: Path, *words: str) -> list[dict[str, Any]]:
    """Return the lines that a search of the command line finds."""
    items: list[dict[str, Any]] = json.loads(
        call(folder, "logs", "search", *words, "--app", "logged:app", "--json").stdout
    )["items"]
    return items


def run_worker(folder: Path, *words: str) -> str:
    """Run the three jobs to their ends with a worker, and return its stderr."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "tidemill", "worker", "logged:app", "--processes", "1", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    try:
        for task in TASKS:
            call(folder, "jobs", "enqueue", task, "--app", "logged:app")
        until(
            lambda: len(search(folder, "dead_lettered", "--level", "error")) == len(TASKS), "all jobs failed"
        )
    finally:
        worker.terminate()
        _, err = worker.communicate(timeout=60)
    return err


@pytest.mark.long
@pytest.mark.parametrize("sink", ["json", "plain", "file"])
def test_each_executor_logs_one_warning_and_one_error_with_the_ids(tmp_path: Path, sink: str) -> None:
    (tmp_path / "logged.py").write_text(PROGRAM.format(url=f"sqlite:///{tmp_path}/jobs.db"))
    call(tmp_path, "db", "migrate", "--store", f"sqlite:///{tmp_path}/jobs.db")
    options = {"json": ["--log-json"], "plain": [], "file": ["--log-json", "--log-file", "logs/worker.log"]}[
        sink
    ]
    text = run_worker(tmp_path, *options)
    if sink == "file":
        assert text == ""
        (file,) = (tmp_path / "logs").iterdir()
        text = file.read_text()
    if sink == "plain":
        for task in TASKS:
            assert (
                sum(f" {task} " in line and "attempt 1 of 2 failed" in line for line in text.splitlines())
                == 1
            )
            assert sum(f"inside the job [{task} " in line for line in text.splitlines()) == 2
        return
    records: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    levels = Counter(
        (record["task"], record["level"]) for record in records if record["logger"] == "tidemill.jobs"
    )
    assert levels == {(task, level): 1 for task in TASKS for level in ("warning", "error")}
    own = [record for record in records if record["logger"] == "shop"]
    assert Counter(record["task"] for record in own) == dict.fromkeys(TASKS, 2)
    assert all(record["attempt"] in (1, 2) and record["job_id"] and record["queue"] for record in own)
    found = search(tmp_path)
    assert Counter((line["task"], line["level"]) for line in found) == {
        (task, level): number
        for task in TASKS
        for level, number in (("info", 4), ("warning", 1), ("error", 1))
    }
    (line,) = search(tmp_path, "the BANK", "--task", "in_process", "--level", "error")
    assert "Traceback" in line["message"]


STRUCTLOG = """
import structlog

handler = logging.StreamHandler()
handler.setFormatter(
    structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder(), structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.JSONRenderer(default=str)],
    )
)
logging.basicConfig(level=logging.INFO, handlers=[handler])

if __name__ == "__main__":
    import logged

    with logged.app.worker(children=1):
        for task in (logged.in_thread, logged.on_loop, logged.in_process):
            try:
                task.enqueue().result(60)
            except Exception:
                pass
"""


@pytest.mark.long
def test_an_embedded_worker_with_structlog_logs_the_same(tmp_path: Path) -> None:
    program = PROGRAM.format(url=f"sqlite:///{tmp_path}/jobs.db") + STRUCTLOG
    (tmp_path / "logged.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "logged.py"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
    )
    records: list[dict[str, Any]] = [json.loads(line) for line in done.stderr.splitlines()]
    failed = [record for record in records if record["logger"] == "tidemill.jobs"]
    assert Counter((record["task"], record["level"]) for record in failed) == {
        (task, level): 1 for task in TASKS for level in ("warning", "error")
    }
    assert all("Traceback" in record["event"] and record["job_id"] in record["event"] for record in failed)
    own = [record for record in records if record["logger"] == "shop"]
    assert Counter((record["task"], record["attempt"]) for record in own) == {
        (task, attempt): 1 for task in TASKS for attempt in (1, 2)
    }
    found = search(tmp_path, "the bank is away", "--level", "warning")
    assert Counter((line["task"], line["level"]) for line in found) == {
        (task, level): 1 for task in TASKS for level in ("warning", "error")
    }


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(tmp_path)
    made = make_shop(tmp_path)
    with made.app() as app:
        for to in ("ada", "bob"):
            app.enqueue("send", to=to)
    made.drain()
    return made


def test_lines_are_printed_newest_first_with_task_and_job(shop: Shop) -> None:
    printed = shop.run("logs", "search").output.splitlines()
    assert len(printed) == 2
    assert printed[0].startswith("send ")
    assert printed[0].endswith('sent to="bob"')


def test_a_search_continues_at_its_cursor(shop: Shop) -> None:
    first = shop.json("logs", "search", "--limit", "1")
    second = shop.json("logs", "search", "--limit", "1", "--cursor", first["next"])
    assert [line["details"]["to"] for line in (*first["items"], *second["items"])] == ["bob", "ada"]
    assert f"more: --cursor {first['next']}" in shop.run("logs", "search", "--limit", "1").output


def test_conditions_restrict_the_lines(shop: Shop) -> None:
    line = shop.json("logs", "search")["items"][0]
    assert shop.json("logs", "search", "--job", line["job_id"])["items"] == [line]
    assert len(shop.json("logs", "search", "SENT", "--task", "send", "--since", "1h")["items"]) == 2
    for words in (
        ["--level", "error"],
        ["--task", "look"],
        ["--until", "1h"],
        ["nothing"],
        ["--tenant", "acme"],
    ):
        assert shop.json("logs", "search", *words)["items"] == [], words
    assert "no log lines" in shop.run("logs", "search", "nothing").output
    assert shop.run("logs", "search", "--cursor", "x").exit_code != 0
