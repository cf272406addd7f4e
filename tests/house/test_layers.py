"""Import contracts between the layers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    """Check `project` against the contracts in its own pyproject.toml."""
    program = (
        "import sys; sys.path.insert(0, 'src'); from importlinter.cli import lint_imports; "
        "sys.exit(lint_imports(config_filename='pyproject.toml', no_cache=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", program], cwd=project, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_source_keeps_every_import_contract() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("domain/bad.py", "import tidemill.stores.bad", "layers"),
        ("errors.py", "import tidemill.domain.bad", "layers"),
        ("stores/bad.py", "import tidemill.tasks.bad", "layers"),
        ("engine/bad.py", "import tidemill.client.bad", "layers"),
        ("domain/bad.py", "import time", "pure"),
        ("domain/bad.py", "from asyncio import sleep", "pure"),
        ("rest/bad.py", "import tidemill.stores.bad", "web"),
        ("rest/bad.py", "import tidemill.engine.bad", "web"),
        ("web/bad.py", "import tidemill.stores.bad", "web"),
        ("web/bad.py", "import tidemill.rest.bad", "layers"),
        ("dashboard/bad.py", "import tidemill.rest.bad", "layers"),
        ("rest/bad.py", "import tidemill.dashboard.bad", "layers"),
    ],
)
def test_an_import_that_violates_a_contract_is_rejected(
    tmp_path: Path, module: str, line: str, contract: str
) -> None:
    package = tmp_path / "src" / "tidemill"
    for room in ("domain", "stores", "tasks", "client", "engine", "web", "rest", "dashboard"):
        (package / room).mkdir(parents=True)
        (package / room / "__init__.py").touch()
        (package / room / "bad.py").touch()
    (package / "__init__.py").touch()
    (package / "errors.py").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert lint_imports(tmp_path).returncode == 0

    (package / module).write_text(line + "\n")
    done = lint_imports(tmp_path)

    names = {
        "layers": "A layer imports only the layers below it",
        "pure": "The domain reads no clock",
        "web": "The HTTP API and the dashboard use the client",
    }
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{names[contract]}" in done.stdout.split("Broken contracts")[-1]
