"""Suggestions for names, choices and verbs that do not exist, and short ids of archived jobs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from tests.interfaces.cli_kit import Shop, call, make_shop

from tidemill import Every
from tidemill.cli import commands
from tidemill.cli.suggestions import meant


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = make_shop(tmp_path)
    assert call("db", "migrate", "--store", made.url).exit_code == 0
    with made.app() as app:
        app.schedules.add("send", Every(timedelta(hours=1)), "nightly-report", args={"to": "ada"})
        app.definitions.save("weekly-letter", "send", args={"to": "ada"})
        app.limits.set("queue/mail", 5)
    return made


def completed(*words: str, incomplete: str = "") -> list[str]:
    items = ShellComplete(commands, {}, "tidemill", "_TIDEMILL_COMPLETE").get_completions(
        list(words), incomplete
    )
    return [item.value for item in items]


@pytest.mark.parametrize(
    ("words", "question"),
    [
        (("schedules", "pause", "nightly-reprt"), "there is no schedule 'nightly-reprt' here; did you mean 'nightly-report'?"),
        (("schedules", "show", "nightly"), "did you mean 'nightly-report'?"),
        (("definitions", "show", "weekly-leter"), "did you mean 'weekly-letter'?"),
        (("limits", "show", "queue/mial"), "there is no limit 'queue/mial'; did you mean 'queue/mail'?"),
        (("limits", "set", "queue/mial", "3"), "no task, worker or job uses queue 'mial'; did you mean 'mail'?"),
        (("limits", "set", "task/sned", "3"), "no task is named 'sned'; did you mean 'send'?"),
        (("limits", "set", "queue/later", "3"), "pass --new to set the limit before its first job"),
        (("config", "set", "worker_enabld", "false"), "did you mean 'worker_enabled'? --new allows a new key"),
        (("config", "set", "alerts.queue_dept", "9"), "did you mean 'alerts.queue_depth'?"),
        (("jobs", "list", "--status", "faild"), "did you mean 'failed'?"),
        (("flows", "list", "--status", "run"), "did you mean 'running'?"),
    ],
)  # fmt: skip
def test_a_misspelt_name_is_refused_with_the_name_that_was_meant(
    shop: Shop, words: tuple[str, ...], question: str
) -> None:
    done = shop.run(*words)
    assert done.exit_code == 2
    assert question in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_name_without_a_similar_one_gets_no_suggestion(shop: Shop) -> None:
    done = shop.run("schedules", "show", "xyzzy")
    assert done.exit_code == 2
    assert "did you mean" not in done.stderr


def test_new_names_are_accepted_with_new(shop: Shop) -> None:
    assert shop.run("limits", "set", "queue/mial", "3", "--new").exit_code == 0
    assert shop.run("limits", "set", "queue/mial", "4").exit_code == 0  # it exists now
    assert shop.run("config", "set", "worker_enabld", "x", "--new").exit_code == 0
    assert shop.run("config", "set", "worker_enabld", "y").exit_code == 0


def test_jobs_of_a_misspelt_tenant_are_explained(shop: Shop) -> None:
    with shop.app() as app, app.tenant("acme"):
        app.bound_task("send").enqueue(to="ada")
    assert "did you mean 'acme'?" in shop.run("jobs", "list", "--tenant", "acmee").stdout


def test_the_beginning_of_a_verb_suggests_the_verb() -> None:
    assert "Did you mean 'acknowledge'?" in call("alerts", "ack", "3").stderr
    assert "Did you mean 'reset-breaker'?" in call("limits", "reset", "x").stderr
    assert meant("re", ["retry", "rerun"]) is None


def test_an_archived_job_is_found_by_the_short_id_that_the_table_shows(shop: Shop) -> None:
    with shop.app() as app:
        jobs = [app.bound_task("send").enqueue(to="ada") for _ in range(2)]
        app.testing().drain()
        assert app.archive.run(older_than=0).archived == 2
    first, second = (str(job.id) for job in jobs)
    assert completed("archive", "restore", "--store", shop.url, incomplete=second[-12:-4]) == [second[-12:]]
    assert first in shop.run("jobs", "show", first[-12:]).stdout
    assert "completed" in shop.run("archive", "explain", first[-12:]).stdout
    assert shop.run("archive", "restore", first[-12:]).stdout.startswith("1 job restored")
    assert shop.run("archive", "restore", second).stdout.startswith("1 job restored")
    refused = shop.run("archive", "restore", "0123456789ab")
    assert refused.exit_code != 0
    assert "no job" in refused.stderr


def test_flows_settings_keys_and_errors_are_completed(shop: Shop) -> None:
    with shop.app() as app:
        flow = app.flow("orders")
        flow.add(app.bound_task("fail"), words="no")
        run = flow.start()
        app.testing().drain()
        key = app.keys.create("deploys", role="operator")
        group = app.stats.errors(tenant="*").rows[0].fingerprint
    app_of = ("--store", shop.url)
    assert completed("flows", "show", *app_of, incomplete=str(run.id)[-12:-3]) == [str(run.id)[-12:]]
    assert completed("config", "set", *app_of, incomplete="worker") == ["worker_enabled"]
    assert completed("keys", "revoke", *app_of) == [key.key.id]
    assert completed("errors", "show", *app_of) == [group[:8]]
