"""Tests of daily log files."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from datetime import date, datetime, timedelta
from pathlib import Path

import pytest

from tidemill.contrib.logs import DailyFileHandler, JsonLines, PlainLines

DAY = datetime(2026, 11, 18, 23, 59)  # noqa: DTZ001  (local days)


def record(text: str, at: datetime) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": text, "levelno": 20, "levelname": "INFO", "name": "shop"})
    made.created = at.timestamp()
    return made


def test_each_day_has_its_own_file(tmp_path: Path) -> None:
    handler = DailyFileHandler(tmp_path / "logs" / "worker.log")
    handler.emit(record("late", DAY))
    handler.emit(record("early", DAY + timedelta(minutes=2)))
    handler.close()
    assert (tmp_path / "logs" / "worker-2026-11-18.log").read_text() == "late\n"
    assert (tmp_path / "logs" / "worker-2026-11-19.log").read_text() == "early\n"


def test_files_older_than_the_retention_are_deleted_and_other_files_are_not(tmp_path: Path) -> None:
    handler = DailyFileHandler(tmp_path / "worker.log", keep=2)
    others = ["worker-notes.log", "worker-2026-99-99.log", "other-2026-01-01.log", "worker-2026-01-01.txt"]
    for name in (*others, "worker-2026-11-15.log", "worker-2026-11-16.log"):
        (tmp_path / name).write_text("")
    handler.emit(record("line", DAY))
    handler.close()
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {*others, "worker-2026-11-16.log", "worker-2026-11-18.log"}


def test_a_negative_retention_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep is -1"):
        DailyFileHandler(tmp_path / "a.log", keep=-1)


def test_a_file_that_cannot_be_written_does_not_fail_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = DailyFileHandler(tmp_path / "worker.log")
    handler.file_of(date(2026, 11, 18)).mkdir()
    handler.emit(record("line", DAY))
    assert "Logging error" in capsys.readouterr().err


def test_lines_of_several_processes_are_whole(tmp_path: Path) -> None:
    program = (
        "import logging, sys; from tidemill.contrib.logs import DailyFileHandler, JsonLines, PlainLines, JsonLines\n"
        "handler = DailyFileHandler(sys.argv[1]); handler.setFormatter(JsonLines()); log = logging.getLogger()\n"
        "log.addHandler(handler)\n"
        "for number in range(200): log.warning('x' * 500)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "all.log")]) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    texts = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert len(texts) == 600
    assert {json.loads(line)["message"] for line in texts} == {"x" * 500}


@pytest.mark.parametrize("formatter", [PlainLines(), JsonLines()])
def test_a_worker_logs_no_secret_and_no_control_character(formatter: logging.Formatter) -> None:
    try:
        raise ValueError("token=abc123 \x1b]0;owned\x07")
    except ValueError as error:
        raised = (type(error), error, error.__traceback__)
    text = "\x1b[2J\r\x9b31m login with password=hunter2\nnext"
    given = logging.makeLogRecord(
        {"msg": text, "name": "shop", "exc_info": raised, "url": "db://ada:hunter3@x"}
    )
    line = formatter.format(given)
    assert not set(line) & set("\x1b\x07\r\x9b")
    assert not [word for word in ("abc123", "hunter2", "hunter3") if word in line]
    assert "password=***" in line
    assert "ValueError: token=***" in line
