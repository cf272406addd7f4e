"""Edge cases of command line values: dates, repeated names and large numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, call, make_shop


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    return make_shop(tmp_path)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("jobs", "list", "--created-after", "9999999d"), "the longest duration is a hundred years"),
        (("jobs", "list", "--created-after", "0001-01-01T00:00+14:00"), "is not a timestamp"),
        (("jobs", "list", "--created-before", "9999-12-31T23:59-14:00"), "is not a timestamp"),
        (("jobs", "enqueue", "send", "to=a", "--at", "9999-12-31T23:59-14:00"), "is not a timestamp"),
        (("stats", "lag", "--window", "9999999d"), "the longest duration is a hundred years"),
        (("alerts", "--window", "9999999d"), "the longest duration is a hundred years"),
        (
            ("limits", "set", "queue/mail", "5", "--per", "9999999d"),
            "the longest duration is a hundred years",
        ),
        (
            ("schedules", "add", "k", "send", "--arg", "to=a", "--daily", "06:00", "--misfire", "all:²"),
            "all:100",
        ),
    ],
)
def test_a_date_or_duration_out_of_range_is_rejected_with_a_message(
    shop: Shop, words: tuple[str, ...], why: str
) -> None:
    done = shop.run(*words)
    assert done.exit_code == 2
    assert why in done.stderr
    assert "Traceback" not in done.output


def test_a_duration_of_zero_means_now(shop: Shop) -> None:
    made = shop.run("jobs", "enqueue", "send", "to=ann").stdout.strip()
    assert [job["id"] for job in shop.json("jobs", "list", "--created-before", "0s")["items"]] == [made]
    assert shop.json("jobs", "list", "--created-after", "0")["items"] == []


def test_a_repeated_name_is_processed_once(shop: Shop) -> None:
    made = shop.run("jobs", "enqueue", "send", "to=ann").stdout.strip()
    done = shop.json("jobs", "cancel", made, made)
    assert ([each["id"] for each in done["done"]], done["refused"]) == ([made], [])
    assert [each["name"] for each in shop.json("queues", "pause", "mail", "mail")] == ["mail"]
    assert shop.run("queues", "resume", "mail", "mail").stdout == "queue mail is resumed\n"


CHATTY = """
from tidemill import App, Context
from tidemill.domain.job import LogEntry

app = App({url!r})


@app.task
def chatter(ctx: Context, lines: int) -> None:
    at, job = app.store.now(), ctx.job
    app.store.log([LogEntry(job.id, job.token, at, f"line {{n}}", worker=job.worker) for n in range(lines)])
"""


def test_show_prints_the_last_log_lines_of_a_long_log(tmp_path: Path, shop: Shop) -> None:
    (tmp_path / "chatty.py").write_text(CHATTY.format(url=shop.url), encoding="utf-8")
    chatty = Shop("chatty", shop.url)
    made = chatty.run("jobs", "enqueue", "chatter", "lines=50021").stdout.strip()
    chatty.drain()
    lines = [each["message"] for each in chatty.json("jobs", "show", made)["logs"]]
    assert lines == [f"line {number}" for number in range(50001, 50021)]


def test_db_sql_rejects_an_invalid_url() -> None:
    done = call("db", "sql", "http://[")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "give postgres, sqlite or a store's URL" in done.stderr


def test_a_demo_that_cannot_create_its_folder_reports_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here first")
    done = call("demo", "--keep", str(tmp_path / "file" / "below"), "--no-browser", "--port", "0")
    assert done.exit_code == 2
    assert "cannot be created" in done.stderr
    assert "--keep" in done.stderr


def test_an_excessive_number_of_attempts_is_rejected(shop: Shop) -> None:
    done = shop.run("tasks", "set", "send", "--max-attempts", "1" + "0" * 30)
    assert done.exit_code == 2
    assert "10,000 are the most" in done.stderr
    assert json.loads(shop.run("tasks", "show", "send", "--json").stdout)["set"] == {}
    assert shop.run("tasks", "set", "send", "--max-attempts", "1").stdout == "task send: 1 attempt\n"


def test_an_unlimited_value_is_called_no_limit_everywhere(shop: Shop) -> None:
    assert shop.run("limits", "set", "queue/mail", "0").stdout.startswith("limit queue/mail is lifted")
    assert "no limit" in shop.run("limits", "list").stdout
    shown = shop.run("tasks", "show", "send").stdout
    assert "at a time    no limit" in shown
    assert (
        shop.run("tasks", "set", "send", "--max-concurrent", "0").stdout
        == "task send: no limit of jobs at a time\n"
    )


def test_without_a_terminal_a_confirmation_asks_for_the_yes_option(shop: Shop) -> None:
    made = shop.run("jobs", "enqueue", "send", "to=ann").stdout.strip()
    shop.run("schedules", "add", "nightly", "send", "--arg", "to=ann", "--daily", "06:00")
    for words in (("jobs", "cancel", "--task", "send"), ("schedules", "remove", "nightly")):
        done = shop.run(*words)
        assert done.exit_code == 2
        assert "pass --yes" in done.stderr
        assert shop.run(*words, input="n\n").exit_code == 1
    assert shop.json("jobs", "show", made)["status"] == "pending"
    assert [each["key"] for each in shop.json("schedules", "list")] == ["nightly"]
