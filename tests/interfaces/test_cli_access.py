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

from tidemill import Secret
from tidemill.client.core import client_of
from tidemill.client.sessions import SessionApi
from tidemill.domain.access import Identity, Role
from tidemill.domain.cluster import Worker
from tidemill.domain.records import GENESIS, audit_hash
from tidemill.ids import new_id
from tidemill.tasks.secret_values import KEYS

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


def test_stored_secrets_are_sealed_again_with_the_newest_key(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (call("keys", "encryption", name).stdout.strip() for name in ("old", "new"))
    monkeypatch.setenv(KEYS, old)
    with shop.app() as app:
        app.task(name="pay")(pay)
        job = app.bound_task("pay").enqueue(card=Secret("4711"))
    monkeypatch.setenv(KEYS, f"{new},{old}")
    assert shop.json("keys", "status") == [
        {"key": "new", "values": 0, "state": "seals new values"},
        {"key": "old", "values": 1, "state": "opens old values"},
    ]
    done = shop.run("keys", "rotate")
    assert done.exit_code == 0
    assert done.stdout.startswith("1 rows are sealed with key new now")
    assert [row["key"] for row in shop.json("keys", "status") if row["values"]] == ["new"]
    with shop.app() as app:
        assert '"new:' in app.jobs.get(job.id).row.args
    monkeypatch.setenv(KEYS, call("keys", "encryption", "third").stdout.strip())
    kept = shop.run("keys", "rotate")
    assert kept.exit_code == 1
    assert "keep that key until these jobs are deleted" in kept.stdout


def pay(card: Secret[str]) -> None: ...


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


def test_an_expected_head_shows_that_the_chain_was_replaced_or_cut(shop: Shop) -> None:
    for name in ("a", "b"):
        shop.run("queues", "pause", name, "--new")
    head = shop.json("audit", "verify")["head"]
    shop.run("queues", "pause", "c", "--new")
    assert shop.run("audit", "verify", "--expect-head", head).exit_code == 0
    # An attacker with all rights removes the triggers, changes an entry and computes every hash again.
    tamper(shop, "update tidemill_audit set who = 'cli:eve' where number = 1")
    with shop.app() as app:
        records = app.audit.list(tenant="*")
    with closing(sqlite3.connect(shop.url.removeprefix("sqlite:///"))) as raw:
        previous = GENESIS
        for record in records:
            previous = audit_hash(previous, record.number, record.at, record.entry)
            raw.execute("update tidemill_audit set hash = ? where number = ?", (previous, record.number))
        raw.commit()
    assert shop.run("audit", "verify").exit_code == 0
    done = shop.run("audit", "verify", "--expect-head", head)
    assert done.exit_code == 1
    assert "does not contain the expected head" in done.stdout
    found = json.loads(shop.run("audit", "verify", "--json", "--expect-head", head).stdout)
    assert (found["ok"], found["broken_at"], found["has_expected_head"]) == (False, None, False)
    assert "is not a hash" in shop.run("audit", "verify", "--expect-head", "x").output


def test_sessions_are_listed_and_ended(shop: Shop) -> None:
    assert "no sessions" in shop.run("sessions", "list").stdout
    with shop.app() as app:
        api = SessionApi(client_of(app))
        cookies = [api.begin(who, timedelta(hours=1), key_id="ab12cd34") for who in ("ann", "bob", "cid")]
    first, *others = shop.json("sessions", "list")
    assert (first["who"], first["key_id"], len(others)) == ("ann", "ab12cd34", 2)
    assert cookies[0] is not None
    assert cookies[0] not in json.dumps(first)
    assert "ann" in shop.run("sessions", "list").stdout
    assert shop.run("sessions", "end").exit_code == 2
    assert shop.run("sessions", "end", first["id"], "none").exit_code == 2
    assert "of ann has ended" in shop.run("sessions", "end", first["id"]).stdout
    assert [session["who"] for session in shop.json("sessions", "list")] == ["bob", "cid"]
    assert len(shop.json("sessions", "end", "--all")) == 2
    assert shop.json("sessions", "list") == []
    assert [entry["action"] for entry in shop.json("audit", "list")] == [
        *["session.ended"] * 3,
        *["session.began"] * 3,
    ]


def test_the_sessions_of_one_user_are_ended(shop: Shop) -> None:
    with shop.app() as app:
        for who in ("ann", "ann", "bob"):
            app.sessions.begin(who, timedelta(hours=1))
    assert len(shop.json("sessions", "end", "--who", "ann")) == 2
    assert [session["who"] for session in shop.json("sessions", "list")] == ["bob"]


def test_permissions_of_a_key_are_explained(shop: Shop) -> None:
    made = shop.json("keys", "create", "reports", "--role", "operator", "--grant", "jobs.run task=send")
    assert made["grants"] == ["jobs.run task=send"]
    told = shop.run("access", "explain", made["id"], "jobs.run", "send")
    assert told.exit_code == 0
    assert "allowed" in told.stdout
    refused = shop.run("access", "explain", made["id"], "jobs.run", "look")
    assert refused.exit_code == 1
    assert "no grant includes jobs.run on task look" in " ".join(refused.stdout.split())
    acts = {act["act"]: act for act in shop.json("access", "acts")}
    assert acts["jobs.delete"]["second_role"] == "super_admin"
    assert "jobs.run" in shop.run("access", "acts").stdout
    both = shop.json("keys", "create", "both", "--tenant-role", "acme=admin", "--tenant-role", "bolt=viewer")
    assert both["roles"] == {"acme": "admin", "bolt": "viewer"}
    told = shop.run("access", "explain", both["id"], "jobs.run", "--in-tenant", "bolt")
    assert told.exit_code == 1


def test_options_of_single_sign_on_are_checked_before_the_server_starts(shop: Shop) -> None:
    def words(*options: str) -> str:
        told = shop.run("serve", *options)
        assert told.exit_code == 2
        return " ".join(told.output.split())

    assert "needs --oidc-client-id" in words("--oidc-issuer", "https://id.example")
    assert "need --oidc-issuer" in words("--oidc-client-id", "x")
    issuer = ("--oidc-issuer", "https://id.example", "--oidc-client-id", "x")
    assert "no roles" in words(*issuer)
    assert "NAME=VALUE" in words(*issuer, "--oidc-role", "ops")
    assert "https" in words(
        "--oidc-issuer", "http://id.example", "--oidc-client-id", "x", "--oidc-role", "a=admin"
    )
