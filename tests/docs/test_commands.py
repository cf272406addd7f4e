"""Existence of every ``tidemill`` command in the documentation."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tidemill.cli import commands

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(sh|console|text|dockerfile|ini|yaml)\b.*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(tidemill [a-z][^`\n]*)`")


def typed(page: Path) -> Iterator[str]:
    """The commands on a page, each as one line."""
    text = page.read_text(encoding="utf-8")
    for _, block in _BLOCK.findall(text):
        for line in block.splitlines():
            array = re.search(r'\["tidemill".*\]', line)
            if array:
                yield shlex.join(json.loads(array[0]))
            elif found := re.match(r"(?:\$ |ExecStart=\S*/)?(tidemill [a-z].*)", line.strip()):
                yield found[1]
    yield from _INLINE.findall(text)


COMMANDS = sorted({(page.relative_to(ROOT).as_posix(), line) for page in PAGES for line in typed(page)})


def parse(line: str) -> None:
    """Parse a command line without running it; ``…`` and words in capitals are placeholders."""
    words = shlex.split(line.partition("  #")[0].partition(" | ")[0].partition(" > ")[0], comments=True)[1:]
    command: click.Command = commands
    context = click.Context(commands, info_name="tidemill")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if not words[0].islower():
            return  # a placeholder such as NAME
        found = command.get_command(context, words[0])
        assert found is not None, f"there is no command {words[0]!r}"
        command, words = found, words[1:]
    options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in options | {"--help", "--version"}, f"there is no option {word}"


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=lambda value: str(value)[:60])
def test_a_command_in_the_documentation_exists(page: str, line: str) -> None:
    parse(line)


def test_the_documentation_contains_commands() -> None:
    assert len(COMMANDS) > 100


@pytest.mark.parametrize(
    "line",
    [
        "tidemill job list",
        "tidemill jobs lst",
        "tidemill jobs list --stauts failed",
        "tidemill worker --prozesse 2",
    ],
)
def test_an_unknown_command_is_detected(line: str) -> None:
    with pytest.raises(AssertionError):
        parse(line)
