"""Log files with one file per day, which several processes may write."""

from __future__ import annotations

import contextlib
import logging
import os
from datetime import date, datetime, timedelta
from pathlib import Path

KEEP = 14
"""Days for which the files of earlier days are kept."""


class DailyFileHandler(logging.Handler):
    """Writes records to a file of their day: ``worker.log`` becomes ``worker-2026-11-18.log``.

    The day is that of the local time zone. Nothing is ever renamed, and a record is one append, so all processes of a
    worker can write the same files. The first record of a day deletes files that are older than ``keep`` days.
    """

    def __init__(self, path: str | os.PathLike[str], *, keep: int = KEEP) -> None:
        super().__init__()
        if keep < 0:
            raise ValueError(f"keep is {keep}; give 0 or more days")
        self.path = Path(path).absolute()
        self.keep = keep
        self._day: date | None = None
        self._file = -1
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def emit(self, record: logging.LogRecord) -> None:
        """Append the record to the file of its day."""
        try:
            line = self.format(record) + "\n"
            day = datetime.fromtimestamp(record.created).date()  # noqa: DTZ006  (a local day)
            if day != self._day:
                self._open(day)
            os.write(self._file, line.encode("utf-8", "backslashreplace"))
        except Exception:  # noqa: BLE001  (logging must not fail the program)
            self.handleError(record)

    def _open(self, day: date) -> None:
        file = os.open(self.file_of(day), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        if self._file >= 0:
            os.close(self._file)
        self._file, self._day = file, day
        self._remove_before(day - timedelta(days=self.keep))

    def file_of(self, day: date) -> Path:
        """The file of one day."""
        return self.path.with_name(f"{self.path.stem}-{day.isoformat()}{self.path.suffix}")

    def _remove_before(self, first: date) -> None:
        for file in self.path.parent.glob(f"{self.path.stem}-????-??-??{self.path.suffix}"):
            middle = file.name[len(self.path.stem) + 1 :].removesuffix(self.path.suffix)
            with contextlib.suppress(ValueError, OSError):  # not a date, or another process was faster
                if date.fromisoformat(middle) < first:
                    file.unlink()

    def close(self) -> None:
        """Close the file."""
        with self.lock or contextlib.nullcontext():
            if self._file >= 0:
                os.close(self._file)
            self._file, self._day = -1, None
        super().close()
