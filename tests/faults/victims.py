"""Processes that die where they are told to: one that has imported everything and forks the others, so that each death is cheap.

``python -m tests.faults.victims`` reads one order a line, has a child of its own carry it out, and says how that ended.
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


class Victims:
    """Starts the process for a block."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, act: Callable[..., None], *given: Any) -> int:
        """Do this in a process of its own; the code it ended with."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = base64.b64encode(pickle.dumps((act, given))).decode()
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.victims"],
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
    """Carry out orders until there are no more."""
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
