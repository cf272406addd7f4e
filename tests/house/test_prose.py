"""The text in the repository is finished, and speaks of nobody's own machine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Put together from halves, so that this file does not contain what it looks for.
UNFINISHED = ["TO" + "DO", "FIX" + "ME", "XX" + "X"]
HOMES = ["/ro" + "ot/", "/ho" + "me/", "/Us" + "ers/", "C:\\Us" + "ers\\"]
FORBIDDEN = re.compile(
    r"\b(?:" + "|".join(UNFINISHED) + r")\b|(?<![\w.-])(?:" + "|".join(map(re.escape, HOMES)) + ")"
)


def tracked_files() -> Iterator[Path]:
    """What git tracks or would track; where there is no git (an unpacked sdist), everything but dot-folders."""
    ask = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        everything = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        listed = [str(p) for p in everything if not any(part.startswith(".") for part in p.parts[:-1])]
    yield from (path for name in listed if name and (path := ROOT / name).is_file())


def offences(text: str) -> list[str]:
    """Each line with something unfinished or private in it."""
    lines = enumerate(text.splitlines(), start=1)
    return [f"line {number}: {line.strip()[:80]}" for number, line in lines if FORBIDDEN.search(line)]


def test_the_search_finds_this_file() -> None:
    assert Path(__file__).resolve() in set(tracked_files())


def test_no_text_is_unfinished_or_names_a_home_folder() -> None:
    found = {}
    for path in tracked_files():
        content = path.read_bytes()
        if b"\0" not in content and (wrong := offences(content.decode("utf-8"))):
            found[path.relative_to(ROOT).as_posix()] = wrong
    assert found == {}


@pytest.mark.parametrize("word", UNFINISHED)
def test_an_unfinished_mark_is_refused(word: str) -> None:
    assert offences(f"x = 1  # {word}: later")
    assert offences(f"x = 1\n#{word}(me) later") == [f"line 2: #{word}(me) later"]


@pytest.mark.parametrize("home", HOMES)
def test_a_home_folder_is_refused(home: str) -> None:
    assert offences(f"see {home}someone/notes")
    assert offences(f'path = "{home}someone"')


@pytest.mark.parametrize(
    "text", ["mastodon", "the home page", "docs/home/index.html", "git rev-parse --show-toplevel"]
)
def test_ordinary_words_are_let_through(text: str) -> None:
    assert offences(text) == []
