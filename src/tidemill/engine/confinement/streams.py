"""The connection of a job in a container: standard input and output."""

from __future__ import annotations

import os


class PipePair:
    """Two pipes that behave like a connected socket."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target

    def fileno(self) -> int:
        """The descriptor to wait for; -1 once closed."""
        return self._source

    def sendall(self, data: bytes, /) -> None:
        """Write everything."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._target, rest) :]

    def recv(self, size: int, /) -> bytes:
        """Read up to ``size`` bytes; none at the end."""
        return os.read(self._source, size)

    def shutdown(self, how: int, /) -> None:
        """Close both pipes; a thread that reads keeps its own until the other end is closed."""
        self.close()

    def close(self) -> None:
        """Close both pipes. Closing twice is harmless."""
        source, target, self._source, self._target = self._source, self._target, -1, -1
        for number in (source, target):
            if number >= 0:
                os.close(number)


def standard_streams() -> PipePair:
    """Take standard input and output for messages. The output of jobs goes to standard error."""
    source, target = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return PipePair(source, target)
