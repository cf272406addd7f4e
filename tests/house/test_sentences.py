"""Markdown pages have one sentence per line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.sentences import pages, reflow, split

ROOT = Path(__file__).resolve().parents[2]


def test_every_page_has_one_sentence_per_line() -> None:
    wrong = [
        page.relative_to(ROOT).as_posix()
        for page in pages()
        if reflow(text := page.read_text("utf-8")) != text
    ]
    assert wrong == [], "python3 dev.py check --fix rewrites them"


def test_the_search_finds_the_pages() -> None:
    names = {page.relative_to(ROOT).as_posix() for page in pages()}
    assert {"README.md", "docs/tasks.md", "docs/howto/deploy.md", "tests/README.md"} <= names
    assert "docs/reference/api.md" not in names


@pytest.mark.parametrize(
    ("paragraph", "sentences"),
    [
        ("One. Two.", ["One.", "Two."]),
        ("One: see `a. B`. `Two` is code.", ["One: see `a. B`.", "`Two` is code."]),
        ("**A rule.** It holds.", ["**A rule.**", "It holds."]),
        ("At 2.5 % of it, e.g. Monday.", ["At 2.5 % of it, e.g. Monday."]),
        ("One (see this. Or that). Two.", ["One (see this. Or that).", "Two."]),
        (
            "Really? Yes! [A link. With a dot](a.md) ends.",
            ["Really?", "Yes!", "[A link. With a dot](a.md) ends."],
        ),
    ],
)
def test_a_paragraph_is_split_into_sentences(paragraph: str, sentences: list[str]) -> None:
    assert split(paragraph) == sentences


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("One\nand two. Three.\n", "One and two.\nThree.\n"),
        ("- One. Two\n  goes on.\n- Three.\n", "- One.\n  Two goes on.\n- Three.\n"),
        ("1. One. Two.\n", "1. One.\n   Two.\n"),
        ("```sh\nOne. Two.\n```\n", "```sh\nOne. Two.\n```\n"),
        ("| One. Two. | x |\n", "| One. Two. | x |\n"),
        ("# One. Two.\n\n<!-- One. Two. -->\n", "# One. Two.\n\n<!-- One. Two. -->\n"),
    ],
)
def test_only_prose_is_reflowed(before: str, after: str) -> None:
    assert reflow(before) == after
    assert reflow(after) == after
