"""A fork server for processes that die at a failpoint.

``python -m tests.faults.fork_server`` has imported everything, so that a fork is cheap. It reads one call per line, runs it in a
forked child, and prints the child's exit code.
"""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
Order = tuple[Callable[..., None], tuple[Any, ...]]


class ForkServer:
    """Runs the fork server for the length of a block."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, act: Callable[..., None], *given: Any) -> int:
        """Run a function in a forked process; return its exit code."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = base64.b64encode(pickle.dumps((act, given))).decode()
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.fork_server"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None


def serve() -> None:
    """Run calls until stdin is closed."""
    for line in sys.stdin:
        act, given = pickle.loads(base64.b64decode(line))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                act(*given)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
