"""Execution of the test modules in docs/howto/testing.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "testing.md"


def files() -> dict[str, str]:
    """The blocks that start with a file name, and the pytest settings of the page."""
    text = PAGE.read_text(encoding="utf-8")
    found = {
        match[1]: match[2] for match in re.finditer(r"```python\n# (\S+\.py)\n(.*?)```", text, re.DOTALL)
    }
    settings = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert settings is not None
    return found | {"pyproject.toml": settings[1]}


@pytest.mark.parametrize(
    ("module", "configured", "passed"),
    [("test_welcome.py", False, 2), ("test_configured.py", True, 1), ("test_empty.py", False, 1)],
)
def test_a_test_module_of_the_page_passes(tmp_path: Path, module: str, configured: bool, passed: int) -> None:
    shown = files()
    (tmp_path / "svc").mkdir()
    (tmp_path / "svc" / "__init__.py").touch()
    (tmp_path / "svc" / "jobs.py").write_text(shown["svc/jobs.py"])
    (tmp_path / module).write_text(shown[module])
    if configured:
        (tmp_path / "pyproject.toml").write_text(shown["pyproject.toml"])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{passed} passed" in done.stdout, done.stdout + done.stderr
