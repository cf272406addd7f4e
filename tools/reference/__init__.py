"""Generators of the pages in ``docs/reference``: ``python -m tools.reference`` writes them.

Each page is a function of the code, and ``tests/docs/test_reference.py`` compares it with the file.
"""

from __future__ import annotations

from collections.abc import Callable

from tools.reference import api, cli, errors, http, settings
from tools.terminal import ROOT

FOLDER = ROOT / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "api.md": api.page,
    "errors.md": errors.page,
    "settings.md": settings.page,
    "cli.md": cli.page,
    "http.md": http.page,
}


def write() -> list[str]:
    """Write every page and return the names of those that changed."""
    changed = []
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(name)
    return changed
