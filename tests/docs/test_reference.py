"""Freshness and completeness of the generated reference pages."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from tools.reference import FOLDER, PAGES, api, settings
from tools.reference.cli import walk
from tools.reference.internals import all_routes, commands

import tidemill
from tidemill import errors

ROOT = Path(__file__).resolve().parents[2]
WRITE = "python3 dev.py docs --write"


def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    if not (FOLDER / name).is_file() or text(name) != PAGES[name]():
        pytest.fail(f"docs/reference/{name} is stale; rewrite it with\n    {WRITE}", pytrace=False)


def test_every_page_of_the_folder_is_generated() -> None:
    assert {path.name for path in FOLDER.glob("*.md")} == set(PAGES)


def test_every_public_name_has_a_heading() -> None:
    headings = re.findall(r"^### (\w+)$", text("api.md"), flags=re.MULTILINE)
    assert sorted(headings) == sorted(tidemill.__all__)


def test_every_option_and_setting_is_documented() -> None:
    assert api.undocumented() == []
    assert settings.undocumented() == []


def test_every_error_code_is_listed() -> None:
    classes = [
        c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.TidemillError)
    ]
    codes = {c.code for c in classes} - {"tidemill_error"}
    assert codes <= set(re.findall(r"`([a-z_]+)`", text("errors.md")))


def test_every_command_has_a_section() -> None:
    leaves = [c.command_path for c, _ in walk(commands, click.Context(commands, info_name="tidemill"))]
    headings = re.findall(r"^## (?!Common)(.+)$", text("cli.md"), flags=re.MULTILINE)
    assert [f"tidemill {heading}" for heading in headings] == leaves
    assert "tidemill jobs retry" in leaves


def test_every_route_has_a_section() -> None:
    headings = re.findall(r"^### (.+)$", text("http.md"), flags=re.MULTILINE)
    assert sorted(headings) == sorted(f"{route.method} {route.shown_path}" for route in all_routes())


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("api.md", "on_conflict:"), ("api.md", "Exponential("), ("api.md", "`retry=3`"), ("api.md", "| `args_limit` |"),
        ("api.md", "Job.run_now("), ("errors.md", "| `BadArguments` | `bad_arguments` | 422 |"),
        ("errors.md", "| `StoreBusy` | `store_busy` | 503 |"), ("settings.md", "| `grace` | 25 s |"),
        ("settings.md", "| `alerts.queue_depth` | `100` |"), ("settings.md", "| `TIDEMILL_STORE` |"),
        ("cli.md", "--processes"), ("cli.md", "## jobs enqueue"), ("http.md", "| `args` | object |"),
    ],
)  # fmt: skip
def test_a_page_contains_frequently_used_entries(name: str, part: str) -> None:
    assert part in text(name)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_the_same_on_every_machine(name: str) -> None:
    assert not re.search(r"0x[0-9a-f]{6,}|<function|<class|Sentinel|ForwardRef", text(name))
    assert str(ROOT) not in text(name)


def test_the_comments_of_a_settings_class_are_read() -> None:
    found = settings.comments(tidemill.Thresholds)
    assert found["queue_depth"] == "jobs that wait in one queue"
    assert "not evaluated" in found["failure_sample"]
