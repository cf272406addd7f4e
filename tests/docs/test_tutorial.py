"""Execution of the tutorial, twice in one directory."""

from __future__ import annotations

import itertools
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.following import Command, Differs, File, Reader, Step, steps, tutorial

ROOT = Path(__file__).resolve().parents[2]
PAGES = tutorial()
PROGRAMS = Path(sysconfig.get_path("scripts"))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path, PROGRAMS)
    yield made
    made.close()


def test_the_tutorial_works_in_order_and_again_in_the_same_directory(reader: Reader) -> None:
    for _ in range(2):
        for page in PAGES:
            for step in steps(page):
                reader.follow(step)


def test_the_navigation_has_the_pages_of_the_tutorial_in_order() -> None:
    named = re.findall(r"tutorial/(\d\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), flags=re.MULTILINE)
    assert named == [page.name for page in PAGES]


def test_every_page_links_to_the_next() -> None:
    for page, following in itertools.pairwise(PAGES):
        assert page.read_text(encoding="utf-8").rstrip().endswith(f"]({following.name})."), page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_of_the_tutorial_shows_output(page: Path) -> None:
    commands = [part for step in steps(page) for part in step.parts if isinstance(part, Command)]
    assert commands
    assert all(
        command.output
        for command in commands
        if not command.words.startswith(("export", "touch", "rm", "^C"))
    )


# The page runner
# ---------------------------------------------------------------------------------------------------------


def one(words: str, output: str) -> Step:
    return Step("", [Command(1, words, output)])


def test_a_step_is_read_from_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '# T\n\n## 1. One\n\n```python title="a.py"\nprint(1)\n```\n\n```console\n$ python a.py\n1\n$ ls\na.py\n```\n'
        "\n## 2. Two\n\n```python\nnot = a_file\n```\n\n```console\n^C\n```\n"
    )
    assert steps(page) == [
        Step(
            "1. One",
            [File(5, "a.py", "print(1)\n"), Command(10, "python a.py", "1"), Command(12, "ls", "a.py")],
        ),
        Step("2. Two", [Command(23, "^C", "")]),
    ]


@pytest.mark.parametrize("output", ["2", "1\n2", "", "1 1"])
def test_output_that_differs_from_the_page_is_rejected(reader: Reader, output: str) -> None:
    with pytest.raises(Differs, match="line 1"):
        reader.follow(one("echo 1", output))


def test_an_ellipsis_matches_any_text(reader: Reader) -> None:
    reader.follow(one("printf 'a 17 b\\nx\\ny\\nend\\n'", "a … b\n…\nend"))


def test_ids_on_the_page_stand_for_the_printed_ones(reader: Reader) -> None:
    real, shown = "01a1e672-0000-7000-8000-00000a11ce01", "01a1eb90-dc25-7001-8238-03ce54c2aba9"
    reader.follow(one(f"echo {real}", shown))
    reader.follow(one(f"echo {shown}", shown))
    reader.follow(one("echo 03ce54c2aba9 | tr a-f A-F", "00000A11CE01"))
