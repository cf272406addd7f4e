"""Commands for deployments: ``tasks check``, ``schedules sync``, schema versions."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, call, make_shop
from tests.stores.future_schema import migrate_to_the_future

from tidemill.domain.job import NewJob
from tidemill.domain.releases import Deployment, ReleaseRecord
from tidemill.ids import new_id
from tidemill.stores.open import open_store
from tidemill.stores.sql import migrations

SCHEDULED = """
from tidemill import Every

app.schedule(send, Every(timedelta(hours=1)), key="hourly", args={"to": "ann"})
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    return make_shop(tmp_path)


def put(shop: Shop, *jobs: tuple[str, str]) -> list[str]:
    store = open_store(shop.url)
    made = [NewJob(new_id(), task, args) for task, args in jobs]
    store.enqueue(made)
    store.close()
    return [str(job.id) for job in made]


def check(shop: Shop, *words: str) -> tuple[int, str]:
    sys.modules.pop(shop.name, None)
    done = call("tasks", "check", shop.where, *words)
    return done.exit_code, done.stdout


def test_check_succeeds_where_the_code_can_run_every_job(shop: Shop) -> None:
    put(shop, ("send", '{"to":"ann"}'))
    code, said = check(shop)
    assert (code, said) == (0, "this code can run 1 waiting jobs\n")


def test_check_lists_unknown_tasks_and_arguments_that_do_not_fit(shop: Shop) -> None:
    put(
        shop,
        ("send", '{"to":"ann"}'),
        ("send", '{"to":"bob","size":"big"}'),
        ("send", '{"to":"c","size":"x"}'),
    )
    first, _ = put(shop, ("resize", "{}"), ("look", "{}"))
    code, said = check(shop, "--json")
    assert code == 1
    found = json.loads(said)
    assert (found["looked"], found["more"]) == (5, False)
    assert [(each["task"], each["count"], each["problem"]) for each in found["unreadable"]] == [
        ("send", 2, "size: Input should be a valid integer"),
        ("look", 1, "what: required, but missing; give it a value"),
        ("resize", 1, "unknown task"),
    ]
    assert found["unreadable"][2]["examples"] == [first]
    code, said = check(shop)
    assert code == 1
    assert "unknown task" in said


def test_check_stops_at_its_limit_and_reports_it(shop: Shop) -> None:
    put(shop, *[("send", '{"to":"ann"}')] * 3)
    code, said = check(shop, "--most", "2")
    assert code == 0
    assert "only the oldest 2 were checked" in said


def test_check_can_use_another_store(shop: Shop, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    store = open_store(other)
    store.enqueue([NewJob(new_id(), "resize")])
    store.close()
    assert check(shop)[0] == 0
    assert check(shop, "--store", other)[0] == 1


def test_sync_is_refused_while_a_newer_release_is_alive_and_can_be_forced(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_RELEASE", "7")
    module = tmp_path / f"{shop.name}.py"
    module.write_text(module.read_text() + SCHEDULED)
    store = open_store(shop.url)
    store.put_release(ReleaseRecord(shop.where, Deployment(store.now(), "8")))
    store.close()
    refused = shop.run("schedules", "sync")
    assert refused.exit_code == 1
    assert "not changed: hourly; release 8, deployed at" in refused.stdout
    assert shop.run("schedules", "list").stdout.count("hourly") == 0
    assert shop.json("schedules", "sync", "--force")["added"] == ["hourly"]
    assert shop.json("schedules", "sync")["refused"] == []


def test_status_migrate_and_doctor_show_the_oldest_code_a_newer_schema_serves(shop: Shop) -> None:
    known = len(migrations.load("sqlite"))
    migrate_to_the_future(shop.url)
    words = f"schema version {known + 1} of {known}; it serves code from version {known} on"
    status = shop.run("db", "status")
    assert status.exit_code == 0
    assert words in status.stdout
    migrated = shop.run("db", "migrate")
    assert migrated.exit_code == 0
    assert "nothing to apply" in migrated.stdout
    assert words in migrated.stdout
    assert f"this older code needs version {known} and works with it" in shop.run("doctor").stdout


def test_status_and_doctor_explain_a_schema_that_no_longer_serves_this_code(shop: Shop) -> None:
    known = len(migrations.load("sqlite"))
    migrate_to_the_future(shop.url, serves=known + 1)
    for words in (("db", "status"), ("db", "migrate")):
        done = shop.run(*words)
        assert done.exit_code == 1
        assert "pip install --upgrade tidemill" in done.stderr
    assert "pip install --upgrade tidemill" in shop.run("doctor").stdout


DURABLE = """

def pay(order):
    return "paid"


@app.task
def fulfil(ctx: Context, order: int) -> str:
    paid = ctx.step("STEP", pay, order)
    ctx.sleep("wait", "1h")
    return paid
"""


def test_flows_check_names_functions_that_new_code_would_replay_in_another_way(
    shop: Shop, tmp_path: Path
) -> None:
    module = tmp_path / f"{shop.name}.py"
    plain = module.read_text(encoding="utf-8")
    module.write_text(plain + DURABLE.replace("STEP", "pay"), encoding="utf-8")
    with shop.app() as app:
        job = app.enqueue("fulfil", order=7)
        app.testing().drain()
    sys.modules.pop(shop.name, None)
    done = call("flows", "check", shop.where)
    assert (done.exit_code, done.stdout) == (0, "1 unfinished functions replay as recorded\n")

    module.write_text(plain + DURABLE.replace("STEP", "charge"), encoding="utf-8")
    sys.modules.pop(shop.name, None)
    done = call("flows", "check", shop.where, "--task", "fulfil", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {
        "replayed": 1,
        "jobs": [
            {
                "job": str(job.id),
                "task": "fulfil",
                "runs": "charge",
                "not_reached": ["pay", "wait"],
                "changed": [],
                "refused": None,
            }
        ],
    }
    sys.modules.pop(shop.name, None)
    done = call("flows", "check", shop.where)
    assert done.exit_code == 1
    assert "1 of 1 functions would change" in done.stdout
