"""Watcher of an app's source files for ``--reload``."""

from __future__ import annotations

import logging
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

_log = logging.getLogger("tidemill.worker")

POLL = 0.2
"""Seconds between two checks of the files."""


def source_files() -> list[str]:
    """Return the files of imported modules, without those of Python, installed packages and Tidemill."""
    installed = {
        Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    installed.add(Path(__file__).resolve().parents[2])
    found: set[Path] = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py"):
            path = Path(file).resolve()
            if not any(path.is_relative_to(place) for place in installed):
                found.add(path)
    return sorted(map(str, found))


class Reloader:
    """Polls the files on its own thread, and calls ``changed`` once a change is complete."""

    def __init__(self, changed: Callable[[], None], poll: float = POLL) -> None:
        self._changed, self._poll = changed, poll
        self._lock = threading.Lock()
        self._files: dict[str, object] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._live, name="tidemill-reload", daemon=True)

    def watch(self, files: Iterable[str]) -> None:
        """Watch these files from now on. Their current content counts as unchanged."""
        with self._lock:
            self._files = {file: self._files.get(file) or _stamp(file) for file in files}
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _live(self) -> None:
        pending = False
        while not self._closed.wait(self._poll):
            if changed := self._look():
                _log.info("%s changed; reloading the code", ", ".join(sorted(changed)[:5]))
                pending = True
            elif pending:
                # An editor or a checkout may write several files. Reload after the first poll without a change.
                pending = False
                self._changed()

    def _look(self) -> list[str]:
        with self._lock:
            now = {file: _stamp(file) for file in self._files}
            changed = [file for file, stamp in now.items() if stamp != self._files[file]]
            self._files = now
        return changed


def _stamp(file: str) -> object:
    """Return a value that differs after a change. It is None while the file is being replaced."""
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
