"""Job ids on the command line: prefixes, suffixes and short forms."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, call, make_shop, terminal


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    return make_shop(tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def any_shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    if request.param == "sqlite":
        return make_shop(tmp_path)
    made = make_shop(tmp_path, request.getfixturevalue("fresh_postgres_url"))
    assert call("db", "migrate", "--store", made.url).exit_code == 0
    return made


def enqueued(shop: Shop, *words: str) -> str:
    return shop.run("jobs", "enqueue", *words).stdout.strip()


def test_every_command_with_an_id_takes_a_suffix_or_a_prefix(any_shop: Shop) -> None:
    shop = any_shop
    id = enqueued(shop, "send", "to=ann", "--delay", "1h")
    for text in (id[-6:], id[-12:], id[:30], id[:23], id.upper()):
        assert shop.json("jobs", "show", text)["id"] == id, text
        assert shop.json("jobs", "why", text)["id"] == id
    assert shop.run("jobs", "logs", id[-12:]).stdout == "no log lines\n"
    assert shop.json("jobs", "reschedule", id[-12:], "--in", "2h")["done"] == [
        {"id": id, "status": "scheduled"}
    ]
    assert shop.json("jobs", "run-now", id[-12:])["done"] == [{"id": id, "status": "pending"}]
    assert shop.json("jobs", "cancel", id[-12:])["done"] == [{"id": id, "status": "cancelled"}]
    assert shop.json("jobs", "retry", id[-12:])["done"] == [{"id": id, "status": "pending"}]
    shop.drain()
    assert shop.run("jobs", "watch", id[-12:]).exit_code == 0
    assert shop.json("jobs", "list", "--parent", id[-12:])["items"] == []
    assert shop.json("jobs", "delete", id[-12:])["done"] == [{"id": id, "status": "deleted"}]
    for verb in ("approve", "reject", "rerun"):
        review = enqueued(shop, "look", "what=x")
        shop.drain()
        assert [each["id"] for each in shop.json("jobs", verb, review[-12:])["done"]] == [review]


def test_an_ambiguous_id_is_rejected_with_the_candidates_and_changes_nothing(shop: Shop) -> None:
    ids = [enqueued(shop, "send", f"to={name}") for name in ("ann", "bob")]
    done = shop.run("jobs", "cancel", ids[0][-12:], ids[0][:6])
    assert done.exit_code == 2
    assert "matches several jobs; give more characters" in done.stderr
    assert all(id in done.stderr for id in ids)
    assert shop.json("jobs", "count")["counts"] == {"pending": 2}


def test_an_unknown_id_does_not_stop_the_others(shop: Shop) -> None:
    id = enqueued(shop, "send", "to=ann")
    done = shop.run("jobs", "cancel", "ffffffff", id[-12:], "--json")
    assert done.exit_code == 1
    said = json.loads(done.stdout)
    assert [each["id"] for each in said["done"]] == [id]
    assert [each["id"] for each in said["refused"]] == ["ffffffff"]


def test_a_job_that_is_named_twice_is_acted_on_once(shop: Shop) -> None:
    id = enqueued(shop, "send", "to=ann")
    assert [each["id"] for each in shop.json("jobs", "cancel", id, id[-12:])["done"]] == [id]


# Tables --------------------------------------------------------------------------------------------------------------------


def listed(shop: Shop, columns: int, *words: str) -> list[str]:
    said = shop.run("jobs", "list", *words, env=terminal(columns, NO_COLOR="1")).stdout
    return re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines()


def test_at_80_columns_ids_are_short_and_failed_jobs_keep_their_reason(shop: Shop) -> None:
    id = enqueued(shop, "fail", "words=the card of order 17 has expired")
    shop.drain()
    head, row = listed(shop, 80)[:2]
    assert head.split() == ["id", "status", "task", "age", "attempt", "reason"]
    assert row.split()[0] == id[-12:]
    assert "PermanentError: the card of orde" in row
    assert "tidemill.errors" not in row
    assert shop.json("jobs", "list")["items"][0]["id"] == id


def test_a_wide_screen_and_a_pipe_show_whole_ids_and_every_column(shop: Shop) -> None:
    id = enqueued(shop, "send", "to=ann")
    for lines in (listed(shop, 200), shop.run("jobs", "list").stdout.splitlines()):
        assert lines[0].split() == [
            "id",
            "status",
            "task",
            "queue",
            "age",
            "progress",
            "attempt",
            "tenant",
            "reason",
        ]
        assert lines[1].split()[0] == id


# Counts, and actions that match nothing
# -----------------------------------------------------------------------------------------


def test_jobs_are_counted_by_status(shop: Shop) -> None:
    enqueued(shop, "send", "to=ann")
    enqueued(shop, "send", "to=bob", "--delay", "1h")
    enqueued(shop, "look", "what=x")
    assert shop.json("jobs", "count") == {"total": 3, "counts": {"scheduled": 1, "pending": 2}}
    assert shop.json("jobs", "count", "--task", "look")["total"] == 1
    said = [line.split() for line in shop.run("jobs", "count", "--task", "send").stdout.splitlines()]
    assert said == [["status", "jobs"], ["scheduled", "1"], ["pending", "1"], ["total", "2"]]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ("retry", "--status", "completed"),
            "completed jobs cannot be retried; the filter can match failed,",
        ),
        (("retry", "--task", "send"), "no job matches the filter in a status that allows it (failed,"),
        (
            ("delete", "--status", "running", "--status", "pending"),
            "pending and running jobs cannot be deleted",
        ),
        (("cancel", "--status", "failed"), "failed jobs cannot be cancelled"),
    ],
)
def test_an_action_that_matches_no_job_says_why(shop: Shop, words: tuple[str, ...], why: str) -> None:
    enqueued(shop, "send", "to=ann")
    shop.drain()
    done = shop.run("jobs", *words, "--yes")
    assert done.exit_code == 0
    assert done.stdout.startswith("0 ")
    assert why in done.stdout


# Tenants and throughput ------------------------------------------------------------------------------------------------------


def test_tenants_are_listed_with_their_counts_settings_and_pauses(shop: Shop) -> None:
    assert shop.json("tenants", "list") == []
    enqueued(shop, "fail", "words=no", "--tenant", "acme")
    shop.drain()
    enqueued(shop, "send", "to=ann", "--tenant", "acme")
    shop.run("tenants", "set", "hooli", "--weight", "2", "--max-priority", "5")
    shop.run("tenants", "pause", "initech", "--new")
    blank = {"pending": 0, "ended": 0, "failed": 0, "weight": 1, "max_priority": None, "paused": False}
    assert shop.json("tenants", "list") == [
        {**blank, "tenant": "acme", "pending": 1, "ended": 1, "failed": 1},
        {**blank, "tenant": "hooli", "weight": 2, "max_priority": 5},
        {**blank, "tenant": "initech", "paused": True},
    ]
    lines = shop.run("tenants", "list").stdout.splitlines()
    assert lines[0].split()[:2] == ["tenant", "pending"]
    assert lines[3].split() == ["initech", "0", "0", "0", "1", "-", "paused"]


def test_throughput_fits_80_columns_and_names_its_units(shop: Shop) -> None:
    enqueued(shop, "send", "to=ann")
    shop.drain()
    said = shop.run("stats", "throughput", env=terminal(80, NO_COLOR="1")).stdout
    lines = re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines()
    assert len(lines) == 62
    assert "run p95  wait p50  wait p95" in lines[0]
    assert all(len(line) <= 80 for line in lines)
    assert lines[-1].startswith("jobs that ended, per 1m")
