"""The code of the first release, from the history of the repository."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from tests.faults.kit import ROOT
from tests.servers.processes import ServiceMissing

COMMIT = "f309cbbf509327aee714703aaafcd48dc0aff320"
"""Version 0.1.0, schema version 6."""


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, timeout=120, check=False)
    except OSError as error:
        raise ServiceMissing(f"git does not run: {error}") from None


def unpack(folder: Path) -> Path:
    """Write the files of the first release into a folder; return the folder of its package.

    A shallow clone fetches the commit from its origin.
    """
    if _git("cat-file", "-e", COMMIT).returncode:
        _git("fetch", "--quiet", "--depth", "1", "origin", COMMIT)
    archive = _git("archive", COMMIT)
    if archive.returncode:
        raise ServiceMissing(f"the repository has no commit {COMMIT[:12]}: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"
