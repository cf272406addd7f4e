"""``tidemill schedules`` and ``tidemill definitions``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, call, make_shop, terminal

from tidemill.domain.schedules import ScheduleRow
from tidemill.ids import new_id

DECLARED = """
from tidemill import Daily

app.schedule(send, Daily("02:00"), key="declared", args={"to": "ann"})
"""


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("USER", "ann")
    url = request.getfixturevalue("fresh_postgres_url") if request.param == "postgres" else None
    made = make_shop(tmp_path, url)
    if url:
        assert call("db", "migrate", "--store", url).exit_code == 0
    return made


def add(shop: Shop, key: str, *words: str) -> dict[str, object]:
    found: dict[str, object] = shop.json("schedules", "add", key, "send", "--arg", "to=ann", *words)
    return found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cron", "0 2 * * *"), "cron"),
        (("--every", "6h"), "every"),
        (("--daily", "06:00,18:00"), "daily"),
        (("--weekly", "mon,fri 09:00"), "weekly"),
        (("--monthly", "1 00:00"), "monthly"),
        (("--business-day", "10 18:00"), "monthly_business_day"),
        (("--once", "2099-01-01T00:00Z"), "once"),
        (("--manual",), "manual"),
        (("--after", "orders,stock"), "after"),
        (("--on", "order.paid"), "on"),
    ],
)
def test_each_kind_of_trigger_can_be_added(shop: Shop, words: tuple[str, ...], said: str) -> None:
    if said == "once":
        bad = shop.run("schedules", "add", "k", "send", "--arg", "to=ann", *words)
        assert bad.exit_code == 2
        assert "more than five years ahead" in bad.stderr
        return
    trigger = add(shop, "k", *words)["trigger"]
    assert isinstance(trigger, dict)
    assert trigger["kind"] == said


def test_a_schedule_without_times_tells_what_it_waits_for(shop: Shop) -> None:
    made = add(shop, "load", "--after", "orders, stock")
    assert (made["words"], made["overlap"]) == ("After orders and stock completed, within one day", "queue")
    waits = "waits for orders, which does not exist yet and stock, which does not exist yet"
    assert shop.json("schedules", "why", "load") == {"schedule": "load", "waits": waits}
    assert shop.run("schedules", "why", "load").stdout == f"load {waits}\n"
    assert "which does not exist yet" in shop.run("schedules", "show", "load").stdout
    assert "it has no times: After orders and stock" in shop.run("schedules", "preview", "load").stdout
    taken = shop.json("schedules", "add", "event", "send", "--on", "paid", "--take", "to=$.name")
    assert taken["trigger"]["args"] == {"to": "$.name"}
    for words in (("--daily", "06:00", "--take", "to=$"), ("--on", "paid", "--take", "to")):
        assert shop.run("schedules", "add", "bad", "send", *words).exit_code == 2


def test_a_schedule_is_added_listed_shown_and_previewed(shop: Shop) -> None:
    made = add(
        shop,
        "nightly",
        "--daily",
        "02:30",
        "--timezone",
        "Europe/Berlin",
        "--misfire",
        "all:5",
        "--overlap",
        "queue",
        "--queue",
        "slow",
        "--tag",
        "night",
        "--metadata",
        "team=ops",
        "--timeout",
        "5m",
    )
    assert re.search(r"misfire +all:5\n", shop.run("schedules", "show", "nightly").stdout)
    assert (made["task"], made["args"], made["misfire"]) == ("send", {"to": "ann"}, {"all": 5})
    assert made["options"] == {
        "queue": "slow",
        "tags": ["night"],
        "metadata": {"team": "ops"},
        "timeout": 300.0,
    }
    (listed,) = shop.json("schedules", "list")
    assert listed == made
    table = shop.run("schedules", "list").stdout
    assert "nightly" in table
    assert "At 02:30 every day" in table
    shown = shop.run("schedules", "show", "nightly").stdout
    assert "Europe/Berlin" in shown
    assert "none yet" in shown
    preview = shop.run("schedules", "preview", "nightly", "-n", "3", "--after", "2026-03-28T12:00Z").stdout
    lines = [line.split("  ") for line in preview.splitlines()[1:]]
    assert lines[0][0] == "Sun 2026-03-29 03:00:00 +0200"
    assert lines[0][1] == "2026-03-29 01:00:00Z"
    assert "clocks went forward: +0100 to +0200" in preview
    (first, *_) = shop.json("schedules", "preview", "nightly", "--after", "2026-10-24T12:00Z")
    assert first["local"] == "2026-10-25T02:30:00+02:00"
    assert first["utc"] == "2026-10-25T00:30:00+00:00"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cron", "61 * * * *"), "61"),
        (("--daily", "25:00"), "25:00"),
        (("--weekly", "monday"), "weekly: 'monday' is not a day and time"),
        (("--monthly", "x 00:00"), "monthly: 'x' is not the number of a day"),
        (("--business-day", "25 18:00"), "25"),
        (("--every", "6h", "--daily", "06:00"), "give exactly one of"),
        ((), "give exactly one of"),
        (("--every", "6h", "--timezone", "Mars/Base"), "unknown time zone 'Mars/Base'"),
        (("--every", "6h", "--misfire", "twice"), "is not a misfire rule"),
        (("--every", "6h", "--arg", "size=big"), "size"),
        (("--every", "6h", "--priority", "500"), "priority is 500"),
    ],
)
def test_invalid_input_prints_a_message_and_saves_nothing(
    shop: Shop, words: tuple[str, ...], said: str
) -> None:
    done = shop.run("schedules", "add", "k", "send", "--arg", "to=ann", *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert shop.json("schedules", "list") == []


def test_a_schedule_is_paused_resumed_triggered_and_removed(shop: Shop) -> None:
    add(shop, "hourly", "--every", "1h")
    assert "is paused" in shop.run("schedules", "pause", "hourly", "--reason", "too loud").stdout
    (paused,) = shop.json("schedules", "list")
    assert (paused["enabled"], paused["note"], paused["next_fire_at"]) == (False, "too loud", None)
    assert "is resumed" in shop.run("schedules", "resume", "hourly").stdout
    job = shop.json("schedules", "trigger", "hourly")
    fires = shop.json("schedules", "show", "hourly")["fires"]
    assert [(fire["job_id"], fire["reason"]) for fire in fires] == [(job["id"], "by hand")]
    kept = shop.run("schedules", "remove", "hourly", input="n\n")
    assert kept.exit_code == 1
    assert "remove schedule hourly of task send" in kept.stderr
    assert shop.run("schedules", "remove", "hourly", "--yes").exit_code == 0
    gone = shop.run("schedules", "show", "hourly")
    assert (gone.exit_code, gone.stderr) == (2, "tidemill: there is no schedule 'hourly' here\n")


def test_backfill_creates_the_fires_of_a_range(shop: Shop) -> None:
    add(shop, "hourly", "--every", "1h")
    words = ("schedules", "backfill", "hourly", "2026-01-01T00:00Z", "2026-01-01T05:00Z")
    assert "6 fires would be made, 0 existed" in shop.run(*words, "--dry-run").stdout
    done = shop.json(*words, "--limit", "4")
    assert (len(done["fires"]), done["existing"], done["more"]) == (4, 0, True)
    assert "2 fires are made, 4 existed" in shop.run(*words).stdout
    assert len(shop.json("jobs", "list")["items"]) == 6


def test_sync_updates_the_declared_schedules(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / f"{shop.name}.py"
    plain = file.read_text()
    file.write_text(plain + DECLARED)
    done = shop.json("schedules", "sync")
    assert (done["added"], done["unchanged"]) == (["declared"], 0)
    (row,) = shop.json("schedules", "list")
    assert (row["source"], row["app"]) == ("code", shop.where)
    assert "1 unchanged" in shop.run("schedules", "sync").stdout
    refused = shop.run("schedules", "remove", "declared", "--yes")
    assert refused.exit_code == 2
    assert "would come back" in refused.stderr
    file.write_text(plain)
    assert "disabled: declared" in shop.run("schedules", "sync").stdout
    (row,) = shop.json("schedules", "list")
    assert (row["enabled"], row["note"]) == (False, "removed from the code")
    assert shop.run("schedules", "remove", "declared", "--yes").exit_code == 0


def test_reading_needs_no_app_and_a_broken_schedule_is_shown_as_broken(shop: Shop) -> None:
    with shop.app() as app:
        odd = ScheduleRow(new_id(), "odd", "send", {"format": 1, "kind": "lunar\x1b[31m"})
        app.store.put_schedules([odd])
    done = call("schedules", "list", "--store", shop.url, env=terminal(200))
    assert "broken" in done.stdout
    assert "\x1b[31mlunar" not in done.stdout
    shown = call("schedules", "show", "odd", "--store", shop.url)
    assert "unknown kind" in shown.stdout
    assert call("schedules", "preview", "odd", "--store", shop.url).exit_code == 2
    assert "needs the tasks" in call("schedules", "add", "k", "send", "--store", shop.url).stderr


def test_a_schedule_of_every_runner_is_added(shop: Shop) -> None:
    assert add(shop, "caches", "--every", "1h", "--scope", "process")["scope"] == "process"
    refused = shop.run("schedules", "trigger", "caches")
    assert (refused.exit_code, "fires in every runner, and none is alive" in refused.stderr) == (2, True)


def test_an_empty_list_of_schedules_is_reported(shop: Shop) -> None:
    assert "no schedules" in shop.run("schedules", "list").stdout
    assert shop.json("schedules", "list") == []


# Definitions -------------------------------------------------------------------------------------------------------------


def test_definitions_are_listed_shown_disabled_triggered_and_removed(shop: Shop) -> None:
    with shop.app() as app:
        app.definitions.save("letter", "send", args={"to": "ann"}, owner="ann", tenant="acme", by="bob")
        app.definitions.save("letter", args={"to": "bob"}, tenant="acme")
    (row,) = shop.json("definitions", "list")
    assert (row["key"], row["version"], row["args"], row["tenant"]) == ("letter", 2, {"to": "bob"}, "acme")
    assert "letter" in shop.run("definitions", "list").stdout
    shown = shop.json("definitions", "show", "letter", "--tenant", "acme")
    assert [each["version"] for each in shown["versions"]] == [1, 2]
    text = shop.run("definitions", "show", "letter", "--tenant", "acme").stdout
    assert "Versions" in text
    assert "ann" in text  # the owner
    assert shown["owner"] == "ann"
    assert not shop.json("definitions", "disable", "letter", "--tenant", "acme")["enabled"]
    assert shop.json("definitions", "enable", "letter", "--tenant", "acme")["enabled"]
    shop.run("definitions", "disable", "letter", "--tenant", "acme")
    refused = shop.run("definitions", "trigger", "letter", "--tenant", "acme")
    assert (refused.exit_code, "definition 'letter' of tenant acme is disabled" in refused.stderr) == (
        2,
        True,
    )
    forced = shop.json("definitions", "trigger", "letter", "--tenant", "acme", "--force")
    shop.run("definitions", "enable", "letter", "--tenant", "acme")
    shop.run("jobs", "cancel", str(forced["id"]))
    job = shop.json("definitions", "trigger", "letter", "size=3", "--tenant", "acme")
    listed = shop.json("jobs", "list", "--definition", "letter", "--definition-version", "2")["items"]
    assert [each["id"] for each in listed] == [job["id"], forced["id"]]
    assert "definition      letter, version 2" in shop.run("jobs", "show", str(job["id"])).stdout
    found = shop.json("jobs", "show", job["id"])
    assert found["args"] == {"to": "bob", "size": 3}
    assert shop.run("definitions", "remove", "letter", "--tenant", "acme", input="n\n").exit_code == 1
    assert shop.run("definitions", "remove", "letter", "--tenant", "acme", "--yes").exit_code == 0
    missing = shop.run("definitions", "show", "letter", "--tenant", "acme")
    assert (missing.exit_code, "has no definition 'letter'" in missing.stderr) == (2, True)
    assert json.loads(shop.run("definitions", "list", "--deleted", "--json").stdout)[0]["deleted_at"]
