"""Runs every test file in a process of its own: ``python -m tests.one_by_one [--from NAME] [paths …]``.

A file that passes only after another one has run hides a dependency. The run prints one line per file and ends with the
number of files that failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NO_TESTS = 5
"""The exit code of pytest when it collected no test, as in a file of long tests only."""


def files_of(paths: list[Path]) -> list[Path]:
    """The test files below these paths, in the order of their names."""
    found = {file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py"))}
    return sorted(found)


def run(file: Path) -> tuple[bool, float, str]:
    """Whether the file passes, the seconds it took, and the last line or the whole output of a failure."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    passed = done.returncode in (0, NO_TESTS)
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()]
    return passed, time.monotonic() - began, lines[-1] if passed else done.stdout + done.stderr


def main() -> int:
    """Run them all; the exit code is 1 if a file failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "tests"])
    parser.add_argument(
        "--from", dest="first", default="", help="start at the first file whose path contains this"
    )
    given = parser.parse_args()
    files = files_of([path.resolve() for path in given.paths])
    if given.first:
        starts = [at for at, file in enumerate(files) if given.first in str(file)]
        files = files[starts[0] :] if starts else []
    failed = []
    for number, file in enumerate(files, start=1):
        passed, seconds, text = run(file)
        name = file.relative_to(ROOT)
        print(
            f"{number}/{len(files)} {name} {'passed' if passed else 'FAILED'} in {seconds:.1f} s: {text}",
            flush=True,
        )
        failed += [] if passed else [name]
    print(
        f"{len(files) - len(failed)} files passed, {len(failed)} failed{''.join(f'{chr(10)}  {name}' for name in failed)}"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
