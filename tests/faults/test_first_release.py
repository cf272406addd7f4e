"""The public API of the first release on the current code: its names, and the programs of its documentation.

Every deviation is listed here and in the changelog.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.markdown import blocks
from tests.faults import first_release, public_names
from tests.servers.processes import ServiceMissing
from tests.services import go_without

pytestmark = pytest.mark.nightly

TRIGGERS = ("Cron", "Daily", "Every", "Manual", "Monthly", "MonthlyBusinessDay", "Once", "Weekly")
GONE = {
    "Job.facts",
    "app.events.wanted",
    "Exponential.initial",
    "Linear.initial",
    *(f"{trigger}.{name}" for trigger in TRIGGERS for name in ("facts", "from_facts")),
}
"""Names that were renamed or removed. The keyword ``initial=`` is still accepted."""

PROGRAMS = {
    "docs/limits.md:65": "error.facts is error.details",
    "docs/limits.md:99": "Job.facts is Job.row",
    "docs/tutorial.md:62": "Job.facts is Job.row",
    "docs/operations.md:7": "the groups of stats.errors() have jobs instead of count",
    "docs/operations.md:87": "App(archive=…) is App(retention=…)",
    "docs/states.md:105": "it imports a private module; a pending job may be completed as a step of a flow",
    "docs/stores.md:92": "it imports a private module",
    "examples/patterns/chain_in_code.py": "Job.facts is Job.row",
    "examples/patterns/long_running.py": "Job.facts is Job.row",
    "examples/schedules/tenant_reports.py": "Job.facts is Job.row",
}
"""Programs of the documentation that no longer run, and why."""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the first release."""
    try:
        return first_release.unpack(tmp_path_factory.mktemp("first")).parent
    except ServiceMissing as missing:
        go_without("first-release", missing)


def test_every_public_name_and_parameter_still_exists(first: Path) -> None:
    program = str(Path(public_names.__file__))
    environment = {**os.environ, "PYTHONPATH": str(first / "src")}
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, env=environment, check=True
    )
    old, new = json.loads(done.stdout), public_names.public_names()
    assert old.keys() - new.keys() == GONE
    lost = {
        name: missing
        for name, parameters in old.items()
        if (missing := set(parameters) - set(new.get(name, parameters)))
    }
    assert lost == {}


def failing(program: Path, folder: Path, *arguments: str) -> bool:
    """Whether a program ends with an error."""
    done = subprocess.run(
        [sys.executable, str(program), *arguments], cwd=folder, capture_output=True, timeout=240, check=False
    )
    return done.returncode != 0


def test_the_programs_of_the_documentation_still_run(first: Path, tmp_path: Path) -> None:
    broken = set()
    pages = [first / "README.md", *sorted((first / "docs").glob("*.md"))]
    for page in pages:
        name = page.relative_to(first).as_posix()
        for block in blocks(name, page.read_text(encoding="utf-8")):
            place = tmp_path / f"{page.stem}-{block.line}"
            place.mkdir()
            program = place / "program.py"
            program.write_text(block.code, encoding="utf-8")
            if block.no_run is None and failing(program, place):
                broken.add(f"{block.page}:{block.line}")
    for folder in ("patterns", "schedules"):
        for example in sorted((first / "examples" / folder).glob("*.py")):
            if failing(example, tmp_path, "memory://"):
                broken.add(example.relative_to(first).as_posix())
    assert broken == PROGRAMS.keys()
