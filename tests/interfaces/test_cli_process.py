"""The CLI as a process: lazy imports, Ctrl-C and PostgreSQL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interfaces.cli_kit import call, make_shop

from tidemill import cli

pytestmark = pytest.mark.long


def start(*words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tidemill", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_without_store_and_app_the_error_is_one_line_and_exit_code_2() -> None:
    for words in (("jobs", "list"), ("stats",), ("doctor",), ("leases", "list"), ("db", "status")):
        done = call(*words)
        assert done.exit_code == 2
        (line,) = done.output.splitlines()
        assert "Missing option '--app' or '--store'" in line


def test_help_names_every_command_and_imports_none() -> None:
    program = (
        "import sys; from click.testing import CliRunner; from tidemill.cli import commands;"
        "said = CliRunner().invoke(commands, ['--help']).output; print(said);"
        "print([name for name in sys.modules if name.startswith(('tidemill.cli.', 'rich'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    *_, modules = done.stdout.splitlines()
    assert modules == "[]"
    for name in ("jobs", "tasks", "queues", "workers", "leases", "stats", "top", "doctor", "db"):
        assert f"\n  {name} " in done.stdout


def test_a_command_without_a_module_is_not_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "absent", "Not written.")
    said = call("--help")
    assert said.exit_code == 0
    assert "absent" not in said.stdout
    assert call("absent").exit_code == 2


@pytest.mark.parametrize("group", ["jobs", "tasks", "queues", "tenants", "workers", "leases", "db"])
def test_every_verb_has_the_common_options(group: str) -> None:
    command = cli.commands.get_command(None, group)  # type: ignore[arg-type]
    verbs = getattr(command, "commands", {})
    assert verbs
    for name, verb in verbs.items():
        options = {option for parameter in verb.params for option in parameter.opts}
        assert (group, name) == ("db", "sql") or {"--json", "--app", "--store"} <= options


def test_ctrl_c_ends_a_watch_quietly(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    place = {"PYTHONPATH": str(tmp_path), "TIDEMILL_APP": shop.where}
    code, id, _ = ended(start("jobs", "enqueue", "send", "to=ann", **place))
    assert code == 0
    with start("jobs", "watch", id.strip(), **place) as watching:
        assert watching.stdout is not None
        assert "pending" in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        code, _, err = ended(watching)
    assert code == cli.INTERRUPTED
    assert err == ""


def test_ctrl_c_ends_top_quietly(tmp_path: Path) -> None:
    with start("top", "--json", "--every", "0.1", "--store", f"sqlite:///{tmp_path}/jobs.db") as top:
        assert top.stdout is not None
        frames = [json.loads(top.stdout.readline()) for _ in range(2)]
        top.send_signal(signal.SIGINT)
        code, _, err = ended(top)
    assert frames[0]["counts"] == {}
    assert (code, err) == (0, "")


@pytest.mark.long
def test_the_commands_work_on_postgresql(fresh_postgres_url: str, tmp_path: Path) -> None:
    shop = make_shop(tmp_path, fresh_postgres_url)
    place = {"PYTHONPATH": str(tmp_path), "TIDEMILL_APP": shop.where}
    code, _, err = ended(start("stats", **place))
    assert code == 1
    assert "tidemill db migrate" in err
    assert "Traceback" not in err
    assert ended(start("db", "migrate", **place))[0] == 0
    code, id, err = ended(start("jobs", "enqueue", "send", "to=ann", "--tag", "x", **place))
    assert code == 0, err
    code, out, _ = ended(start("jobs", "why", id.strip(), "--json", **place))
    assert [reason["code"] for reason in json.loads(out)["reasons"]] == ["no_workers"]
    code, out, _ = ended(start("jobs", "list", "--tag", "x", "--created-after", "1h", "--json", **place))
    assert [job["id"] for job in json.loads(out)["items"]] == [id.strip()]
    code, out, _ = ended(start("jobs", "cancel", "--task", "send", "--yes", "--json", **place))
    assert json.loads(out) == {"done": 1, "skipped": 0}
    assert json.loads(ended(start("stats", "--json", **place))[1])["counts"] == {"cancelled": 1}
    assert ended(start("top", "--once", **place))[0] == 0
