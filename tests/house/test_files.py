"""Lengths, names and docstrings of the source files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 600
SUFFIXES = {".py", ".sql", ".js", ".css", ".html"}
VAGUE = ("util", "helper", "manager")


def source_files() -> Iterator[Path]:
    """All source files of the repository."""
    yield ROOT / "dev.py"
    for part in ("src", "tests", "tools", "bench", "examples"):
        for path in sorted((ROOT / part).rglob("*")):
            if path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                yield path


def too_long(text: str) -> bool:
    """Whether a file exceeds the maximum length."""
    return len(text.splitlines()) > LIMIT


def vague_name(path: Path) -> bool:
    """Whether a file name is too general to describe the content."""
    return any(word in path.stem.lower() for word in VAGUE)


def lacks_docstring(source: str) -> bool:
    """Whether a module has no docstring."""
    return not (ast.get_docstring(ast.parse(source)) or "").strip()


def named(paths: list[Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths]


def test_the_search_finds_this_file() -> None:
    assert Path(__file__).resolve() in set(source_files())


def test_no_file_is_longer_than_the_limit() -> None:
    assert named([path for path in source_files() if too_long(path.read_text(encoding="utf-8"))]) == []


def test_no_file_has_a_vague_name() -> None:
    assert named([path for path in source_files() if vague_name(path)]) == []


def test_every_module_of_the_package_has_a_docstring() -> None:
    modules = (ROOT / "src").rglob("*.py")
    assert named([path for path in modules if lacks_docstring(path.read_text(encoding="utf-8"))]) == []


@pytest.mark.parametrize(("lines", "verdict"), [(LIMIT, False), (LIMIT + 1, True)])
def test_a_file_is_too_long_from_the_first_line_over_the_limit(lines: int, verdict: bool) -> None:
    assert too_long("x = 1\n" * lines) is verdict


@pytest.mark.parametrize("name", ["utils.py", "job_helpers.py", "QueueManager.py", "sql_util.sql"])
def test_a_vague_file_name_is_rejected(name: str) -> None:
    assert vague_name(Path(name))


@pytest.mark.parametrize(
    "source", ["", "x = 1\n", "# only a comment\n", "x = 1\n'''too late'''\n", "'''  '''\n"]
)
def test_a_module_without_a_docstring_is_rejected(source: str) -> None:
    assert lacks_docstring(source)
    assert not lacks_docstring('"""What it is for."""\n' + source)
