"""``tidemill stats NAME`` and ``tidemill alerts``."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, call, make_shop, terminal

from tidemill.cli.stats import stats
from tidemill.cli.stats_reports import names
from tidemill.domain.records import Setting


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    return make_shop(tmp_path)


def work(shop: Shop, failures: int = 2) -> None:
    """Create ended jobs and one waiting job."""
    for number in range(failures):
        shop.run("jobs", "enqueue", "fail", f"words=order {number} \x1b[31mlost")
    shop.run("jobs", "enqueue", "send", "to=ann")
    shop.drain()
    shop.run("jobs", "enqueue", "send", "to=bob")


@pytest.mark.parametrize("env", [{}, terminal(40)])
@pytest.mark.parametrize("jobs", [True, False])
def test_every_report_can_be_printed(shop: Shop, env: dict[str, str], jobs: bool) -> None:
    if jobs:
        work(shop)
    else:
        shop.run("stats")  # creates the store
    for name in names():
        done = call("stats", name, "--store", shop.url, env=env)
        assert (done.exit_code, bool(done.stdout.strip())) == (0, True), name
        assert "\x1b[31mlost" not in done.stdout


def test_reports_are_tables_or_json_documents(shop: Shop) -> None:
    work(shop)
    lines = [line.split() for line in shop.run("stats", "by-status").stdout.splitlines()]
    assert lines == [["status", "jobs"], ["pending", "1"], ["completed", "1"], ["failed", "2"]]
    (row,) = shop.json("stats", "failures")["rows"]
    assert (row["task"], row["failures"], row["tenants"]) == ("fail", 2, 1)
    assert len(shop.json("stats", "throughput", "--window", "24h")["rows"]) == 96
    assert shop.json("stats", "lag", "--longer-than", "0s", "--window", "2h")["rows"]
    assert shop.json("stats", "queue_depth", "--tenant", "nobody")["rows"] == []


def test_the_help_names_every_report() -> None:
    said = " ".join((stats.help or "").split())
    assert said.split("The reports (NAME): ")[1].rstrip(".").split(", ") == names()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nonsense",), "there are queue-depth,"),
        (("by-status", "--window", "1h"), "takes no --window"),
        (("lag", "--limit", "5"), "takes no --limit"),
        (("leaders", "--tenant", "acme"), "takes no --tenant"),
        (("--window", "1h"), "give its name"),
    ],
)
def test_an_option_that_a_report_does_not_take_is_rejected(
    shop: Shop, words: tuple[str, ...], said: str
) -> None:
    done = shop.run("stats", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_alerts_exits_with_one_when_an_alert_is_raised(shop: Shop) -> None:
    done = shop.run("alerts")
    assert (done.exit_code, done.stdout.strip()) == (0, "no alerts")
    assert shop.json("alerts") == []
    with shop.app() as app:
        app.store.put_settings([Setting("alerts.failure_sample", 2), Setting("alerts.dead_letters", "many")])
    work(shop)
    done = shop.run("alerts")
    assert done.exit_code == 1
    assert "critical  failure_rate" in done.stdout
    assert "alerts.dead_letters" in done.stdout
    printed = call("alerts", "--store", shop.url, "--json")
    assert printed.exit_code == 1
    assert '"failure_rate"' in printed.stdout
