"""Commands that serve until a signal stops them, stopped while they start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.worker_kit import stopper

pytestmark = pytest.mark.long

WIRE = ("--wire", "nats://127.0.0.1:1/shop")
COMMANDS: dict[str, tuple[str, ...]] = {
    "hand": ("hand", "little_shop:app", *WIRE),
    "hub": ("hub", "little_shop:app", *WIRE),
    "serve": ("serve", "little_shop:app", "--port", "0"),
    "intake": ("intake", "little_shop:app"),
}

APP = """
from tidemill import App

app = App("sqlite:///{folder}/jobs.db")
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    (folder / "little_shop.py").write_text(APP.format(folder=folder))
    own = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    return {**own, "TIDEMILL_KEY": "a key", **more}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["tidemill.cli.{command}", "little_shop"])
def test_a_command_that_is_stopped_while_it_starts_exits_with_0(
    tmp_path: Path, command: str, name: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidemill", *COMMANDS[command]],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=environment(tmp_path, **stopper(tmp_path, name.format(command=command), command)),
        check=False,
    )
    assert (tmp_path / "stopped").exists()
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_lost_terminal_still_ends_a_command_that_starts(tmp_path: Path, command: str) -> None:
    stopping = stopper(tmp_path, "little_shop", command)
    hook = tmp_path / "stopper" / "sitecustomize.py"
    # A run under nohup ignores SIGHUP, and its processes inherit that.
    default = "\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    hook.write_text(hook.read_text().replace("signal.SIGTERM", "signal.SIGHUP") + default)
    done = subprocess.run(
        [sys.executable, "-m", "tidemill", *COMMANDS[command]],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=environment(tmp_path, **stopping),
        check=False,
    )
    assert done.returncode == -signal.SIGHUP
