"""Tests of commands for an app with several stores."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, call

SHOP = """
from tidemill import App, Every

app = App(
    stores={{
        "default": "sqlite:///{folder}/a.db", "reports": "sqlite:///{folder}/b.db", "archive": "sqlite:///{folder}/c.db"
    }},
    migrate={migrate},
)


@app.task
def send(to: str) -> str:
    return to


@app.task(store="reports")
def report() -> None: ...


app.schedule(report, Every("1h"), key="hourly")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def shop(folder: Path) -> Shop:
    return make(folder)


def make(folder: Path, *, migrate: bool = True) -> Shop:
    name = f"several_{folder.name.replace('-', '_')}"
    (folder / f"{name}.py").write_text(SHOP.format(folder=folder, migrate=migrate))
    return Shop(name, "")


def test_commands_address_the_store_that_is_named(shop: Shop) -> None:
    here = shop.json("jobs", "enqueue", "send", "to=ada")
    there = shop.json("jobs", "enqueue", "send", "to=bob", "--store-name", "reports")
    assert [row["id"] for row in shop.json("jobs", "list")["items"]] == [here["id"]]
    listed = shop.run("jobs", "list", "--json", "--app", shop.where, env={"TIDEMILL_STORE_NAME": "reports"})
    assert [row["id"] for row in json.loads(listed.stdout)["items"]] == [there["id"]]
    shop.json("schedules", "sync")
    assert shop.json("schedules", "list") == []
    (schedule,) = shop.json("schedules", "list", "--store-name", "reports")
    assert schedule["key"] == "hourly"
    assert shop.run("queues", "pause", "default", "--store-name", "reports").exit_code == 0
    paused = {
        name: [queue["name"] for queue in shop.json("queues", "list", *words) if queue["paused"]]
        for name, words in {"default": (), "reports": ("--store-name", "reports")}.items()
    }
    assert paused == {"default": [], "reports": ["default"]}


def test_a_job_is_found_by_its_id_in_whatever_store_it_is(shop: Shop) -> None:
    job = shop.json("jobs", "enqueue", "report")
    assert shop.json("jobs", "show", job["id"])["store"] == "reports"
    assert shop.json("jobs", "show", job["id"][-12:])["id"] == job["id"], "by the end of its id"
    assert "No living worker serves the store 'reports'" in shop.run("jobs", "why", job["id"]).output
    missing = shop.run("jobs", "show", job["id"], "--store-name", "default")
    assert missing.exit_code == 1
    assert shop.json("jobs", "cancel", job["id"])["done"][0]["status"] == "cancelled"
    assert shop.run("jobs", "show", "00000000-0000-7000-8000-000000000000").exit_code == 1


def test_the_schema_of_every_store_is_migrated_and_shown(folder: Path) -> None:
    shop = make(folder, migrate=False)
    before = shop.run("db", "status")
    assert before.exit_code == 1
    assert [name in before.output for name in ("default: sqlite", "reports: sqlite", "archive: sqlite")] == [
        True
    ] * 3
    done = shop.json("db", "migrate", "--store-name", "reports")
    assert done["name"] == "reports"
    assert done["applied"]
    stores = shop.json("db", "migrate")["stores"]
    assert {store["name"]: bool(store["applied"]) for store in stores} == {
        "default": True,
        "reports": False,
        "archive": True,
    }
    assert [store["pending"] for store in shop.json("db", "status")["stores"]] == [[], [], []]


def test_doctor_and_alerts_report_a_store_without_workers(shop: Shop) -> None:
    shop.json("jobs", "enqueue", "report")
    done = shop.run("doctor", "--json")
    findings = json.loads(done.stdout)["checks"]
    workers = {one["store"]: one for one in findings if one["check"] == "workers"}
    assert set(workers) == {"default", "reports"}
    assert workers["reports"]["status"] == "fail"
    assert workers["reports"]["text"].endswith("tidemill worker module:app --stores reports")
    assert {one["store"] for one in findings if one["check"] == "schema"} == {"default", "reports", "archive"}
    alerts = json.loads(shop.run("alerts", "--json").stdout)
    assert [(one["code"], one["subject"]) for one in alerts] == [("unserved_store", "reports")]
    assert "reports: workers" in shop.run("doctor").output


def test_tick_runs_the_jobs_of_all_stores_or_of_the_named_ones(shop: Shop) -> None:
    for store in ("default", "reports"):
        shop.json("jobs", "enqueue", "send", "to=ada", "--store-name", store)
    sys.modules.pop(shop.name, None)
    done = call("tick", shop.where, "--stores", "reports", "--json")
    assert json.loads(done.stdout)["processed"] == 1
    sys.modules.pop(shop.name, None)
    assert json.loads(call("tick", shop.where, "--json").stdout)["processed"] == 1


def test_api_keys_are_kept_in_the_default_store(shop: Shop) -> None:
    shop.json("keys", "create", "ci", "--store-name", "reports")
    assert [key["name"] for key in shop.json("keys", "list")] == ["ci"]


def test_bad_names_of_stores_are_explained(shop: Shop) -> None:
    unknown = shop.run("jobs", "list", "--store-name", "nowhere")
    assert (unknown.exit_code, "there is no store named 'nowhere'" in unknown.stderr) == (2, True)
    alone = call("jobs", "list", "--store", "sqlite:///x.db", "--store-name", "reports")
    assert "--store-name chooses a store of an app" in alone.stderr
