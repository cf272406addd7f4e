"""``tidemill hub`` and ``tidemill hand``: real processes, errors, and the check of the doctor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from tests.engine.hub_kit import a_hub, a_key
from tests.engine.worker_kit import until
from tests.interfaces.cli_kit import call
from tests.stores.wire_kit import wire_url

from tidemill.app import App
from tidemill.domain.job import NewJob
from tidemill.ids import new_id

APP = """
from tidemill import App

app = App("sqlite:///{folder}/jobs.db")


@app.task
def double(n: int) -> int:
    return 2 * n


@app.task
async def begin(n: int) -> str:
    return str((await double.aenqueue(n=n)).id)
"""


@pytest.fixture(scope="module")
def wire() -> Iterator[str]:
    with wire_url("nats") as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an app."""
    (tmp_path / "far_shop.py").write_text(APP.format(folder=tmp_path))
    return tmp_path


def launched(folder: Path, stack: ExitStack, *words: str, **env: str) -> subprocess.Popen[bytes]:
    """Start a command that runs until it is stopped; its output is closed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tidemill", *words, "--json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=stack.enter_context((folder / "log").open("ab")),
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")},
            **env,
        },
    )
    assert process.stdout is not None
    stack.callback(process.stdout.close)
    return process


def started(folder: Path, stack: ExitStack, *words: str, **env: str) -> dict[str, object]:
    """Start a command that runs until it is stopped; return its announcement."""
    process = launched(folder, stack, *words, **env)

    def stop() -> None:
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(60) == 0, (folder / "log").read_text()
        finally:
            process.kill()

    stack.callback(stop)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (folder / "log").read_text()
    announced: dict[str, object] = json.loads(line)["started"]
    return announced


def test_a_hub_and_a_hand_run_jobs(folder: Path, wire: str) -> None:
    app = App(f"sqlite:///{folder}/jobs.db")
    key = a_key(app.store)
    with ExitStack() as stack:
        stack.callback(app.close)
        hub = started(folder, stack, "hub", "far_shop:app", "--wire", wire)
        assert (hub["wires"], hub["duties"]) == ([wire], True)
        hand = started(folder, stack, "hand", "far_shop:app", "--wire", wire, TIDEMILL_KEY=key)
        assert hand["tasks"] == ["begin", "double"]
        follower = str(app.enqueue("begin", n=4).result(timeout=60))
        assert app.jobs.get(follower).result(timeout=60) == 8
        # The hub performs the duties, so that a scheduled job becomes due.
        app.store.enqueue([job := NewJob(new_id(), "double", '{"n":5}', delay=timedelta(milliseconds=300))])
        assert app.jobs.get(job.id).result(timeout=60) == 10


SLOW_APP = """
import time
from pathlib import Path

from tidemill import App
from tidemill.engine.hand.hand import Hand

folder = Path({folder!r})
app = App("sqlite:///{folder}/jobs.db")
stop = Hand.stop


def noted_stop(self):
    (folder / "stopping").touch()
    stop(self)


Hand.stop = noted_stop


@app.task(retry=None)
def wait() -> str:
    (folder / "began").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    return "done"
"""


def test_a_second_sigterm_does_not_end_a_hand_that_waits_for_its_jobs(folder: Path, wire: str) -> None:
    (folder / "slow_shop.py").write_text(SLOW_APP.format(folder=str(folder)))
    app = App(f"sqlite:///{folder}/jobs.db")
    key = a_key(app.store)
    with ExitStack() as stack:
        stack.callback(app.close)
        started(folder, stack, "hub", "slow_shop:app", "--wire", wire)
        hand = launched(folder, stack, "hand", "slow_shop:app", "--wire", wire, TIDEMILL_KEY=key)
        stack.callback(hand.kill)
        job = app.enqueue("wait")
        until((folder / "began").exists, "the job runs")
        hand.send_signal(signal.SIGTERM)
        until((folder / "stopping").exists, "the hand stops")
        hand.send_signal(signal.SIGTERM)
        (folder / "go").touch()
        assert hand.wait(60) == 0, (folder / "log").read_text()
        assert job.result(timeout=60) == "done"


@pytest.mark.parametrize(
    ("words", "env", "text"),
    [
        (
            ("hand", "far_shop:app", "--wire", "http://x"),
            {"TIDEMILL_KEY": "x"},
            "is not the address of a wire",
        ),
        (("hand", "far_shop:app", "--wire", "nats://x"), {}, "TIDEMILL_KEY"),
        (
            ("hand", "far_shop:app", "--wire", "nats://127.0.0.1:1/x"),
            {"TIDEMILL_KEY": "x"},
            "the key is not valid",
        ),
        (("hand", "far_shop:app"), {}, "--wire"),
        (("hub", "--wire", "nats://x"), {}, "tidemill hub module:app"),
        (("hub", "--store", "memory://", "--wire", "nats://x"), {}, "has no other process to serve"),
        (("hub", "--store", "sqlite:///x.db", "--wire", "nats://x/a b"), {}, "name 'a b' is not valid"),
        (
            ("hub", "--store", "sqlite:///x.db", "--wire", "amqp://x/a?queue=odd"),
            {},
            "expected classic or quorum",
        ),
    ],
)
def test_a_wrong_call_is_refused_with_advice(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], env: dict[str, str], text: str
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    done = call(*words)
    assert done.exit_code == 2
    assert text in done.output


def test_the_doctor_checks_the_wire(folder: Path, wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{folder}/jobs.db"
    app = App(url)
    monkeypatch.setenv("TIDEMILL_WIRE", wire)

    def wire_check() -> tuple[str, str]:
        checks = json.loads(call("doctor", "--store", url, "--json").stdout)["checks"]
        (found,) = [check for check in checks if check["check"] == "wire"]
        return found["status"], found["text"]

    status, text = wire_check()
    assert (status, "answers" in text) == ("ok", True)
    monkeypatch.setenv("TIDEMILL_KEY", a_key(app.store))
    status, text = wire_check()
    assert (status, "no hub answered" in text) == ("fail", True)
    with a_hub(app.store, wire):
        status, text = wire_check()
        assert (status, "a hub answers" in text) == ("ok", True)
    app.close()
