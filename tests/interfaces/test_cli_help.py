"""Help texts, suggestions, app arguments and shell completion of the CLI."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from tests.interfaces.cli_kit import Shop, call, make_shop

from tidemill import Cron
from tidemill.cli import COMMANDS, SECTIONS, commands
from tidemill.cli.groups import InOrder, summary

ODD = re.compile(
    r"\b(who|whoever|nobody|somebody|anew|told|said|aloud|so many|so long|by hand|goes? on|living)\b",
    re.I,
)


def every() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(commands)
    for name in commands.list_commands(context):
        command = commands.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {verb}", below) for verb, below in command.commands.items())


EVERY = dict(every())


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    return make_shop(tmp_path)


@pytest.mark.parametrize("name", EVERY)
def test_a_summary_is_one_short_sentence(name: str) -> None:
    said = summary(EVERY[name])
    assert said.endswith("."), said
    assert len(said) <= 64, said
    assert not ODD.search(said), said


@pytest.mark.parametrize("name", EVERY)
def test_every_option_is_explained_in_plain_words(name: str) -> None:
    for option in EVERY[name].params:
        if isinstance(option, click.Option):
            assert option.help, option.opts
            assert not ODD.search(option.help), option.help


@pytest.mark.parametrize(
    "name", [name for name, command in EVERY.items() if isinstance(command, click.Group)]
)
def test_a_group_shows_every_summary_in_full(name: str) -> None:
    group = EVERY[name]
    assert isinstance(group, InOrder)
    shown = " ".join(call(name, "--help").stdout.split())
    for verb, command in group.commands.items():
        assert f"{verb} {summary(command)}" in shown
    assert "..." not in shown.partition("Commands:")[2]


def test_commands_are_grouped_under_headings() -> None:
    shown = call("--help").stdout
    headings = re.findall(r"^(\w+):$", shown, flags=re.MULTILINE)
    assert headings == ["Options", *SECTIONS]
    assert set(COMMANDS) == {name for name in EVERY if " " not in name}
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("job", "jobs"), ("wroker", "worker"), ("shedules", "schedules"), ("dcotor", "doctor")],
)
def test_a_misspelt_command_gets_a_suggestion(typed: str, meant: str) -> None:
    done = call(typed, "list")
    assert done.exit_code == 2
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in done.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("jobs lst", "'list'"),
        ("schedules preveiw", "'preview'"),
        ("queues puase", "'pause'"),
        ("enqueue", "'queues' or 'jobs enqueue'"),
        ("backfill", "'schedules backfill'"),
    ],
)
def test_a_misspelt_verb_and_a_verb_without_its_group_get_a_suggestion(typed: str, meant: str) -> None:
    done = call(*typed.split())
    assert done.exit_code == 2
    assert f"Did you mean {meant}?" in done.stderr


def test_a_misspelt_option_or_report_gets_a_suggestion(shop: Shop) -> None:
    assert re.search("Did you mean.*'--status'", call("jobs", "list", "--statu", "failed").stderr)
    done = shop.run("stats", "throughputt")
    assert done.exit_code == 2
    assert "there is no report 'throughputt'; did you mean 'throughput'?" in done.stderr


def test_an_unrelated_verb_lists_those_of_the_group() -> None:
    assert "has list, pause, resume" in call("queues", "zzzzzz").stderr


def test_an_unrelated_word_gets_no_suggestion() -> None:
    assert "Did you mean" not in call("zzz").stderr


# The app -------------------------------------------------------------------------------------------------------------------


def test_an_app_is_an_argument_an_option_or_an_environment_variable(shop: Shop) -> None:
    for words, env in (
        (("tick", shop.where), {}),
        (("tick", "--app", shop.where), {}),
        (("tick",), {"TIDEMILL_APP": shop.where}),
        (("tick", shop.where), {"TIDEMILL_APP": "other:app"}),
        (("tick", shop.where, "--app", shop.where), {}),
        (("tasks", "check", "--app", shop.where), {}),
        (("jobs", "list", shop.where), {}),
        (("jobs", "list", "--app", shop.where), {}),
        (("jobs", "list", shop.where, "--status", "failed"), {"TIDEMILL_APP": "other:app"}),
        (("jobs", "list", shop.where), {"TIDEMILL_STORE": "sqlite:////nowhere/jobs.db"}),
        (("top", "--once", shop.where), {}),
        (("queues", "list", shop.where, "--app", shop.where), {}),
    ):
        sys.modules.pop(shop.name, None)
        done = call(*words, env=env)
        assert done.exit_code == 0, (words, done.output)


@pytest.mark.parametrize("words", [("tick",), ("jobs", "list"), ("top", "--once")])
def test_two_different_apps_are_rejected(shop: Shop, words: tuple[str, ...]) -> None:
    done = call(*words, shop.where, "--app", "other:app")
    assert done.exit_code == 2
    assert "two apps were given" in done.stderr


def test_an_app_and_a_store_are_rejected_together(shop: Shop) -> None:
    done = call("jobs", "list", shop.where, "--store", shop.url)
    assert done.exit_code == 2
    assert "give --app or --store, not both" in done.stderr


@pytest.mark.parametrize("name", EVERY)
def test_a_command_without_arguments_of_its_own_takes_the_app_as_an_argument(name: str) -> None:
    command = EVERY[name]
    options = {param.name for param in command.params if isinstance(param, click.Option)}
    arguments = [param.name for param in command.params if isinstance(param, click.Argument)]
    if not isinstance(command, click.Group) and options & {"app_name", "named"}:
        assert arguments, name


@pytest.mark.parametrize("name", ["worker", "up", "serve", "tick", "tasks check"])
def test_a_command_without_an_app_says_how_to_pass_it(name: str) -> None:
    done = call(*name.split())
    assert done.exit_code == 2
    assert f"Missing argument 'APP'; write tidemill {name} module:app" in done.stderr.replace(
        "commands", "tidemill"
    )


def test_a_command_without_a_store_says_how_to_pass_one() -> None:
    done = call("jobs", "list")
    assert done.exit_code == 2
    assert "pass --app module:app, or set TIDEMILL_APP or TIDEMILL_STORE" in done.stderr


# Completion ----------------------------------------------------------------------------------------------------------------


def completed(shop: Shop, *words: str) -> list[str]:
    """The completions that a shell offers for the last word; each shell starts a new process."""
    sys.modules.pop(shop.name, None)
    offered = ShellComplete(commands, {}, "tidemill", "_TIDEMILL_COMPLETE")
    return [item.value for item in offered.get_completions(list(words[:-1]), words[-1])]


def test_a_shell_completes_commands_options_tasks_and_queues(shop: Shop) -> None:
    assert completed(shop, "jo") == ["jobs"]
    assert completed(shop, "jobs", "en") == ["enqueue"]
    assert completed(shop, "jobs", "list", "--app", shop.where, "--task", "") == ["fail", "look", "send"]
    assert completed(shop, "jobs", "list", "--app", shop.where, "--queue", "m") == ["mail"]
    assert completed(shop, "jobs", "enqueue", "--app", shop.where, "se") == ["send"]


def test_a_shell_completes_schedules(shop: Shop) -> None:
    with shop.app() as app:
        for key in ("nightly", "noon", "weekly"):
            app.schedules.add("send", Cron("0 2 * * *"), key, args={"to": "ada"})
    sys.modules.pop(shop.name)
    assert completed(shop, "schedules", "show", "--app", shop.where, "n") == ["nightly", "noon"]
    assert completed(shop, "schedules", "pause", "--app", shop.where, "w") == ["weekly"]
    assert completed(shop, "tasks", "pause", "--app", shop.where, "se") == ["send"]
    assert completed(shop, "queues", "pause", "--app", shop.where, "m") == ["mail"]


def test_a_shell_completes_names_of_the_app_in_the_environment(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_APP", shop.where)
    assert completed(shop, "jobs", "list", "--task", "s") == ["send"]


def test_an_app_that_cannot_be_imported_completes_nothing(shop: Shop) -> None:
    assert completed(shop, "jobs", "list", "--app", "nothing_here:app", "--task", "") == []
    assert completed(shop, "jobs", "list", "--task", "") == []
