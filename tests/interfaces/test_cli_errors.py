"""``tidemill errors``: list, show, mute, resolve and retry."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, call, make_shop

MORE = """
from tidemill import PermanentError


@app.task
def charge(order: int) -> None:
    raise PermanentError(f"order {order} is unpaid")


@app.task
def refund(order: int) -> None:
    raise PermanentError("no such payment")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = make_shop(tmp_path)
    with (tmp_path / f"{made.name}.py").open("a", encoding="utf-8") as file:
        file.write(MORE)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert call("db", "migrate", "--store", made.url).exit_code == 0
    return made


def fail(shop: Shop) -> None:
    """Fail three jobs in one place, and one in another."""
    with shop.app() as app:
        for order in range(3):
            app.enqueue("charge", order=order)
        app.enqueue("refund", order=9)
        app.testing().drain()


def test_errors_are_listed_with_their_place(shop: Shop) -> None:
    assert shop.run("errors", "list").stdout == "no errors in this window\n"
    fail(shop)
    text = shop.run("errors", "list").stdout
    assert "PermanentError" in text
    assert "order # is unpaid" in text
    rows = shop.json("errors", "list")
    assert [(row["jobs"], row["status"], row["tasks"]) for row in rows] == [(3, "open", 1), (1, "open", 1)]
    assert rows[0]["place"].endswith(f"{shop.name}.py in charge")
    assert [row["task"] for row in shop.json("errors", "list", "--task", "refund")] == ["refund"]


def test_a_group_is_shown_by_the_start_of_its_fingerprint(shop: Shop) -> None:
    fail(shop)
    key = shop.json("errors", "list")[0]["fingerprint"]
    text = shop.run("errors", "show", key[:8]).stdout
    assert key in text
    assert "Variants" in text
    shown = shop.json("errors", "show", key)
    assert [row["message"] for row in shown["variants"]] == ["order # is unpaid"]
    assert [row["name"] for row in shown["tasks"]] == ["charge"]
    refused = shop.run("errors", "show", "ffffffff")
    assert refused.exit_code == 2
    assert "no job failed with the error 'ffffffff'" in refused.stderr
    assert "matches several errors" in shop.run("errors", "show", "").stderr


def test_a_group_is_muted_resolved_and_opened_again(shop: Shop) -> None:
    fail(shop)
    key = shop.json("errors", "list")[0]["fingerprint"]
    assert shop.run("errors", "mute", key[:8]).stdout == f"error {key[:8]} is muted\n"
    assert [row["fingerprint"] for row in shop.json("errors", "list", "--status", "muted")] == [key]
    assert key not in shop.run("errors", "list", "--json").stdout
    assert shop.json("errors", "unmute", key)["status"] == "open"
    assert shop.json("errors", "resolve", key)["status"] == "resolved"
    assert shop.json("errors", "unresolve", key)["status"] == "open"


def test_all_jobs_of_a_group_are_retried_after_a_question(shop: Shop) -> None:
    fail(shop)
    key = shop.json("errors", "list")[0]["fingerprint"]
    refused = shop.run("errors", "retry", key)
    assert refused.exit_code != 0
    assert "pass --yes to confirm" in refused.stderr
    assert shop.run("jobs", "count", "--error-group", key).exit_code == 0
    assert shop.run("errors", "retry", key, "--yes").stdout == "3 retried\n"
    again = shop.run("errors", "retry", key, "--yes").stdout
    assert again == "0 retried: its jobs were retried, deleted or archived\n"
