"""``tidemill up`` and ``tidemill demo``: output, HTTP and shutdown."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from tests.engine.worker_kit import alive, until
from tests.interfaces.cli_kit import make_shop
from tests.servers.processes import child_pids

from tidemill import App

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 90.0


class Running:
    """A started command, its first line of output, and access to its API."""

    def __init__(self, words: list[str], folder: Path, **environment: str) -> None:
        self._log = folder / "up.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *words],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(folder), **environment},
                start_new_session=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log
        self.facts: dict[str, Any] = json.loads(line)["started"]

    @property
    def log(self) -> str:
        return self._log.read_text()

    def ask(self, path: str, token: str | None = None) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {token or self.facts['token']}"}
        try:
            with urlopen(Request(self.facts["url"] + path, headers=headers), timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)

    def family(self, word: str) -> list[int]:
        return [pid for pid, words in child_pids(self.process.pid).items() if word in words]

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        pids = [*self.family("tidemill.engine.runner.main"), *self.family("tidemill.cli.up_api")]
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        until(lambda: not any(map(alive, pids)), "its family is gone with it", PATIENCE)


@contextlib.contextmanager
def running(words: list[str], folder: Path, **environment: str) -> Iterator[Running]:
    with contextlib.closing(Running(words, folder, **environment)) as started:
        yield started


def up(where: str, *more: str) -> list[str]:
    return ["-m", "tidemill", "up", where, "--port", "0", "--processes", "1", "--json", *more]


def test_up_migrates_runs_workers_and_serves_the_api(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    with running(up(shop.where), tmp_path) as started:
        assert started.facts["app"] == shop.where
        assert started.facts["processes"] == 1
        status, document = started.ask("/api/tasks")
        assert (status, [task["name"] for task in document["items"]]) == (200, ["fail", "look", "send"])
        assert started.ask("/api/tasks", token="wrong")[0] == 401
        with App(shop.url) as app:
            until(app.store.workers, "a worker is registered", PATIENCE)
        family = [*started.family("tidemill.engine.runner.main"), *started.family("tidemill.cli.up_api")]
        assert len(family) == 2
        assert started.end(signal.SIGINT) == 0
        assert not any(map(alive, family))


def test_a_killed_api_process_is_replaced_with_the_same_address_and_token(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    with running(up(shop.where), tmp_path) as started:
        (before,) = started.family("tidemill.cli.up_api")
        (runner,) = started.family("tidemill.engine.runner.main")
        os.kill(before, signal.SIGKILL)
        until(lambda: not alive(before), "it is dead", PATIENCE)

        def answers() -> bool:
            with contextlib.suppress(URLError, ConnectionError, TimeoutError):
                return started.ask("/api/jobs")[0] == 200
            return False

        until(answers, "another answers", PATIENCE)
        assert started.family("tidemill.cli.up_api") != [before]
        assert started.family("tidemill.engine.runner.main") == [runner]
        assert "the HTTP API was killed by SIGKILL; the next one starts in" in started.log
        assert started.end() == 0


@pytest.mark.long
def test_a_reload_replaces_the_api_process_without_refusing_connections(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    with running(up(shop.where), tmp_path) as started:
        (before,) = started.family("tidemill.cli.up_api")
        started.process.send_signal(signal.SIGHUP)
        until(lambda: not alive(before), "the old one is gone", PATIENCE)
        assert started.ask("/api/jobs")[0] == 200  # the socket stays open during the reload
        (after,) = started.family("tidemill.cli.up_api")
        assert after != before
        assert started.end() == 0


@pytest.mark.long
def test_no_process_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    with running(up(shop.where), tmp_path) as started:
        family = [*started.family("tidemill.engine.runner.main"), *started.family("tidemill.cli.up_api")]
        started.process.kill()
        until(lambda: not any(map(alive, family)), "all are gone", PATIENCE)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--host", "0.0.0.0"], "the HTTP API cannot work: there is no active API key"),
        (["--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
    ],
)
def test_a_startup_error_is_one_sentence_and_an_exit_code(
    tmp_path: Path, words: list[str], sentence: str
) -> None:
    shop = make_shop(tmp_path)
    done = subprocess.run(
        [sys.executable, *up(shop.where, *words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_up_prints_its_addresses_and_settings_line_by_line(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    words = [sys.executable, "-m", "tidemill", "up", shop.where, "--port", "0", "--processes", "1"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            rows = [process.stdout.readline().split(None, 1) for _ in range(10)]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert [row[0] for row in rows if row[0] != "no"] == [
        "open", "api", "docs", "token", "app", "store", "tasks", "queues", "slots",
    ]  # fmt: skip


@pytest.mark.long
def test_the_demo_shows_every_kind_of_job_within_minutes(tmp_path: Path) -> None:
    with running(["dev.py", "demo", "--port", "0", "--json", "--no-browser"], tmp_path) as started:
        folder = Path(started.facts["store"].removeprefix("sqlite:///")).parent
        assert folder.is_dir()
        seen: set[str] = set()
        wanted = {"running", "retrying", "scheduled", "failed", "completed", "dead_lettered", "review_needed"}
        tenants: set[str] = set()

        def look() -> bool:
            for wished in wanted - seen:
                name = "scheduled" if wished == "retrying" else wished
                status, page = started.ask(f"/api/jobs?status={name}&limit=200")
                assert status == 200
                for job in page["items"]:
                    again = job["status"] == "scheduled" and job["attempt"] > 0
                    seen.add("retrying" if again else job["status"])
                    tenants.add(job["tenant"])
            return wanted <= seen and {"acme", "globex"} <= tenants

        until(look, "jobs of every kind were seen", 240)
        fired = started.ask("/api/schedules")[1]["items"]
        assert {"a-little-work", "tidy", "visitors"} <= {schedule["key"] for schedule in fired}
        assert started.end(signal.SIGINT) == 0
        assert not folder.exists()
