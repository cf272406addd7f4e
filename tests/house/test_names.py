"""House rules for names: modules are nouns, and a class name means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"

#: Words that end like a gerund or participle but are nouns, or the public name of a package.
NOUNS = {"testing", "setting", "settings", "string", "held_job", "embedded_worker"}

#: Each store implements the same contract with classes of the same names.
STORES = ("tidemill/stores/memory/", "tidemill/stores/sql/")


def modules() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if "__pycache__" not in path.parts]


def is_verbal(name: str) -> bool:
    """Whether the last word of a module's name is a gerund or participle."""
    word = name.rpartition("_")[2]
    return name not in NOUNS and word not in NOUNS and len(word) > 4 and word.endswith(("ing", "ed"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mending", True), ("looping", True), ("ruled", True), ("testing", False), ("feed", False)],
)
def test_verbal_names_are_recognised(name: str, expected: bool) -> None:
    assert is_verbal(name) is expected


def test_no_module_is_named_by_a_gerund_or_participle() -> None:
    names = {path.stem for path in modules()} | {path.parent.name for path in modules()}
    assert sorted(name for name in names if is_verbal(name)) == []


def test_a_public_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        where = path.relative_to(SOURCE).as_posix()
        if where.startswith(STORES) or "/conformance/" in where:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(where)
    assert len(places) > 400
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
