"""Execution of the documentation's Python blocks and the package's doctests.

A block that cannot run has ``<!-- no-run: the reason -->`` on the line before it.
"""

from __future__ import annotations

import doctest
import importlib
import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from tests.docs.markdown import Block, blocks, pages

import tidemill

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(tidemill.__file__).resolve().parent
SECONDS = 300


def all_blocks() -> list[Block]:
    return [
        block
        for page in pages()
        for block in blocks(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"))
    ]


def run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block as a program in a folder; line numbers in tracebacks match the page."""
    program = folder / (re.sub(r"\W", "_", block.page) + ".py")
    program.write_text("\n" * (block.line - 1) + block.code, encoding="utf-8")
    environment = dict(os.environ, PYTHONPATH=str(PACKAGE.parent), PYTHONIOENCODING="utf-8")
    return subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )


def modules() -> list[str]:
    """The names of the modules with examples, found without importing them."""
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if ">>> " not in path.read_text(encoding="utf-8"):
            continue
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        names.append(".".join(parts))
    return names


BLOCKS = all_blocks()


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.no_run is None], ids=lambda block: f"{block.page}:{block.line}"
)
def test_a_block_in_the_documentation_runs(block: Block, tmp_path: Path) -> None:
    done = run(block, tmp_path)
    if done.returncode:
        pytest.fail(f"{block.page}:{block.line} does not run:\n{done.stdout}{done.stderr}", pytrace=False)


def test_there_are_blocks_to_run() -> None:
    assert [block for block in BLOCKS if block.no_run is None]


def test_a_skipped_block_has_a_reason() -> None:
    assert [f"{block.page}:{block.line}" for block in BLOCKS if block.no_run == ""] == []


@pytest.mark.parametrize("name", modules())
def test_the_doctests_of_a_module_pass(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] == "tidemill":
            raise
        pytest.skip(f"{name} needs {missing.name}, which is not installed here")
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    with redirect_stdout(said):
        outcome = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert outcome.attempted, f"{name} has no example that doctest finds"
    if outcome.failed:
        pytest.fail(
            f"{outcome.failed} of {outcome.attempted} examples fail:\n{said.getvalue()}", pytrace=False
        )


def test_modules_with_examples_are_found() -> None:
    assert {"tidemill.app", "tidemill.ids", "tidemill.domain.retry"} <= set(modules())


# ------------------------------------------------------------------------------------------- the block finder


def test_only_python_blocks_are_found_and_with_their_line() -> None:
    text = "# T\n\n```python\na = 1\n\nb = 2\n```\n\n```sh\nls\n```\n\n~~~py title='x'\nc = 3\n~~~\n"
    assert list(blocks("p.md", text)) == [
        Block("p.md", 4, "a = 1\n\nb = 2\n", None),
        Block("p.md", 14, "c = 3\n", None),
    ]


def test_a_block_in_a_list_or_a_note_is_dedented() -> None:
    text = "- so:\n\n    ```python\n    if a:\n        b()\n    ```\n"
    assert [block.code for block in blocks("p.md", text)] == ["if a:\n    b()\n"]


def test_a_fence_inside_a_longer_fence_is_text() -> None:
    assert list(blocks("p.md", "````markdown\n```python\na\n```\n````\n")) == []


@pytest.mark.parametrize(
    ("comment", "no_run"),
    [
        ("<!-- no-run: needs a server -->", "needs a server"),
        ("<!-- no-run: -->", ""),
        ("<!-- note -->", None),
        ("no-run: x", None),
    ],
)
@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_a_no_run_comment_skips_the_block_with_its_reason(comment: str, no_run: str | None, gap: str) -> None:
    assert [block.no_run for block in blocks("p.md", f"{comment}{gap}```python\na\n```\n")] == [no_run]


def test_a_no_run_comment_applies_to_one_block() -> None:
    text = "<!-- no-run: slow -->\n```python\na\n```\n\n```python\nb\n```\n"
    assert [block.no_run for block in blocks("p.md", text)] == ["slow", None]


def test_an_unclosed_block_is_rejected() -> None:
    with pytest.raises(AssertionError, match=r"p\.md:1: this block is never closed"):
        list(blocks("p.md", "```python\na = 1\n"))


def test_a_failing_block_reports_the_line_of_the_page(tmp_path: Path) -> None:
    done = run(Block("docs/p.md", 7, "import sys\nsys.exit(1 / 0)\n", None), tmp_path)
    assert done.returncode
    assert "line 8" in done.stderr
