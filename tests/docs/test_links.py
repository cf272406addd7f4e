"""Targets of the links between the pages."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md", "changes/README.md")
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
]
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def slug(heading: str) -> str:
    """The anchor of a heading, as the documentation tool makes it.

    >>> slug("… deploy")
    'deploy'
    """
    text = re.sub(r"[`*]", "", heading)
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {slug(found) for found in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}


def broken(page: Path) -> list[str]:
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    wrong = []
    for link in _LINK.findall(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_no_broken_link(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_detected(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "# A page\n\n[x](b.md) [y](#nothing) [z](a.md#a-page) [w](https://x.example)\n"
    )
    assert broken(tmp_path / "a.md") == ["b.md", "#nothing"]


def test_every_page_is_in_the_navigation() -> None:
    named = set(
        re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert pages == named


def test_the_links_of_the_index_for_assistants_lead_to_pages() -> None:
    index = ROOT / "docs" / "llms.txt"
    links = re.findall(r"\]\(([^)]+)\)", index.read_text("utf-8"))
    assert len(links) > 20
    assert [link for link in links if not (index.parent / link).is_file()] == []


def test_the_index_for_assistants_names_every_guide_and_how_to() -> None:
    """Pages for those who work on Tidemill itself are not in it."""
    links = set(re.findall(r"\]\(([^)]+)\)", (ROOT / "docs" / "llms.txt").read_text("utf-8")))
    pages = {f"{page.parent.name}/{page.name}" for page in (ROOT / "docs" / "howto").glob("*.md")}
    pages |= {page.name for page in (ROOT / "docs").glob("*.md")}
    inner = {"architecture", "benchmarks", "features", "glossary", "index", "reliability", "simulation"}
    missing = pages - links - {f"{name}.md" for name in inner} - {"howto/index.md"}
    assert missing == set()
