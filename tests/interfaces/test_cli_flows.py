"""Tests of ``tidemill flows`` and ``tidemill batches``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.interfaces.cli_kit import Shop, make_shop, terminal

from tidemill import App, each

ABSENT = "0190a0b1-2c3d-7e4f-8a9b-0c1d2e3f4a5b"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    return make_shop(tmp_path)


def task(app: App, name: str) -> Any:
    return app.bound_task(name)


def start(shop: Shop, *, key: str | None = None, tenant: str = "default") -> str:
    """Start a flow of four nodes, of which one fails. Returns its id."""
    with shop.app() as app, app.tenant(tenant):
        send, fail = task(app, "send"), task(app, "fail")
        flow = app.flow("orders", key=key)
        first = flow.add(send, to="ann").named("first")
        flow.map(send, to=each(["ben", "cia"])).named("letters").after(first)
        broken = flow.add(fail, words="no paper").named("broken").after(first)
        flow.add(send, to="dan").named("last").after(broken)
        return str(flow.start().id)


def fill(shop: Shop, *, failing: bool = False) -> str:
    """Make a closed batch of two jobs. Returns its id."""
    with shop.app() as app:
        batch = app.batch("letters", description="of the week")
        with batch:
            task(app, "send").enqueue(to="ann")
            task(app, "fail" if failing else "send").enqueue(**{"words" if failing else "to": "ben"})
        return str(batch.id)


# Flows -------------------------------------------------------------------------------------------------------------------


def test_flows_are_listed_with_their_status(shop: Shop) -> None:
    done, waiting = start(shop, key="a"), start(shop, key="b")
    shop.drain()
    later = start(shop, key="c")
    listed = shop.json("flows", "list")
    assert [flow["id"] for flow in listed] == [later, waiting, done]
    assert [flow["status"] for flow in listed] == ["running", "failed", "failed"]
    assert [flow["key"] for flow in shop.json("flows", "list", "--status", "running")] == ["c"]
    assert [flow["id"] for flow in shop.json("flows", "list", "--key", "a")] == [done]
    assert shop.json("flows", "list", "--name", "other") == []
    assert len(shop.json("flows", "list", "--limit", "2")) == 2
    table = shop.run("flows", "list", env=terminal(160)).stdout
    assert done in table
    assert "orders" in table
    assert "running" in table


def test_an_empty_list_prints_a_message(shop: Shop) -> None:
    for group in ("flows", "batches"):
        done = shop.run(group, "list")
        assert done.exit_code == 0
        assert done.output == f"no {group}\n"
        assert shop.json(group, "list") == []


def test_a_flow_is_shown_with_its_nodes(shop: Shop) -> None:
    id = start(shop)
    shop.drain()
    shown = shop.json("flows", "show", id)
    assert (shown["name"], shown["status"]) == ("orders", "failed")
    states = {node["node"]: node["status"] for node in shown["nodes"] if node["position"] is None}
    assert states == {"first": "completed", "broken": "failed", "last": "skipped"}
    assert (shown["total"], shown["pending"], shown["failed"], shown["progress"]) == (5, 0, 1, 1.0)
    text = shop.run("flows", "show", id, env=terminal(160)).stdout
    for words in ("orders", id, "failed", "5, 0 not ended, 1 failed", "letters", "2/2", "skipped"):
        assert words in text


def test_a_flow_is_found_by_the_beginning_or_the_end_of_its_id(shop: Shop) -> None:
    id = start(shop)
    assert shop.json("flows", "show", id[:-1])["id"] == id
    assert shop.json("flows", "show", id.upper())["id"] == id
    assert shop.json("flows", "show", id[-12:])["id"] == id
    other = start(shop)
    both = next(place for place in range(36) if id[place] != other[place])
    done = shop.run("flows", "show", id[:both])
    assert done.exit_code == 2
    assert "matches 2 flows; give more characters" in done.output


@pytest.mark.parametrize(
    "words",
    [
        ("flows", "show"),
        ("flows", "watch"),
        ("flows", "graph"),
        ("flows", "retry"),
        ("flows", "skip"),
        ("flows", "cancel", "--yes"),
        ("batches", "show"),
        ("batches", "cancel", "--yes"),
        ("batches", "retry"),
    ],
)
@pytest.mark.parametrize("id", [ABSENT, "nothing", "x", "ffff"])
def test_an_unknown_id_is_one_message(shop: Shop, words: tuple[str, ...], id: str) -> None:
    more = ("first",) if words[1] == "skip" else ()
    done = shop.run(*words, id, *more)
    assert done.exit_code == 1
    assert f"there is no {'batch' if words[0] == 'batches' else 'flow'} {id}" in done.output
    told = shop.run(*words, id, *more, "--json")
    assert (told.exit_code, told.stdout) == (1, "")


def test_a_flow_is_explained_and_its_node_signalled(shop: Shop) -> None:
    id = start(shop)
    explained = shop.json("flows", "why", id)
    assert (explained["id"], explained["status"]) == (id, "running")
    assert [(reason["node"], reason["code"]) for reason in explained["reasons"]] == [
        ("first", "no_workers"),
        (None, "waits_for_nodes"),
    ]
    shown = shop.run("flows", "why", id).output
    assert "- first: No worker is alive; start one." in shown
    assert "- 4 more nodes wait for these." in shown
    assert shop.json("flows", "why", id, "last")["reasons"][0]["code"] == "waits_for_jobs"
    sent = shop.json("flows", "signal", id, "first", "go", "--data", "[1]", "--key", "k")
    assert (sent["node"], sent["accepted"]) == ("first", True)
    assert "nothing was sent" in shop.run("flows", "signal", id, "first", "go", "--key", "k").output
    job = explained["reasons"][0]["id"]
    assert [signal["payload"] for signal in shop.json("signals", "list", job)] == [[1]]


def test_a_watched_flow_ends_with_its_status(shop: Shop) -> None:
    id = start(shop)
    shop.drain()
    done = shop.run("flows", "watch", id)
    assert (done.exit_code, done.stdout) == (1, "failed  5 of 5 ended, 1 failed\n")
    told = shop.run("flows", "watch", id, "--json")
    assert told.exit_code == 1
    (line,) = told.stdout.splitlines()
    assert json.loads(line)["status"] == "failed"
    shop.run("flows", "skip", id, "broken")
    shop.drain()
    assert shop.run("flows", "watch", id).exit_code == 0


def test_a_flow_is_drawn_in_three_forms(shop: Shop) -> None:
    id = start(shop)
    shop.drain()
    assert "letters: 2 of 2" in shop.run("flows", "graph", id).stdout
    assert shop.run("flows", "graph", id, "--text").stdout == shop.run("flows", "graph", id).stdout
    assert shop.run("flows", "graph", id, "--mermaid").stdout.startswith("flowchart LR\n")
    assert shop.run("flows", "graph", id, "--dot").stdout.startswith('digraph "orders" {')
    drawn = shop.json("flows", "graph", id)
    assert {node["name"] for node in drawn["nodes"]} == {"first", "letters", "broken", "last"}
    assert len(drawn["edges"]) == 3


def test_failed_nodes_run_again(shop: Shop) -> None:
    id = start(shop)
    shop.drain()
    done = shop.run("flows", "retry", id)
    assert (done.exit_code, done.stdout) == (0, f"flow orders ({id}) runs again\n")
    again = shop.run("flows", "retry", id)
    assert again.exit_code == 1
    assert "no failed node" in again.output
    shop.drain()
    assert shop.json("flows", "retry", id, "--from", "first", "--downstream")["status"] == "running"
    unknown = shop.run("flows", "retry", id, "--from", "nobody")
    assert unknown.exit_code != 0
    assert "has no node 'nobody'" in unknown.output


def test_a_node_is_skipped(shop: Shop) -> None:
    id = start(shop)
    shop.drain()
    done = shop.run("flows", "skip", id, "broken", "--result", '{"fine": true}')
    assert (done.exit_code, done.stdout) == (0, f"flow orders ({id}) continues without broken\n")
    shop.drain()
    shown = shop.json("flows", "show", id)
    assert shown["status"] == "completed"
    other = start(shop)
    shop.drain()
    assert shop.json("flows", "skip", other, "broken")["id"] == other
    unknown = shop.run("flows", "skip", other, "nobody")
    assert unknown.exit_code != 0
    assert "has no node 'nobody'" in unknown.output


def test_a_flow_is_cancelled_after_a_question(shop: Shop) -> None:
    id = start(shop)
    asked = shop.run("flows", "cancel", id, input="n\n")
    assert asked.exit_code != 0
    assert shop.json("flows", "show", id)["status"] == "running"
    done = shop.run("flows", "cancel", id, "--reason", "too late", "--yes")
    assert (done.exit_code, done.stdout) == (0, f"flow orders ({id}) is cancelled\n")
    shop.drain()
    shown = shop.json("flows", "show", id)
    assert (shown["status"], shown["cancel_reason"]) == ("cancelled", "too late")
    assert "too late" in shop.run("flows", "show", id).stdout
    again = shop.run("flows", "cancel", id, "--yes")
    assert again.exit_code == 1
    assert "it is cancelled" in again.output
    hard = start(shop)
    assert shop.json("flows", "cancel", hard, "--hard", "--yes")["id"] == hard


def test_another_tenants_flow_is_not_shown(shop: Shop) -> None:
    id = start(shop, tenant="acme")
    assert shop.json("flows", "list") == []
    assert shop.run("flows", "show", id).exit_code == 1
    assert [flow["id"] for flow in shop.json("flows", "list", "--tenant", "acme")] == [id]
    assert shop.json("flows", "show", id, "--tenant", "acme")["id"] == id


# Batches -----------------------------------------------------------------------------------------------------------------


def test_batches_are_listed_and_shown(shop: Shop) -> None:
    id = fill(shop)
    shop.drain()
    (listed,) = shop.json("batches", "list")
    assert (listed["id"], listed["status"], listed["total"]) == (id, "completed", 2)
    assert shop.json("batches", "list", "--status", "running") == []
    assert shop.json("batches", "list", "--name", "other") == []
    table = shop.run("batches", "list", env=terminal(160)).stdout
    assert id in table
    assert "100" in table
    text = shop.run("batches", "show", id, env=terminal(160)).stdout
    for words in ("letters", "of the week", "completed", "2, 0 not ended, 0 failed"):
        assert words in text
    assert shop.json("batches", "show", id[:-1])["id"] == id


def test_failed_jobs_of_a_batch_run_again(shop: Shop) -> None:
    id = fill(shop, failing=True)
    shop.drain()
    assert shop.json("batches", "show", id)["failed"] == 1
    done = shop.run("batches", "retry", id)
    assert (done.exit_code, done.stdout) == (0, f"batch letters ({id}) runs again\n")
    shop.drain()
    assert shop.json("batches", "retry", id, "--again")["status"] == "running"
    again = shop.run("batches", "retry", id)
    assert again.exit_code == 1
    assert "no failed job" in again.output


def test_a_batch_is_cancelled_after_a_question(shop: Shop) -> None:
    id = fill(shop)
    assert shop.run("batches", "cancel", id, input="n\n").exit_code != 0
    assert shop.json("batches", "show", id)["status"] == "running"
    done = shop.run("batches", "cancel", id, "--reason", "too late", "--yes")
    assert (done.exit_code, done.stdout) == (0, f"batch letters ({id}) is cancelled\n")
    shop.drain()
    assert shop.json("batches", "show", id)["status"] == "cancelled"
    assert shop.run("batches", "cancel", id, "--yes").exit_code == 1
    other = fill(shop)
    assert shop.json("batches", "cancel", other, "--yes")["id"] == other


def test_archived_flows_and_batches_are_listed_and_shown(shop: Shop) -> None:
    flow, batch = start(shop), fill(shop)
    shop.drain()
    with shop.app() as app:
        app.archive.run(older_than=0)
    assert shop.json("flows", "list") == shop.json("batches", "list") == []
    assert [item["id"] for item in shop.json("flows", "list", "--archived")] == [flow]
    assert [item["id"] for item in shop.json("batches", "list", "--archived")] == [batch]
    shown = shop.json("flows", "show", flow[:8] if flow[:8] != batch[:8] else flow)
    assert (shown["status"], shown["tier"], len(shown["nodes"])) == ("failed", "archive", 5)


def test_jobs_are_listed_by_their_flow(shop: Shop) -> None:
    flow, batch = start(shop), fill(shop)
    listed = {id: shop.json("jobs", "list", "--flow", id)["items"] for id in (flow, batch)}
    assert [job["task"] for job in listed[batch]] == ["send", "send"]
    assert {job["task"] for job in listed[flow]} == {"send", "fail"}
