"""House rules for names: modules are nouns, and a class name means one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
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


# Words ------------------------------------------------------------------------------------------------------------------

#: Words that no identifier contains: private metaphors, and words that do not say what the thing is.
BANNED = {"anew", "desk", "ear", "ears", "facts", "meanwhile", "mill", "said", "scribe", "tally", "visit"}

#: Words that hide what a thing is. No parameter, attribute, field or public function has one of them as its whole name.
VAGUE = {"each", "facts", "found", "kept", "known", "said", "whole"}

#: The public function ``tidemill.each``, which reads well where it is called: ``flow.map(load, row=each(rows.result))``.
PUBLIC_WORDS = {("src/tidemill/client/flows/node_jobs.py", "function", "each")}

#: The number of local variables with a vague name. It only goes down.
MOST_VAGUE_LOCALS = 345


def words_of(name: str) -> set[str]:
    return set(name.strip("_").lower().split("_"))


def names_of(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Each name that a node introduces, with its kind."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield "function", name
        case ast.ClassDef(name=name, body=body):
            yield "class", name
            for part in body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    yield "field", part.target.id
        case ast.arg(arg=name):
            yield "parameter", name
        case ast.Attribute(attr=name, ctx=ast.Store()):
            yield "attribute", name
        case ast.Name(id=name, ctx=ast.Store()):
            yield "variable", name


@cache
def names_in(folder: Path) -> tuple[tuple[str, str, str], ...]:
    """Place, kind and text of every name that is introduced below a folder."""
    return tuple(
        (f"{path.relative_to(SOURCE.parent)}:{getattr(node, 'lineno', 0)}", kind, name)
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for kind, name in names_of(node)
    )


def is_vague(kind: str, name: str) -> bool:
    if kind == "function" and name.startswith("_"):
        return False
    return kind != "variable" and name.strip("_").lower() in VAGUE


def test_vague_and_banned_words_are_recognised() -> None:
    tree = ast.parse("class A:\n  said: int\n  def found(self, _known): self._kept = facts_of = 1")
    names = [pair for node in ast.walk(tree) for pair in names_of(node)]
    assert {name for kind, name in names if is_vague(kind, name)} == {"said", "found", "_known", "_kept"}
    assert [name for _, name in names if words_of(name) & BANNED] == ["said", "said", "facts_of"]


def test_no_name_in_the_source_contains_a_banned_word() -> None:
    assert [f"{place} {name}" for place, _, name in names_in(SOURCE) if words_of(name) & BANNED] == []


def test_no_name_in_the_tests_contains_a_private_metaphor() -> None:
    metaphors = BANNED - {"facts", "said"}
    names = names_in(SOURCE.parent / "tests")
    found = [
        f"{place} {name}"
        for place, kind, name in names
        if words_of(name) & metaphors and not (kind == "function" and name.startswith("test_"))
    ]
    assert found == []


def test_no_signature_or_attribute_has_a_vague_name() -> None:
    vague = [
        f"{place} {name}"
        for place, kind, name in names_in(SOURCE)
        if is_vague(kind, name) and (place.rpartition(":")[0], kind, name) not in PUBLIC_WORDS
    ]
    assert vague == []


def test_local_variables_with_a_vague_name_only_become_fewer() -> None:
    number = sum(kind == "variable" and name in VAGUE for _, kind, name in names_in(SOURCE))
    assert number <= MOST_VAGUE_LOCALS
    assert number > MOST_VAGUE_LOCALS - 40, f"lower MOST_VAGUE_LOCALS to {number}"


def test_templates_name_the_items_of_a_loop() -> None:
    loops = re.compile(r"{%-?\s*for\s+(.+?)\s+in\b")
    templates = list((SOURCE / "tidemill" / "dashboard" / "templates").rglob("*.html"))
    assert len(templates) > 20
    names = {
        (path.name, word)
        for path in templates
        for variables in loops.findall(path.read_text(encoding="utf-8"))
        for word in re.findall(r"\w+", variables)
    }
    assert sorted(pair for pair in names if words_of(pair[1]) & (BANNED | VAGUE)) == []
