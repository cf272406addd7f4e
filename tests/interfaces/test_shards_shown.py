"""Tests of shards in the command line, the HTTP API and the dashboard."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from starlette.testclient import TestClient
from tests.client.shards_kit import away, sharded_app, unsettled
from tests.interfaces.rest.kit import Browser

from tidemill import App
from tidemill.cli import commands
from tidemill.dashboard import create_site
from tidemill.domain.filters import JobFilter
from tidemill.domain.states import JobState
from tidemill.domain.tenant_placement import PlacementState
from tidemill.engine.store_shares import chosen_stores, read_shard_choice
from tidemill.errors import BadSettings

SOURCE = """
from tidemill import App
from tests.client.shards_kit import sharded_app
app = sharded_app({urls!r})
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    urls = {name: f"sqlite:///{tmp_path / name}.db" for name in ("home", "eu", "us")}
    (tmp_path / "sharded_shop.py").write_text(SOURCE.format(urls=urls))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TIDEMILL_APP", "sharded_shop:app")
    with sharded_app(urls) as made:
        made.task(name="double")(lambda: None)
        for tenant in ("eu-acme", "us-blue"):
            with made.tenant(tenant):
                made.enqueue("double")
        yield made
    sys.modules.pop("sharded_shop", None)


def invoke(*args: str) -> Result:
    sys.modules.pop("sharded_shop", None)
    return CliRunner().invoke(commands, args)


def run(*args: str) -> Any:
    sys.modules.pop("sharded_shop", None)
    done = CliRunner().invoke(commands, [*args, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


# The command line --------------------------------------------------------------------------------------------------------


def test_commands_list_shards_and_placements(app: App) -> None:
    statuses = {row["name"]: row for row in run("shards", "list")}
    assert {name: row["tenants"] for name, row in statuses.items()} == {"default": 0, "eu": 1, "us": 1}
    assert (statuses["default"]["home"], statuses["eu"]["waiting"], statuses["us"]["status"]) == (
        True,
        1,
        "ok",
    )
    assert [(row["tenant"], row["shard"]) for row in run("shards", "tenants", "--shard", "us")] == [
        ("us-blue", "us")
    ]


def test_a_command_places_a_new_tenant(app: App) -> None:
    assert run("shards", "place", "acme", "--shard", "us")["shard"] == "us"
    assert app.shards.of("acme").shard == "us"


def test_lists_of_commands_cover_all_shards_and_store_name_chooses_one(app: App) -> None:
    assert {job["tenant"] for job in run("jobs", "list")["items"]} == {"eu-acme", "us-blue"}
    assert {job["tenant"] for job in run("jobs", "list", "--store-name", "us")["items"]} == {"us-blue"}
    (job,) = app.jobs.list(tenant="us-blue").items
    assert run("jobs", "show", str(job.id))["store"] == "us"


def test_commands_find_and_cancel_a_job_in_its_shard(app: App) -> None:
    (job,) = app.jobs.list(tenant="us-blue").items
    done = CliRunner().invoke(commands, ["jobs", "cancel", job.id.hex[-12:]])
    assert done.exit_code == 0, done.output
    assert job.refresh().status == "cancelled"


def test_the_doctor_examines_an_app_with_shards(app: App) -> None:
    sys.modules.pop("sharded_shop", None)
    done = CliRunner().invoke(commands, ["doctor", "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["checks"], done.output


def test_a_worker_serves_all_shards_or_some(app: App) -> None:
    assert read_shard_choice("all") == {}
    assert chosen_stores({}, read_shard_choice("eu=2,us")) == {"eu": 2, "us": None}
    with pytest.raises(BadSettings, match="give --stores or --shards, not both"):
        chosen_stores({"eu": None}, {"us": None})
    with app.worker(stores=["us"]):
        (theirs,) = app.jobs.list(tenant="us-blue").items
        theirs.result(timeout=20)
    (others,) = app.jobs.list(tenant="eu-acme").items
    assert others.status == "pending"


# The HTTP API and the dashboard ------------------------------------------------------------------------------------------


@pytest.fixture
def web(app: App) -> Iterator[TestClient]:
    key = app.keys.create("ann", role="super_admin", tenant="*").secret
    with TestClient(create_site(app), headers={"authorization": f"Bearer {key}"}) as client:
        yield client


def test_the_api_lists_shards_and_placements_and_places_a_tenant(app: App, web: TestClient) -> None:
    shards = {row["name"]: row for row in web.get("/api/shards").json()["items"]}
    assert {name: row["tenants"] for name, row in shards.items()} == {"default": 0, "eu": 1, "us": 1}
    placed = web.put("/api/placements/acme", json={"shard": "eu"})
    assert (placed.status_code, placed.json()["shard"]) == (200, "eu")
    assert [row["tenant"] for row in web.get("/api/placements").json()["items"]] == [
        "acme",
        "eu-acme",
        "us-blue",
    ]
    wrong = web.put("/api/placements/other", json={"shard": "mars"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "bad_settings")


def test_the_api_covers_all_shards_and_names_those_without_an_answer(app: App, web: TestClient) -> None:
    answer = web.get("/api/jobs")
    assert {job["tenant"] for job in answer.json()["items"]} == {"eu-acme", "us-blue"}
    assert "tidemill-missing" not in answer.headers
    with away(app, "us"):
        answer = web.get("/api/jobs")
        assert {job["tenant"] for job in answer.json()["items"]} == {"eu-acme"}
        assert answer.headers["tidemill-missing"] == "us"


def test_the_api_creates_and_cancels_a_job_in_the_shard_of_its_tenant(app: App, web: TestClient) -> None:
    made = web.post("/api/jobs?tenant=us-blue", json={"task": "double", "args": {}})
    assert made.status_code == 201, made.text
    job = app.jobs.get(made.json()["id"], tenant="us-blue")
    assert job.store_name == "us"
    cancelled = web.post(f"/api/jobs/{job.id}/cancel")
    assert cancelled.status_code == 200, cancelled.text
    assert job.refresh().status == "cancelled"


def test_pages_cover_all_shards_and_name_those_without_an_answer(app: App) -> None:
    key = app.keys.create("bob", role="super_admin", tenant="*").secret
    web = Browser(create_site(app))
    assert web.request("POST", "/sign-in", data={"key": key}).status_code == 303
    web.bearer = f"Bearer {key}"
    text = web.request("GET", "/jobs").text
    assert "eu-acme" in text
    assert "us-blue" in text
    assert "all shards" in text
    for path in (
        "/",
        "/queues",
        "/tasks",
        "/schedules",
        "/workers",
        "/tenants",
        "/errors",
        "/flows",
        "/logs",
        "/alerts",
    ):
        answer = web.request("GET", path)
        assert answer.status_code == 200, (path, answer.text[-500:])
        assert "data-missing" not in answer.text
    with away(app, "us"):
        text = web.request("GET", "/jobs").text
        assert "us does not answer" in text
        assert "us-blue" not in text.partition("<main")[2].partition("<table")[2]
    assert "us-blue" in web.request("GET", "/jobs?store=us").text
    assert "eu-acme" not in web.request("GET", "/jobs?store=us").text.partition("<table")[2]
    web.close()


def test_a_command_moves_a_tenant_and_the_api_shows_where_it_is(app: App, web: TestClient) -> None:
    with unsettled():
        row = run("tenants", "move", "eu-acme", "--to", "us")
    assert (row["shard"], row["state"], row["target"], row["former"]) == ("us", "placed", None, ["eu"])
    assert app.stores["us"].count(JobFilter("eu-acme")) == {JobState.PENDING: 1}
    rows = {row["tenant"]: row for row in web.get("/api/placements").json()["items"]}
    assert rows["eu-acme"]["shard"] == "us"
    with unsettled():
        done = invoke("tenants", "move", "eu-acme", "--to", "eu")
    assert done.stdout == "tenant eu-acme is in the shard eu; jobs carried: 1\n"


def test_a_command_cancels_a_move(app: App) -> None:
    (row,) = app.stores["default"].placed(["eu-acme"])
    app.stores["default"].replace([replace(row, state=PlacementState.MOVING, target="us")])
    assert run("shards", "tenants")[0]["state"] == "moving"
    assert run("tenants", "move", "eu-acme", "--cancel")["state"] == "placed"
    done = invoke("tenants", "move", "eu-acme", "--cancel")
    assert "tenant 'eu-acme' is not moving" in done.stderr
    done = invoke("tenants", "move", "eu-acme")
    assert "pass --to SHARD, or --cancel" in done.stderr
