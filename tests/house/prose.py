"""Measurement of English prose: ``python -m tests.house.prose [paths …]``.

Without paths the command reads the whole repository. It prints every marked sentence with its file and line, worst files
first, and ends with the share of marked sentences per category.
"""

from __future__ import annotations

import html
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CATEGORIES = ("source", "messages", "docs", "tests")

# One entry per habit of the old prose: its name, and the expression that finds it in a sentence.
# A marker must be rare in ordinary technical English. Check a new one against the source of httpx and click.
MARKERS = {
    # Words that the field does not use.
    "archaic word": r"anew|afresh|lest|shall|aloud|deeds?|meanwhile|for ever|for good|any more|thereby|therein|whence|ere"
    r"|aught|naught|to and fro|as it were|by heart|so many|ever since|of late|lately|in vain|all the same|just now"
    r"|made up for|as ever|and no other",
    "mend": r"mend(?:s|ed|ing)?",
    "beside": r"beside",
    "he": r"he|his|him|she|her|hers",
    "stand-in person": r"whoever|whosoever|nobody|no one|somebody|someone else|anybody|everybody|whomever",
    # Verbs of speech and thought with things as subjects.
    "told": r"(?:is|are|was|were|be|been|being|gets?|has|have|not|never) told|told (?:so|apart|of|by)",
    "said": r"(?:is|are|was|were|be|been|as|not|never) said|says? so|said so|it says",
    "hears": r"hears?|heard|overhears?",
    "speaks": r"speaks?|spoken",
    "believes": r"believes|believed|stumbl(?:e|es|ed)|forgets|remembers|learns|learnt|wishes|stands? still",
    "knows": r"knows? (?:of|nothing)|(?:is|are|was) known (?:of|by|to)",
    "goes on": r"go(?:es)? on|went on|gone on",
    # Private idioms.
    "idiom": r"in hand|at heart|let in|lets? (?:in|go|through)|stood|given back|gives? back|looks? for itself"
    r"|nothing is (?:lost|left|done|said|made)|its own (?:words?|doing)|its say",
    # Clauses that take the place of a noun.
    "riddle subject": r"^(?:what|who|that which|those who|he who)(?! (?:happens|to|is new))\b[^?]*$",
    "riddle clause": r"[;:] (?:what|who) (?:is|are|was|were|has|have|had|does|did|can|could|may|might|must|it|they|we)\b"
    r"|(?:and|but|by|with|for|than|beyond) (?:what|who) (?:is|are|was|were|has|have|had|does|did|it|they)\b",
    "inverted": r"^(?:so|neither|nor|never|only then|then) (?:is|are|was|were|do|does|did|has|have|may|can|must) ",
}
_NAMES = list(MARKERS)
MARKED = re.compile(
    "|".join(rf"(?P<m{place}>(?<!\w)(?:{pattern})(?!\w))" for place, pattern in enumerate(MARKERS.values())),
    re.IGNORECASE,
)

# A Python string or comment. Prefixes matter: raw strings are patterns, f-strings have holes.
_TOKEN = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r"|(?P<prefix>\b[rRbBfFuU]{1,2})?(?P<body>\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''"
    r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')",
    re.DOTALL,
)
_TEST_NAME = re.compile(r"^[ \t]*(?:async )?def test_(\w+)", re.MULTILINE)
_DIRECTIVE = re.compile(r"(?:noqa|type: ignore|pragma|fmt: (?:on|off)|mypy:|pyright:)[^(]*")
_SQL_HEADER = re.compile(r"^-- (?:takes|gives|items|serves|include): ")
_SQL_WORDS = re.compile(
    r"^\s*(?:select|insert|update|delete|create|alter|drop|with|pragma|begin|commit|set|explain|lock|union|values|where|and|or|from|order by|returning)\b"
)
_BREAK = re.compile(
    r"(?<=[.!?])[\"')\]*_`]*\s+(?=[\"'(\[*_`]*[A-Z`\d…])|\n\s*\n|\n\s*(?=[-*•] |\d+\. |:\w+ )"
)
_WORDS = re.compile(r"[A-Za-z][A-Za-z'’-]*")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence with its position and its marker."""

    category: str
    path: Path
    line: int
    text: str
    marker: str | None


def marker_of(sentence: str) -> str | None:
    """The name of the first marker in a sentence."""
    match = MARKED.search(sentence)
    return None if match is None else _NAMES[int(str(match.lastgroup)[1:])]


def sentences(text: str, line: int) -> Iterator[tuple[int, str]]:
    """The sentences of at least two words with their lines; code in backticks becomes ``x``."""
    start = 0
    for stop in [*_BREAK.finditer(text), None]:
        end = len(text) if stop is None else stop.start()
        part = text[start:end]
        plain = " ".join(re.sub(r"`+[^`]*`+", "x", part).split()).strip("#*-_• ")
        if len(_WORDS.findall(plain)) > 1:
            lead = len(part) - len(part.lstrip())
            yield line + text.count("\n", 0, start + lead), plain
        start = end if stop is None else stop.end()


class _Joined:
    """Adjacent texts that form one: lines of a comment, or adjacent string literals."""

    def __init__(self, category: str) -> None:
        self.category = category
        self.text = ""
        self.line = 0

    def add(self, text: str, line: int, *, continues: bool) -> Iterator[tuple[str, int, str]]:
        if not continues:
            yield from self.flush()
            self.line = line
        self.text += text

    def flush(self) -> Iterator[tuple[str, int, str]]:
        if self.text:
            yield self.category, self.line, self.text
        self.text = ""


def _python(text: str, category: str) -> Iterator[tuple[str, int, str]]:
    """The docstrings, comments and messages of a module, and the names of its tests as sentences."""
    comments, messages = _Joined(category), _Joined("messages")
    next_line, message_end = 0, -1
    for match in _TOKEN.finditer(text):
        start = match.start()
        line = text.count("\n", 0, start) + 1
        before = text[text.rfind("\n", 0, start) + 1 : start]
        if comment := match["comment"]:
            words = _DIRECTIVE.sub("", comment.lstrip("#:! ")) + "\n"
            yield from comments.add(words, line, continues=not before.strip() and line == next_line)
            next_line = 0 if before.strip() else line + 1
        elif _is_docstring(match["body"], before, text[max(start - 200, 0) : start]):
            yield category, line, _without_examples(match["body"][3:-3])
        elif category == "source" and not set((match["prefix"] or "").lower()) & set("rb"):
            words = _literal(match["body"], is_format=match["prefix"] is not None)
            continues = message_end >= 0 and not text[message_end:start].strip()
            yield from messages.add(words, line, continues=continues)
            message_end = match.end()
    yield from comments.flush()
    yield from messages.flush()
    if category == "tests":
        for match in _TEST_NAME.finditer(text):
            yield category, text.count("\n", 0, match.start()) + 1, match[1].replace("_", " ")


def _is_docstring(body: str, before: str, earlier: str) -> bool:
    """Whether a string is a statement: it begins its line, and the code before it does not continue."""
    return body.startswith(('"""', "'''")) and not before.strip() and earlier.rstrip()[-1:] not in {*"(,=[{+"}


def _literal(body: str, *, is_format: bool) -> str:
    """The words of a string literal; the replacement fields of an f-string become ``x``."""
    words = body.strip("'\"").replace("\\n", "\n").replace('\\"', '"')
    return re.sub(r"\{[^{}]*\}", "x", words) if is_format else words


def _without_examples(text: str) -> str:
    """A docstring without doctests; blank lines replace them to keep the line numbers."""
    kept, literal = [], False
    for row in text.split("\n"):
        if row.strip().startswith((">>>", "...")):
            literal = True
        elif literal and not row.strip():
            literal = False
        kept.append("" if literal else row)
    return "\n".join(kept)


def _is_message(text: str) -> bool:
    return len(_WORDS.findall(text)) > 2 and " " in text.strip() and not _SQL_WORDS.match(text)


def _sql(text: str) -> Iterator[tuple[str, int, str]]:
    """The comments of a query file without the machine-read headers."""
    block: list[str] = []
    first = 0
    for number, row in enumerate([*text.split("\n"), ""], start=1):
        is_prose = row.lstrip().startswith("--") and not _SQL_HEADER.match(row)
        if is_prose:
            first = first if block else number
            block.append(row.lstrip().removeprefix("--").strip())
        elif block:
            yield "source", first, re.sub(r"^\w+: ", "", "\n".join(block))
            block = []


def _template(text: str) -> Iterator[tuple[str, int, str]]:
    """The visible text of an HTML template."""
    for number, row in enumerate(text.split("\n"), start=1):
        titles = " ".join(re.findall(r"(?:title|aria-label|placeholder)=\"([^\"{}]*)\"", row))
        quoted = "\n\n".join(
            re.findall(r"\"([A-Z][^\"{}<>]* [^\"{}<>]*)\"", " ".join(re.findall(r"\{\{.*?\}\}", row)))
        )
        plain = re.sub(r"\{%.*?%\}", "\n\n", re.sub(r"\{#.*?#\}", "", row))
        plain = re.sub(
            r"<(?!/?(?:a|b|code|em|i|kbd|strong)\b)[^>]*>", "\n\n", re.sub(r"\{\{.*?\}\}", "x", plain)
        )
        plain = re.sub(r"<[^>]*>", "", plain)
        for part in (titles, quoted, html.unescape(plain)):
            yield "messages", number, part


def _markdown(text: str) -> Iterator[tuple[str, int, str]]:
    """The prose of a page without code blocks; each table cell is a separate text."""
    fenced = False
    rows = []
    for number, row in enumerate(text.split("\n"), start=1):
        is_fence = row.lstrip().startswith(("```", "~~~"))
        fenced ^= is_fence
        is_table = not fenced and row.lstrip().startswith("|")
        if is_table:
            yield from (("docs", number, cell) for cell in row.split("|"))
        rows.append("" if fenced or is_fence or is_table else row.lstrip("#> "))
    yield "docs", 1, re.sub(r"\]\([^)\s]*\)", "]", "\n".join(rows))


def read(path: Path, category: str) -> Iterator[Sentence]:
    """The sentences of one file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        texts = _python(text, category)
    elif path.suffix == ".sql":
        texts = _sql(text)
    elif path.suffix == ".html":
        texts = _template(text)
    else:
        texts = _markdown(text)
    for kind, first, block in texts:
        if kind == "messages" and path.suffix == ".py" and not _is_message(block):
            continue
        for line, sentence in sentences(block, first):
            yield Sentence(kind, path, line, sentence, marker_of(sentence))


def files(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """The files below these paths with the category of their comments.

    Migrations are left out, because their checksums are stored in databases and their text cannot change.
    """
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.suffix == ".md":
                yield file, "docs"
            elif file.suffix in {".py", ".sql", ".html"} and "migrations" not in file.parts:
                yield file, "tests" if (ROOT / "tests") in file.parents else "source"


def repository() -> list[Path]:
    """The measured part of the repository."""
    pages = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "changes", "docs")
    return [ROOT / "src", ROOT / "tests", ROOT / "tools", *(ROOT / page for page in pages)]


def measure(paths: Iterable[Path]) -> list[Sentence]:
    """Every sentence below these paths."""
    return [sentence for path, category in files(paths) for sentence in read(path, category)]


def shares(found: Iterable[Sentence]) -> dict[str, float]:
    """The percentage of marked sentences per category."""
    total: dict[str, int] = defaultdict(int)
    marked: dict[str, int] = defaultdict(int)
    for sentence in found:
        total[sentence.category] += 1
        marked[sentence.category] += sentence.marker is not None
    return {category: 100 * marked[category] / total[category] for category in CATEGORIES if total[category]}


def main(arguments: list[str]) -> None:
    """Print the marked sentences, worst files first, and the shares."""
    found = measure([Path(argument).resolve() for argument in arguments] or repository())
    by_file: dict[Path, list[Sentence]] = defaultdict(list)
    for sentence in found:
        if sentence.marker is not None:
            by_file[sentence.path].append(sentence)
    for path, marked in sorted(by_file.items(), key=lambda item: -len(item[1])):
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for sentence in sorted(marked, key=lambda s: s.line):
            print(f"{name}:{sentence.line}: [{sentence.marker}] {sentence.text}")
    for category, share in shares(found).items():
        total = sum(sentence.category == category for sentence in found)
        print(f"{category}: {share:.2f} % of {total} sentences")


if __name__ == "__main__":
    main(sys.argv[1:])
