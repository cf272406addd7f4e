"""Commands that cannot run on Windows, and the alternative they name."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.house.test_windows import run


@pytest.mark.parametrize("command", ["worker", "up", "demo"])
def test_commands_with_processes_name_the_embedded_worker_on_windows(command: str, tmp_path: Path) -> None:
    words = [] if command == "demo" else ["shop:app"]
    done = run("from tidemill.cli import main\nsys.exit(main())", command, *words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines() == [
        f"tidemill: tidemill {command} does not run on Windows; run a worker inside your program: with app.worker(): …"
    ]
