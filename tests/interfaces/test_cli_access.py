"""``tidemill keys`` and ``tidemill audit``."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, call, make_shop, terminal

from tidemill.domain.access import Identity, Role
from tidemill.domain.cluster import Worker
from tidemill.ids import new_id

HOUR = timedelta(hours=1)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("USER", "ann")
    return make_shop(tmp_path)


def acts(shop: Shop) -> list[tuple[str, str, str]]:
    """The audit entries in order: who, action and subject."""
    found = shop.json("audit", "list", "--oldest", "--limit", "1000")
    return [(each["who"], each["action"], each["subject"]) for each in found]


def tamper(shop: Shop, change: str) -> None:
    with closing(sqlite3.connect(shop.url.removeprefix("sqlite:///"))) as raw:
        raw.execute("drop trigger tidemill_audit_no_update")
        raw.execute(change)
        raw.commit()


# Keys --------------------------------------------------------------------------------------------------------------------


def test_the_secret_of_a_key_is_printed_once_and_authenticates(shop: Shop) -> None:
    done = shop.run("keys", "create", "ci", "--role", "operator", "--tenant", "acme", "--expires", "90d")
    secret, words = done.stdout.splitlines()
    id = re.fullmatch(r"tm_([0-9a-f]{8})\.[\w-]{43}", secret)
    assert id is not None
    assert f"key {id[1]} (ci): operator for tenant acme, until " in words
    with shop.app() as app:
        assert app.keys.identify(secret) == Identity(f"key:{id[1]} (ci)", Role.OPERATOR, "acme")
    for printed in (shop.run("keys", "list").stdout, json.dumps(shop.json("keys", "list"))):
        assert id[1] in printed
        assert secret.partition(".")[2] not in printed
    assert "hash" not in shop.json("keys", "list")[0]


def test_a_narrow_screen_does_not_wrap_a_secret(shop: Shop) -> None:
    done = shop.run("keys", "create", "ci", env=terminal(20))
    assert re.fullmatch(r"tm_[0-9a-f]{8}\.[\w-]{43}", done.stdout.splitlines()[0])


def test_keys_are_listed_with_their_state_and_revoked(shop: Shop) -> None:
    made = [shop.json("keys", "create", name) for name in ("one", "two")]
    assert [(key["role"], key["tenant"], key["created_by"]) for key in made] == [
        ("viewer", "*", "cli:ann")
    ] * 2
    one, two = made[0]["id"], made[1]["id"]
    assert f"key {one} (one) is revoked" in shop.run("keys", "revoke", one).stdout
    assert "is revoked already" in shop.run("keys", "revoke", one).stdout
    assert {key["id"]: key["state"] for key in shop.json("keys", "list")} == {one: "revoked", two: "active"}
    with shop.app() as app:
        assert app.keys.identify(made[0]["secret"]) is None
        assert app.keys.identify(made[1]["secret"]) is not None


def test_a_wrong_argument_revokes_nothing(shop: Shop) -> None:
    id = shop.json("keys", "create", "ci")["id"]
    done = shop.run("keys", "revoke", id, "nope")
    assert done.exit_code == 2
    assert "there is no key 'nope'" in done.stderr
    assert shop.json("keys", "list")[0]["state"] == "active"
    assert shop.run("keys", "create", "x", "--role", "root").exit_code == 2
    assert shop.run("keys", "create", "x", "--tenant", " ").exit_code == 2


def test_key_commands_need_no_app(shop: Shop) -> None:
    done = call("keys", "create", "ci", "--store", shop.url, "--json")
    assert done.exit_code == 0
    assert "no keys" in call("keys", "list", "--store", shop.url + "2").stdout


# Audit log
# ---------------------------------------------------------------------------------------------------------------


def test_commands_that_change_something_are_recorded_in_the_audit_log(shop: Shop) -> None:
    id = shop.run("jobs", "enqueue", "send", "to=sesame").stdout.strip()
    with shop.app() as app:
        worker = app.store.register(Worker(new_id(), "w1"), lease=HOUR)
        app.store.acquire("duties", worker.id, ttl=HOUR)
    for words in (
        ("jobs", "cancel", id, "--reason", "why not"), ("jobs", "retry", id), ("jobs", "cancel", "--task", "send", "-y"),
        ("jobs", "delete", id), ("queues", "pause", "mail"), ("queues", "pause", "mail"), ("queues", "resume", "mail"),
        ("tasks", "pause", "send"), ("workers", "drain", "w1"), ("leases", "release", "duties"),
        ("schedules", "add", "often", "send", "--every", "1h", "--arg", "to=sesame"), ("schedules", "pause", "often"),
        ("schedules", "trigger", "often"), ("schedules", "remove", "often", "-y"),
    ):  # fmt: skip
        done = shop.run(*words)
        assert done.exit_code == 0, done.output
    key = shop.json("keys", "create", "ci")["id"]
    shop.run("keys", "revoke", key)
    assert acts(shop) == [
        ("cli:ann", action, subject)
        for action, subject in (
            ("job.cancelled", f"job:{id}"), ("job.retried", f"job:{id}"), ("jobs.cancelled", "jobs"),
            ("job.deleted", f"job:{id}"), ("queue.paused", "queue:mail"), ("queue.resumed", "queue:mail"),
            ("task.paused", "task:send"), ("worker.drained", f"worker:{worker.id}"), ("lease.released", "lease:duties"),
            ("schedule.added", "schedule:often"), ("schedule.paused", "schedule:often"),
            ("schedule.triggered", "schedule:often"), ("schedule.removed", "schedule:often"),
            ("key.created", f"key:{key}"), ("key.revoked", f"key:{key}"),
        )
    ]  # fmt: skip
    assert "sesame" not in json.dumps(shop.json("audit", "list"))
    (bulk,) = shop.json("audit", "list", "--action", "jobs.cancelled")
    assert bulk["after"]["filter"]["task"] == ["send"]
    assert bulk["after"]["ids"] == [id]


def test_the_audit_log_is_listed_newest_first_and_in_pages(shop: Shop) -> None:
    for name in ("a", "b", "c"):
        shop.run("queues", "pause", name, "--new")
    shop.run("queues", "resume", "a")

    def numbers(*words: str) -> list[int]:
        return [each["number"] for each in shop.json("audit", "list", *words)]

    assert numbers() == [4, 3, 2, 1]
    assert numbers("--limit", "2", "--before", "4") == [3, 2]
    assert numbers("--oldest", "--after", "2") == [3, 4]
    assert numbers("--action", "queue.resumed") == [4]
    assert numbers("--subject", "queue:a") == [4, 1]
    assert numbers("--who", "cli:bob") == []
    assert numbers("--tenant", "acme") == []
    said = shop.run("audit", "list", "--limit", "2").stdout
    assert re.search(r"4 .*cli:ann +queue.resumed +queue:a", said)
    assert "more: --before 3" in said


def test_control_characters_in_the_audit_log_are_not_printed(shop: Shop) -> None:
    with shop.app() as app:
        app.control.pause("queue", "mail", reason="\x1b[31mred\n")
    assert "\x1b" not in shop.run("audit", "list").stdout


def test_verify_reports_an_unchanged_audit_log_as_complete(shop: Shop) -> None:
    assert "no entries" in shop.run("audit", "list").stdout
    shop.run("queues", "pause", "mail")
    done = shop.run("audit", "verify")
    assert done.exit_code == 0
    assert "1 entry, and nothing was changed" in done.stdout
    assert shop.json("audit", "verify")["ok"] is True


def test_verify_names_a_changed_entry_and_exits_with_one(shop: Shop) -> None:
    for name in ("a", "b", "c"):
        shop.run("queues", "pause", name, "--new")
    tamper(shop, "update tidemill_audit set who = 'cli:eve' where number = 2")
    done = shop.run("audit", "verify")
    assert done.exit_code == 1
    assert "entry 2 does not follow" in done.stdout
    told = shop.run("audit", "verify", "--json")
    assert told.exit_code == 1
    found = json.loads(told.stdout)
    assert (found["ok"], found["entries"], found["broken_at"]) == (False, 1, 2)
