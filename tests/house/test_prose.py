"""House rules for text: finished, free of private paths, and in plain English."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.house.prose import CATEGORIES, marker_of, measure, repository, sentences, shares

ROOT = Path(__file__).resolve().parents[2]

# Assembled from halves, so that this file does not match its own search.
UNFINISHED = ["TO" + "DO", "FIX" + "ME", "XX" + "X"]
HOMES = ["/ro" + "ot/", "/ho" + "me/", "/Us" + "ers/", "C:\\Us" + "ers\\"]
FORBIDDEN = re.compile(
    r"\b(?:" + "|".join(UNFINISHED) + r")\b|(?<![\w.-])(?:" + "|".join(map(re.escape, HOMES)) + ")"
)

# The share of sentences, in per cent, that may contain a marker of tests/house/prose.py. A ceiling only goes down.
CEILINGS = {"source": 0.2, "messages": 0.1, "docs": 0.4, "tests": 0.2}
SLACK = 0.5


def tracked_files() -> Iterator[Path]:
    """The files that git tracks or would track. Without git (an unpacked sdist): all files outside dot-folders."""
    ask = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        everything = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        listed = [str(p) for p in everything if not any(part.startswith(".") for part in p.parts[:-1])]
    yield from (path for name in listed if name and (path := ROOT / name).is_file())


def offences(text: str) -> list[str]:
    """The lines with an unfinished mark or a private path."""
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
def test_an_unfinished_mark_is_rejected(word: str) -> None:
    assert offences(f"x = 1  # {word}: later")
    assert offences(f"x = 1\n#{word}(me) later") == [f"line 2: #{word}(me) later"]


@pytest.mark.parametrize("home", HOMES)
def test_a_home_folder_is_rejected(home: str) -> None:
    assert offences(f"see {home}someone/notes")
    assert offences(f'path = "{home}someone"')


@pytest.mark.parametrize(
    "text", ["mastodon", "the home page", "docs/home/index.html", "git rev-parse --show-toplevel"]
)
def test_ordinary_words_are_accepted(text: str) -> None:
    assert offences(text) == []


def verdict(category: str, share: float, ceiling: float) -> str | None:
    """The complaint about a share above its ceiling, or so far below it that the ceiling must be lowered."""
    if share > ceiling:
        return (
            f"{category}: {share:.2f} % of the sentences are not plain English, the ceiling is {ceiling} %; "
            "list them with: python -m tests.house.prose [paths]"
        )
    if share < ceiling - SLACK:
        return f"{category}: only {share:.2f} % are left; lower the ceiling to {math.ceil(share * 10) / 10}"
    return None


def test_prose_stays_below_the_ceiling_of_its_category() -> None:
    measured = shares(measure(repository()))
    assert set(measured) == set(CATEGORIES) == set(CEILINGS)
    complaints = [verdict(category, measured[category], CEILINGS[category]) for category in CATEGORIES]
    assert [complaint for complaint in complaints if complaint] == []


@pytest.mark.parametrize(
    ("share", "complaint"),
    [(10.01, "10.01 % of the sentences"), (10.0, None), (9.5, None), (9.44, "lower the ceiling to 9.5")],
)
def test_a_ceiling_must_follow_the_measured_share(share: float, complaint: str | None) -> None:
    found = verdict("source", share, 10.0)
    assert (found is None) if complaint is None else (found is not None and complaint in found)


# The left column of the style guide's table of examples.
@pytest.mark.parametrize(
    "sentence",
    [
        "Who lost a job cannot write about it: every claim has a token, every write names it.",
        "What is late is said.",
        "Fires that nobody could make are made up for as you chose.",
        "Whoever enqueues beyond it gets an error, and nothing is enqueued.",
        "It is shown as it was a moment ago while it is asked anew.",
        "Beside that it looks for itself every five seconds.",
        "the pump stumbled and goes on",
        "Of a rate: so many at once, then evenly.",
        "Who works here.",
        "A list of nothing, or a word that nobody filled, no longer means every job.",
    ],
)
def test_archaic_and_riddling_sentences_are_marked(sentence: str) -> None:
    assert marker_of(sentence) is not None


@pytest.mark.parametrize(
    "sentence",
    [
        "A worker that has lost its lease can no longer update the job.",
        "Missed fires are recorded.",
        "Enqueueing beyond the limit raises an error and stores nothing.",
        "It also polls: every 5 s, or every 30 s while it receives the leader's ticks.",
        "unexpected error in the claim loop; continuing",
        "What happens to a job whose worker dies?",
        "This module describes the amendment.",
    ],
)
def test_plain_sentences_are_not_marked(sentence: str) -> None:
    assert marker_of(sentence) is None


def test_a_text_is_split_into_sentences_with_their_lines() -> None:
    text = "One sentence, over\ntwo lines. Another one\n\nA paragraph without `code. in` it."
    assert list(sentences(text, 7)) == [
        (7, "One sentence, over two lines."),
        (8, "Another one"),
        (10, "A paragraph without x it."),
    ]
