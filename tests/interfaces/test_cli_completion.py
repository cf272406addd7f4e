"""Shell completion: the names that are offered, and completion in real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import CompletionItem, ShellComplete
from tests.interfaces.cli_kit import Shop, make_shop
from tests.interfaces.pty_kit import on_terminal
from tests.servers.processes import ServiceMissing
from tests.services import go_without

from tidemill.cli import commands


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("TIDEMILL_APP", "TIDEMILL_STORE", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return make_shop(tmp_path)


def items(*words: str) -> list[CompletionItem]:
    """The completions that a shell offers for the last word."""
    offered = ShellComplete(commands, {}, "tidemill", "_TIDEMILL_COMPLETE")
    return offered.get_completions(list(words[:-1]), words[-1])


def completed(*words: str) -> list[str]:
    return [item.value for item in items(*words)]


def enqueued(shop: Shop, *words: str) -> str:
    return shop.run("jobs", "enqueue", *words).stdout.strip()


def test_ids_are_completed_by_their_end_as_tables_show_them_or_whole(shop: Shop) -> None:
    id = enqueued(shop, "send", "to=ann")
    store = ("--store", shop.url)
    assert completed("jobs", "show", *store, "") == [id[-12:]]
    assert completed("jobs", "show", *store, id[-12:-6]) == [id[-12:]]
    assert completed("jobs", "show", *store, id[:13]) == [id]
    assert [item.help for item in items("jobs", "show", *store, "")] == ["pending send"]
    assert completed("jobs", "list", *store, "--parent", "") == [id[-12:]]
    assert completed("jobs", "show", *store, "zz") == []


def test_an_action_offers_only_jobs_that_allow_it(shop: Shop) -> None:
    waiting = enqueued(shop, "send", "to=ann", "--delay", "1h")
    failed = enqueued(shop, "fail", "words=x")
    review = enqueued(shop, "look", "what=x")
    shop.drain()
    app = ("--app", shop.where)

    def offered(verb: str) -> list[str]:
        sys.modules.pop(shop.name, None)
        return completed("jobs", verb, *app, "")

    assert offered("retry") == [failed[-12:]]
    assert sorted(offered("cancel")) == sorted([waiting[-12:], review[-12:]])
    assert offered("approve") == [review[-12:]]
    assert offered("run-now") == [waiting[-12:]]
    assert offered("delete") == [failed[-12:]]
    assert sorted(offered("show")) == sorted([waiting[-12:], failed[-12:], review[-12:]])


def test_names_in_the_store_are_completed_without_an_app(shop: Shop) -> None:
    enqueued(shop, "send", "to=ann", "--tenant", "acme")
    store = ("--store", shop.url)
    assert completed("queues", "pause", *store, "m") == ["mail"]
    assert completed("tasks", "pause", *store, "s") == ["send"]
    assert completed("tenants", "pause", *store, "a") == ["acme"]
    assert completed("jobs", "list", *store, "--tenant", "") == ["acme"]
    assert completed("stats", "throu") == ["throughput"]


def test_an_app_argument_before_the_cursor_is_used(shop: Shop) -> None:
    assert completed("jobs", "list", shop.where, "--task", "s") == ["send"]


def test_an_app_that_prints_while_it_is_imported_does_not_disturb_completion(
    shop: Shop, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loud = tmp_path / "loud_shop.py"
    loud.write_text(f"print('hello')\nfrom {shop.name} import app\n", encoding="utf-8")
    assert completed("jobs", "list", "--app", "loud_shop:app", "--task", "s") == ["send"]
    assert capfd.readouterr().out == ""


# Real shells -----------------------------------------------------------------------------------------------------------


def shell_env(shop: Shop, folder: Path) -> dict[str, str]:
    """The environment of a shell that finds ``tidemill`` and the app."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    command = programs / "tidemill"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidemill "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
        "TIDEMILL_APP": shop.where,
        "HOME": str(folder),
        "PS1": "ready> ",
    }


def need(shell: str) -> str:
    """The path of a shell, or skip the test."""
    found = shutil.which(shell)
    if found is None:
        go_without(shell, ServiceMissing(f"{shell} is not installed"))
    return found


SHELLS = {
    "bash": (
        ["--norc", "--noprofile", "-i"],
        b'eval "$(_TIDEMILL_COMPLETE=bash_source tidemill)"; echo load""ed\n',
    ),
    "zsh": (
        ["-f", "-i"],
        b'autoload -U compinit; compinit -u; eval "$(_TIDEMILL_COMPLETE=zsh_source tidemill)"; echo load""ed\n',
    ),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_names_and_ids_in_bash_and_zsh(shell: str, shop: Shop, tmp_path: Path) -> None:
    program = need(shell)
    id = enqueued(shop, "send", "to=ann")
    options, loading = SHELLS[shell]
    with on_terminal([program, *options], "xterm", shell_env(shop, tmp_path)) as terminal:
        terminal.type(loading)
        terminal.until(b"loaded")
        terminal.type(b"tidemill queues pau\tma\t\n")
        terminal.until(b"queue mail is paused; running jobs continue")
        terminal.type(b"tidemill jobs cancel " + id[-12:-5].encode() + b"\t\n")
        terminal.until(id.encode() + b" cancelled")
        terminal.type(b"exit\n")
        terminal.ended()
    assert shop.json("jobs", "show", id)["status"] == "cancelled"


def test_fish_completes_names_and_ids_with_their_descriptions(shop: Shop, tmp_path: Path) -> None:
    program = need("fish")
    id = enqueued(shop, "send", "to=ann")
    script = "_TIDEMILL_COMPLETE=fish_source tidemill | source; " + "; ".join(
        f"complete -C 'tidemill {words}'"
        for words in ("queues pause m", "tasks show s", f"jobs cancel {id[-12:-5]}", "jobs cou")
    )
    done = subprocess.run(
        [program, "--no-config", "-c", script], env={**os.environ, **shell_env(shop, tmp_path)}, timeout=60,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["mail", "send", id[-12:], "count"]
    assert f"{id[-12:]}\tpending send" in lines
