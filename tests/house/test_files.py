"""Files are short, are named for what they hold, and say what they are for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 400
SUFFIXES = {".py", ".sql", ".js", ".css", ".html"}
VAGUE = ("util", "helper", "manager")


def source_files() -> Iterator[Path]:
    """Every file that a person wrote and another person has to read."""
    yield ROOT / "dev.py"
    for part in ("src", "tests", "bench", "examples"):
        for path in sorted((ROOT / part).rglob("*")):
            if path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                yield path


def too_long(text: str) -> bool:
    """Whether a file is longer than a reader holds in mind."""
    return len(text.splitlines()) > LIMIT


def vague_name(path: Path) -> bool:
    """Whether a file's name says nothing about what is in it."""
    return any(word in path.stem.lower() for word in VAGUE)


def lacks_docstring(source: str) -> bool:
    """Whether a module does not begin by saying what it is for."""
    return not (ast.get_docstring(ast.parse(source)) or "").strip()


def named(paths: list[Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths]


def test_the_search_finds_this_file() -> None:
    assert Path(__file__).resolve() in set(source_files())


def test_no_file_is_longer_than_the_limit() -> None:
    assert named([path for path in source_files() if too_long(path.read_text(encoding="utf-8"))]) == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert named([path for path in source_files() if vague_name(path)]) == []


def test_every_module_of_the_package_says_what_it_is_for() -> None:
    modules = (ROOT / "src").rglob("*.py")
    assert named([path for path in modules if lacks_docstring(path.read_text(encoding="utf-8"))]) == []


@pytest.mark.parametrize(("lines", "verdict"), [(LIMIT, False), (LIMIT + 1, True)])
def test_a_file_is_too_long_from_the_first_line_over_the_limit(lines: int, verdict: bool) -> None:
    assert too_long("x = 1\n" * lines) is verdict


@pytest.mark.parametrize("name", ["utils.py", "job_helpers.py", "QueueManager.py", "sql_util.sql"])
def test_a_vague_file_name_is_refused(name: str) -> None:
    assert vague_name(Path(name))


@pytest.mark.parametrize(
    "source", ["", "x = 1\n", "# only a comment\n", "x = 1\n'''too late'''\n", "'''  '''\n"]
)
def test_a_module_that_does_not_begin_with_a_docstring_is_refused(source: str) -> None:
    assert lacks_docstring(source)
    assert not lacks_docstring('"""What it is for."""\n' + source)
