"""Runner of Markdown pages: saves files, runs commands, compares output.

A fenced block with ``title="NAME"`` is a file to save. A ``console`` block contains commands after ``$``, each
followed by its expected output. There, ``…`` matches any text within a line, and ``…`` on its own line matches any
number of lines. Job ids differ between runs: an id on the page stands for the id that was printed, also in later
commands. ``tidemill worker`` and ``tidemill up`` keep running in the background until a block contains ``^C``.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

SECONDS = 180
ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?=\w*[0-9])(?=\w*[a-f])[0-9a-f]{12}\b")
_FENCE = re.compile(r"^```(\w*)(.*)$")
_TITLE = re.compile(r'title="([^"]+)"')


class File(NamedTuple):
    """A file to save."""

    line: int
    name: str
    text: str


class Command(NamedTuple):
    """A command and its expected output; ``^C`` interrupts the program in the background."""

    line: int
    words: str
    output: str


class Step(NamedTuple):
    """The files and commands under one heading."""

    heading: str
    parts: list[File | Command]


def tutorial() -> list[Path]:
    """The pages of the tutorial in order; the index has no commands."""
    folder = Path(__file__).resolve().parents[2] / "docs" / "tutorial"
    return sorted(folder.glob("[0-9]*.md"))


def steps(page: Path) -> list[Step]:
    """The files and commands of a page, in order."""
    found = [Step("", [])]
    fence, info, start, held = "", "", 0, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if fence:
            if line != "```":
                held.append(line)
                continue
            title = _TITLE.search(info)
            if title:
                found[-1].parts.append(File(start, title[1], "\n".join(held) + "\n"))
            elif fence == "console":
                found[-1].parts.extend(_commands(start, held))
            fence, held = "", []
        elif opening := _FENCE.match(line):
            fence, info, start = opening[1] or "text", opening[2], number
        elif line.startswith(("# ", "## ")):
            found.append(Step(line.lstrip("# "), []))
    return [step for step in found if step.parts]


def _commands(start: int, lines: list[str]) -> Iterator[Command]:
    words, line, output = "", start, list[str]()
    for number, text in enumerate(lines, start=start + 1):
        if text.startswith("$ ") or text == "^C":
            if words:
                yield Command(line, words, "\n".join(output))
            words, line, output = text.removeprefix("$ "), number, []
        else:
            output.append(text)
    if words:
        yield Command(line, words, "\n".join(output))


class Differs(AssertionError):
    """A command failed, or its output differs from the page."""


class Reader:
    """Executes a page in one directory, with the programs of one environment."""

    def __init__(self, folder: Path, programs: Path, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._environment = {**(os.environ if environment is None else environment), "COLUMNS": "120"}
        for name in ("TIDEMILL_APP", "TIDEMILL_STORE", "FORCE_COLOR", "PYTEST_ADDOPTS"):
            self._environment.pop(name, None)
        self._environment["PATH"] = f"{programs}{os.pathsep}{self._environment.get('PATH', '')}"
        # files change within a second, which cached bytecode would miss
        self._environment["PYTHONDONTWRITEBYTECODE"] = "1"
        self._ids: dict[str, str] = {}
        self._running: subprocess.Popen[str] | None = None
        self._log = folder / ".running.log"

    def follow(self, step: Step) -> None:
        """Execute everything in a step."""
        for part in step.parts:
            if isinstance(part, File):
                (self._folder / part.name).write_text(part.text, encoding="utf-8")
            else:
                self._type(part)

    def close(self) -> None:
        """Kill the program in the background, if there is one."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None

    def _type(self, command: Command) -> None:
        words = command.words
        for shown, real in self._ids.items():
            words = words.replace(shown, real)
        if words == "^C":
            self._interrupt(command)
        elif words.startswith("export "):
            name, _, value = words.removeprefix("export ").partition("=")
            self._environment[name] = value
        elif re.match(r"tidemill (worker|up)\b", words):
            self._start(command, words)
        else:
            done = subprocess.run(
                words, shell=True, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", timeout=SECONDS, check=False,
            )  # fmt: skip
            if not self._matches(command.output, done.stdout):
                raise Differs(
                    f"line {command.line}: {words}\nprints:\n{done.stdout}\ninstead of:\n{command.output}"
                )

    def _start(self, command: Command, words: str) -> None:
        assert self._running is None, "one program at a time keeps running"
        typed = shlex.split(words)
        if typed[1] == "up":
            typed += ["--port", str(_free_port())]  # the port on the page may be in use here
        with self._log.open("w", encoding="utf-8") as into:
            self._running = subprocess.Popen(
                typed, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL,
                stdout=into, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            )  # fmt: skip
        self._await(command)

    def _interrupt(self, command: Command) -> None:
        assert self._running is not None, "nothing is running"
        self._running.send_signal(signal.SIGINT)
        code = self._running.wait(SECONDS)
        self._running = None
        if code not in (0, 130):
            raise Differs(f"line {command.line}: Ctrl-C ends with exit code {code}:\n{self._log.read_text()}")

    def _await(self, command: Command) -> None:
        """Wait until the program in the background has printed the expected output."""
        until = time.monotonic() + SECONDS
        while True:
            printed = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8080", self._log.read_text(encoding="utf-8"))
            if self._matches(f"{command.output}\n…", printed):
                return
            ended = self._running is not None and self._running.poll() is not None
            if ended or time.monotonic() > until:
                raise Differs(
                    f"line {command.line}: {command.words}\nprints:\n{printed}\ninstead of:\n{command.output}"
                )
            time.sleep(0.1)

    def _matches(self, expected: str, printed: str) -> bool:
        """Whether the output matches; if so, map the ids on the page to the printed ones."""
        shown: list[str] = []
        text = printed.rstrip()
        found = re.fullmatch(_pattern(expected, shown), f"{text}\n" if text else "")
        if found is None:
            return False
        for name, real in zip(shown, found.groups(), strict=True):
            self._ids[name] = real
            self._ids[name[-12:]] = real[-12:]
        return True


def _pattern(expected: str, shown: list[str]) -> str:
    """The expected output as a regular expression with a group for each id."""
    pattern = ""
    for line in expected.splitlines():
        if line.strip() == "…":
            pattern += r"(?:.*\n)*"
            continue
        position = 0
        for id in ID.finditer(line):
            pattern += _loose(line[position : id.start()]) + (
                r"([0-9a-f-]{36})" if "-" in id[0] else r"([0-9a-f]{12})"
            )
            shown.append(id[0])
            position = id.end()
        pattern += _loose(line[position:]) + r"[ ]*\n"
    return pattern


def _loose(text: str) -> str:
    """A pattern in which ``…`` matches any text, and spaces match one or more spaces."""
    return re.sub(r"(?:\\ )+", " +", re.escape(text)).replace("…", ".*")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
