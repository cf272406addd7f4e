"""Purity of the domain: no I/O, clock, random numbers or logging."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOMAIN = ROOT / "src" / "tidemill" / "domain"

# The modules that the domain may import. All others are rejected, so a new impure module needs no rule.
PURE = {
    "__future__", "abc", "base64", "binascii", "bisect", "calendar", "collections", "collections.abc", "copy", "cronsim",
    "dataclasses", "datetime", "decimal", "enum", "fnmatch", "fractions", "functools", "hashlib", "heapq", "hmac", "ipaddress", "itertools",
    "json", "math", "operator", "re", "statistics", "string", "struct", "textwrap", "types", "typing", "urllib.parse", "uuid",
    "zoneinfo",
}  # fmt: skip
OURS = ("tidemill.domain", "tidemill.errors")

# Functions of the allowed modules that read the clock, random numbers or the machine, by attribute name.
READERS = {
    "now": {"datetime"},
    "utcnow": {"datetime"},
    "today": {"datetime", "date"},
    "uuid1": {"uuid"},
    "uuid4": {"uuid"},
    "uuid6": {"uuid"},
    "uuid7": {"uuid"},
    "getnode": {"uuid"},
}
BUILTINS = {"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint"}


def allowed(module: str) -> bool:
    """Whether the domain may import this module."""
    return module in PURE or any(module == room or module.startswith(room + ".") for room in OURS)


def impure_imports(node: ast.AST) -> Iterator[str]:
    """The forbidden modules in an import statement."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if not allowed(alias.name))
    elif isinstance(node, ast.ImportFrom):
        source = "." * node.level + (node.module or "")
        if source == "tidemill":
            yield from (f"tidemill.{a.name}" for a in node.names if not allowed(f"tidemill.{a.name}"))
        elif not allowed(source):
            yield source
        yield from (f"{source}.{alias.name}" for alias in node.names if source in READERS.get(alias.name, ()))


def impure_uses(node: ast.AST) -> Iterator[str]:
    """The impure functions that an expression names, whether called or passed on."""
    if isinstance(node, ast.Attribute):
        owner = ast.unparse(node.value)
        if owner.rpartition(".")[2] in READERS.get(node.attr, ()):
            yield f"{owner}.{node.attr}"
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in BUILTINS:
        yield node.id


def impurities(source: str) -> list[str]:
    """Everything in a module's source that depends on more than its arguments."""
    return [
        f"line {getattr(node, 'lineno', 0)}: {what}"
        for node in ast.walk(ast.parse(source))
        for what in (*impure_imports(node), *impure_uses(node))
    ]


def test_the_domain_has_modules_to_check() -> None:
    assert list(DOMAIN.rglob("*.py"))


def test_the_domain_depends_only_on_its_arguments() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): wrong
        for path in sorted(DOMAIN.rglob("*.py"))
        if (wrong := impurities(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "module",
    [
        "time", "random", "secrets", "os", "os.path", "sys", "logging", "threading", "asyncio", "socket", "pathlib",
        "subprocess", "sqlite3", "psycopg", "asyncpg", "tidemill.clock", "tidemill.stores.base", "tidemill.domains",
    ],
)  # fmt: skip
def test_an_impure_import_is_rejected(module: str) -> None:
    assert impurities(f"import {module}\n")
    assert impurities(f"def later():\n    from {module} import anything\n")


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import datetime\nx = datetime.now()",
        "from datetime import datetime, UTC\nx = datetime.now(UTC)",
        "import datetime\nx = datetime.datetime.utcnow()",
        "from datetime import datetime\nx = datetime.today()",
        "from datetime import date\nx = date.today()",
        "from dataclasses import field\nfrom datetime import datetime\nx = field(default_factory=datetime.now)",
        "import uuid\nx = uuid.uuid4()",
        "from uuid import uuid4",
        "open('x')",
        "def f(): print('x')",
        "f(print)",
        "from tidemill import clock",
        "from . import job",
    ],
)
def test_a_side_effect_or_a_clock_reading_is_rejected(source: str) -> None:
    assert impurities(source)


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import UTC, datetime, timedelta\nx = datetime(2030, 1, 1, tzinfo=UTC) + timedelta(days=1)",
        "def decide(job, now): return now + job.delay",
        "from tidemill.errors import BadSchedule",
        "from tidemill.domain import states",
        "import tidemill.domain.states",
        "from zoneinfo import ZoneInfo",
        "from uuid import UUID",
    ],
)
def test_pure_code_is_accepted(source: str) -> None:
    assert impurities(source) == []
