"""Calls of a store in the web packages, which use the client instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tidemill"
FILES = sorted(file for package in ("web", "rest", "dashboard") for file in (SOURCE / package).rglob("*.py"))

STORES = {"store", "stores", "_store", "_stores"}
CLIENT = "_client"
SERVICE = SOURCE / "web" / "service.py"
"""The one module that takes the client out of the app."""


def violations(file: Path, source: str) -> Iterator[str]:
    """Yield the attributes and parameters that give access to a store, or to the private client of an app."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in STORES:
            yield f"{file.name}:{node.lineno} uses .{node.attr}"
        elif isinstance(node, ast.Attribute) and node.attr == CLIENT and file != SERVICE:
            yield f"{file.name}:{node.lineno} uses .{CLIENT}"
        elif isinstance(node, ast.arg) and node.arg in STORES:
            yield f"{file.name}:{node.lineno} takes {node.arg}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_web_module_calls_a_store(file: Path) -> None:
    assert list(violations(file, file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "rows = call.app.store.workers()",
        "await call.read(explain, call.app.store, row)",
        "job._client.store(None).logs(id)",
        "def look(store): ...",
    ],
)
def test_a_store_call_is_found(line: str) -> None:
    assert list(violations(SOURCE / "rest" / "bad.py", line))
