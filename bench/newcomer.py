"""How long a newcomer takes: a fresh environment, the README's first job and every step of the tutorial.

    python3 dev.py bench newcomer [--keep]

It makes a virtual environment in a temporary directory, installs this checkout there with pip, runs the README's first
example as written and follows the tutorial in order. Nothing but the README and the tutorial says what to do. It prints the
seconds of each step; reading and typing are not included.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.docs.following import Reader, Step, steps, tutorial  # noqa: E402  (the checkout's own)


def readme_example() -> str:
    """The file that the README tells its reader to save as ``shop.py``."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("Save this as `shop.py`")[2]
    found = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None, "the README has no first example"
    return found[1]


def main() -> None:
    """Take every step and print how long it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", action="store_true", help="keep the directory")
    keep = parser.parse_args().keep
    folder = Path(tempfile.mkdtemp(prefix="tidemill-newcomer-"))
    programs = folder / ".venv" / ("Scripts" if os.name == "nt" else "bin")
    total = 0.0

    def timed(name: str, act: Callable[[], object]) -> None:
        nonlocal total
        began = time.perf_counter()
        act()
        took = time.perf_counter() - began
        total += took
        print(f"{took:8.1f} s  {name}", flush=True)

    def run(*words: str) -> None:
        subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)

    def first_job() -> None:
        (folder / "shop.py").write_text(readme_example(), encoding="utf-8")
        said = subprocess.run(
            [programs / "python", "shop.py"], cwd=folder, check=True, capture_output=True, text=True
        ).stdout
        assert "receipt of order 1 sent to ada@example.com" in said, said

    reader = Reader(folder, programs)

    def follow(step: Step) -> Callable[[], None]:
        return lambda: reader.follow(step)

    try:
        timed("make a virtual environment", lambda: venv.create(folder / ".venv", with_pip=True))
        timed(
            "pip install '.[server]'", lambda: run(str(programs / "pip"), "install", "-q", f"{ROOT}[server]")
        )
        timed("README: the first job", first_job)
        timed("pip install pytest", lambda: run(str(programs / "pip"), "install", "-q", "pytest"))
        for step in (step for page in tutorial() for step in steps(page)):
            timed(f"tutorial: {step.heading}", follow(step))
        print(f"{total:8.1f} s  in all")
    finally:
        reader.close()
        if keep:
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
