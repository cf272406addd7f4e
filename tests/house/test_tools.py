"""The contributor tools: standard library only, documented, and in step with the project file."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tools import tests as test_runs
from tools.commands import COMMANDS
from tools.environment import Environment
from tools.pythons import SUPPORTED
from tools.tests import parallel, run_again

ROOT = Path(__file__).resolve().parents[2]
BOOTSTRAP = [ROOT / "dev.py", *sorted((ROOT / "tools").glob("*.py"))]


@pytest.mark.parametrize("path", BOOTSTRAP, ids=lambda path: path.name)
def test_a_tool_needs_only_the_standard_library(path: Path) -> None:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    assert names - sys.stdlib_module_names <= {"tools"}


@pytest.mark.parametrize("name", ["dev.py", "tools/pythons.py", "tools/terminal.py"])
def test_an_old_python_can_parse_what_refuses_it(name: str) -> None:
    ast.parse((ROOT / name).read_text(encoding="utf-8"), feature_version=(3, 8))


def test_every_command_is_documented() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"python3 dev.py {command.run.__name__}" in text
        for flag in command.flags:
            assert flag in text, f"{command.run.__name__} {flag}"


def test_the_workflow_and_the_classifiers_name_every_supported_python() -> None:
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    matrix = re.search(r"python: \[(.*)\]", workflow)
    assert matrix is not None
    assert tuple(re.findall(r'"([\d.]+)"', matrix[1])) == SUPPORTED
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert tuple(named) == SUPPORTED


@pytest.mark.parametrize(
    "arguments", [["-k", "retry"], ["tests/a.py::test_b"], ["-n0"], ["--pdb"], ["--collect-only"]]
)
def test_a_small_run_stays_in_one_process(arguments: list[str]) -> None:
    assert parallel(arguments) == []


@pytest.mark.parametrize("arguments", [[], ["tests/domain"], ["-q", "-x"]])
def test_a_large_run_is_parallel(arguments: list[str]) -> None:
    assert parallel(arguments)[0] == "-n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["chek"], "invalid choice: 'chek'"),
        (["check", "--fast"], "unknown arguments: --fast"),
        (["bench", "nothing"], "unknown benchmark 'nothing'"),
        (["test", "--python", "2.7"], "Python 2.7 is not supported"),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_line(words: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "dev.py", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("failing", "outcome"), [("first", 0), ("every", 1)])
def test_a_failed_test_runs_once_more_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    failing: str,
    outcome: int,
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_one.py").write_text(
        "import pathlib\n"
        "RUNS = pathlib.Path(__file__).with_name('runs')\n"
        "def test_stable(): pass\n"
        "def test_other():\n"
        "    runs = RUNS.read_text() if RUNS.exists() else ''\n"
        "    RUNS.write_text(runs + 'x')\n"
        f"    assert runs and {failing == 'first'}\n"
    )
    monkeypatch.setattr(test_runs, "ROOT", tmp_path)
    env = Environment(None)
    env.python = Path(sys.executable)
    assert run_again(env, ["-p", "no:cov"], {}) == outcome
    output = capfd.readouterr().out
    assert "UNSTABLE OR BROKEN: 1 failed" in output
    assert "test_one.py::test_other" in output
    assert (tmp_path / "runs").read_text() == "xx"
