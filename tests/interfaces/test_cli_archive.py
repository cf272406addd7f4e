"""``tidemill archive``: archiving due jobs and searching the archive."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, call, make_shop, terminal

from tidemill.domain.archive_totals import LEASE
from tidemill.ids import new_id


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = make_shop(tmp_path)
    assert made.run("db", "migrate").exit_code == 0
    for words in (["send", "to=ann"], ["send", "to=bob"], ["fail", "words=no"]):
        assert made.run("jobs", "enqueue", *words).exit_code == 0
    made.drain()
    return made


def test_run_archives_jobs_and_prints_the_counts(shop: Shop) -> None:
    done = shop.run("archive", "run")
    assert done.stdout.splitlines()[-1].startswith("0 jobs archived in ")
    done = shop.run("archive", "run", "--older-than", "0s", "--limit", "2")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        "policy", "tier", "archived", "verified", "failed", "changed", "size", "took", "error",
    ]  # fmt: skip
    assert lines[1].split()[:6] == ["completed", "archive", "2", "2", "0", "0"]
    assert "KiB" in lines[1]
    assert lines[-1].endswith("; there is more that is due")
    assert shop.json("archive", "run", "--older-than", "0s")["archived"] == 1
    assert shop.json("jobs", "list")["items"] == []


def test_search_finds_archived_jobs_by_status(shop: Shop) -> None:
    assert shop.run("archive", "search").stdout == "no archived jobs\n"
    assert shop.run("archive", "run", "--older-than", "0s").exit_code == 0
    found = shop.json("archive", "search", "--status", "failed")["items"]
    assert [(each["task"], each["sound"]) for each in found] == [("fail", True)]
    assert found[0]["document"]["job"]["args"] == '{"words":"no"}'
    listed = shop.run("archive", "search", "--limit", "2").stdout.splitlines()
    assert len(listed) == 4
    following = listed[-1].removeprefix("more: --cursor ")
    assert len(shop.json("archive", "search", "--cursor", following)["items"]) == 1
    assert shop.json("archive", "search", "--task", "nothing")["items"] == []


def test_the_table_fits_a_narrow_screen(shop: Shop) -> None:
    wide = shop.run("archive", "run", "--older-than", "0s", env=terminal(80)).stdout.splitlines()
    assert "archived" in wide[0]
    assert max(map(len, (line for line in wide if "\x1b" not in line))) <= 80


def test_a_run_is_refused_while_another_run_holds_the_lease(shop: Shop) -> None:
    with shop.app() as app:
        assert app.store.acquire(LEASE, new_id(), ttl=timedelta(minutes=5)) is not None
    done = shop.run("archive", "run")
    assert done.exit_code == 2
    assert done.stderr == "tidemill: another archive run is in progress; wait until it has ended\n"


def test_archive_totals_are_a_stats_report(shop: Shop) -> None:
    assert "no rows for archival" in shop.run("stats", "archival").stdout
    assert shop.run("archive", "run", "--older-than", "0s").exit_code == 0
    rows = {row["policy"]: row["archived"] for row in shop.json("stats", "archival")["rows"]}
    assert rows == {"completed": 2, "failed": 1}
    assert "KiB" in shop.run("stats", "archival").stdout


def test_policies_lists_what_is_kept_how_long(shop: Shop) -> None:
    lines = shop.run("archive", "policies").stdout.splitlines()
    assert lines[0].split() == ["policy", "applies", "to", "from", "after", "goes", "to", "archived", "last"]
    assert lines[1].split()[:5] == ["completed", "completed", "live", "30d", "archive"]
    assert "retention         on, every 1h, no run yet, next run due" in lines
    assert shop.run("archive", "run", "--older-than", "0s").exit_code == 0
    status = shop.json("archive", "policies")
    assert (status["enabled"], status["interval"], status["last"]["archived"]) == (True, 3600.0, 3)
    assert {policy["name"]: policy["archived"] for policy in status["policies"]} == {
        "completed": 2, "failed": 1, "cancelled": 0, "dead_lettered": 0,
    }  # fmt: skip


def test_explain_names_the_policy_of_a_job(shop: Shop) -> None:
    (job,) = shop.json("jobs", "list", "--status", "failed")["items"]
    lines = shop.run("archive", "explain", job["id"]).stdout.splitlines()
    assert lines[0].startswith(f"fail job {job['id']} of tenant default is failed in tier live; it ended ")
    assert "  * failed         applies: is the default for its states" in lines
    assert "  - completed      is for state completed, not failed" in lines
    assert lines[-1].startswith("it moves to tier archive of store archive on ")
    found = shop.json("archive", "explain", job["id"][:13])
    assert (found["policy"], found["to_tier"], len(found["considered"])) == ("failed", "archive", 4)
    assert found["text"] == lines
    assert shop.run("archive", "explain", str(new_id())).exit_code == 1


def test_settings_turn_retention_off_and_on(shop: Shop) -> None:
    shown = shop.json("archive", "settings", "--off", "--interval", "15m")
    assert (shown["enabled"], shown["interval"], shown["next_at"]) == (False, 900.0, None)
    assert shop.run("archive", "settings").stdout.splitlines()[0] == "retention         off"
    (finding,) = [each for each in shop.json("doctor")["checks"] if each["check"] == "retention"]
    assert finding["status"] == "warn"
    assert "turn it on: tidemill archive settings --on" in finding["text"]
    shown = shop.json("archive", "settings", "--reset")
    assert (shown["enabled"], shown["interval"]) == (True, 3600.0)
    shop.json("archive", "settings", "--max-age", "completed=90d")
    shop.json("archive", "settings", "--max-age", "failed=60d")
    ages = {item["name"]: item["max_age"] for item in shop.json("archive", "policies")["policies"]}
    assert (ages["completed"], ages["failed"], ages["cancelled"]) == (90 * 86400, 60 * 86400, 30 * 86400)
    shop.json("archive", "settings", "--no-defaults")
    assert shop.json("archive", "policies")["policies"] == []
    assert shop.run("archive", "settings", "--max-age", "done=1d").exit_code == 2
    shop.json("archive", "settings", "--reset")
    assert len(shop.json("archive", "policies")["policies"]) == 4
    assert shop.run("archive", "settings", "--reset", "--on").exit_code == 2
    assert shop.run("archive", "settings", "--interval", "100ms").exit_code == 2


def test_doctor_and_stats_report_retention(shop: Shop) -> None:
    (finding,) = [each for each in shop.json("doctor")["checks"] if each["check"] == "retention"]
    assert finding["status"] == "ok"
    assert finding["text"].startswith("on, every 1h, no run yet, next run due; the oldest ended job ended ")
    lines = shop.run("stats").stdout.splitlines()
    assert any(line.endswith("on, every 1h, no run yet, next run due") for line in lines)
    assert shop.json("stats")["retention"]["enabled"] is True


def test_a_run_needs_the_policies_of_an_app(tmp_path: Path) -> None:
    done = call("archive", "run", "--store", f"sqlite:///{tmp_path}/jobs.db")
    assert done.exit_code == 2
    assert "archive run needs the policies of an app" in done.output
