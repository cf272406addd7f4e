"""``dev.py changes``: changelog fragments and their release.

A fragment is a file ``changes/NAME.KIND.md`` with one line. A change gets a file of its own, so two branches never
conflict in the changelog.
"""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

from tools.terminal import ROOT, Stop

KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
FOLDER = ROOT / "changes"
CHANGELOG = ROOT / "CHANGELOG.md"
UNRELEASED = "## [Unreleased]\n"
_NAME = re.compile(rf"[a-z0-9][a-z0-9-]*\.({'|'.join(KINDS)})\.md")


def fragments(folder: Path = FOLDER) -> list[Path]:
    """The fragments in a folder, by name."""
    return sorted(path for path in folder.glob("*") if path.name != "README.md")


def mistake(path: Path) -> str | None:
    """The reason why a file is not a fragment, or None."""
    if not _NAME.fullmatch(path.name):
        return f"{path.name}: expected NAME.KIND.md with KIND one of {', '.join(KINDS)}"
    text = path.read_text(encoding="utf-8")
    if not text.strip() or text.strip().count("\n") or text.startswith(("-", "*", "#")):
        return f"{path.name}: expected one line of prose, without a bullet"
    return None


def collected(folder: Path = FOLDER) -> str:
    """The fragments as sections of the changelog, one for each kind."""
    found = fragments(folder)
    if wrong := [reason for path in found if (reason := mistake(path))]:
        raise Stop("; ".join(wrong))
    sections = []
    for kind in KINDS:
        lines = [path.read_text("utf-8").strip() for path in found if path.name.endswith(f".{kind}.md")]
        if lines:
            sections.append(f"### {kind.capitalize()}\n\n" + "".join(f"- {line}\n" for line in lines))
    return "\n".join(sections)


def released(changelog: str, sections: str, version: str, day: date) -> str:
    """The changelog with the unreleased part and these sections under a version."""
    before, found, unreleased = changelog.partition(UNRELEASED)
    if not found:
        raise Stop("CHANGELOG.md has no heading [Unreleased]")
    if f"## [{version}]" in changelog:
        raise Stop(f"CHANGELOG.md already has version {version}")
    current, mark, older = unreleased.partition("\n## [")
    body = "\n\n".join(part.strip() for part in (current, sections) if part.strip())
    return f"{before}{UNRELEASED}\n## [{version}] - {day.isoformat()}\n\n{body}\n{mark}{older}"


def release(version: str, day: date) -> int:
    """Move the fragments into the changelog under a version; return how many there were."""
    text = released(CHANGELOG.read_text(encoding="utf-8"), collected(), version, day)
    done = fragments()
    CHANGELOG.write_text(text, encoding="utf-8")
    for path in done:
        path.unlink()
    return len(done)
