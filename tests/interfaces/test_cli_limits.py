"""``tidemill limits``, ``tidemill config`` and ``tidemill tasks set``."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.client.limits_kit import claim
from tests.interfaces.cli_kit import Shop, call, make_shop

from tidemill.cli import commands

MORE = """
from tidemill import Breaker, Limit, Rate


@app.task(max_concurrent=4, limits=[Limit(2, key="account"), Rate(100, per=timedelta(seconds=1))], breaker=Breaker("api"))
def charge(account: int) -> None: ...
"""


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = make_shop(tmp_path)
    with (tmp_path / f"{made.name}.py").open("a", encoding="utf-8") as file:
        file.write(MORE)
    assert call("db", "migrate", "--store", made.url).exit_code == 0
    return made


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))


def test_limits_are_listed_with_their_maximum_and_their_use(shop: Shop) -> None:
    assert shop.run("limits", "list").stdout.startswith("no limits")
    with shop.app() as app:
        app.bound_task("charge").enqueue_many([{"account": 7}] * 3)
        claim(app.store)
    text = shop.run("limits", "list").stdout
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert "4 at a time" in lines["task/charge"]
    assert "2/4" in lines["task/charge"]
    assert "2/2" in lines["charge.limit.account"]
    assert "most by charge.limit.account/7, 1 full" in lines["charge.limit.account"]
    assert "100 in 1s" in lines["charge.rate"]
    assert "closed" in lines["breaker/api"]
    found = {each["name"]: each for each in shop.json("limits", "list")}
    assert (found["task/charge"]["used"], found["task/charge"]["room"]) == (2, 2)
    assert [key["name"] for key in found["charge.limit.account"]["keys"]] == ["charge.limit.account/7"]
    assert found["charge.rate"]["per"] == 1.0
    shown = shop.run("limits", "show", "charge.limit.account").stdout
    assert "charge.limit.account/7" in shown
    assert shop.json("limits", "show", "charge.limit.account/7")["room"] == 0


def test_a_limit_is_set_shown_and_unset(shop: Shop) -> None:
    done = shop.run("limits", "set", "queue/mail", "5")
    assert done.stdout == "limit queue/mail allows 5 at a time; running jobs continue\n"
    assert "set by cli:" in shop.run("limits", "show", "queue/mail").stdout
    rate = shop.json("limits", "set", "queue/mail", "50", "--per", "1s", "--burst", "10")
    assert (rate["kind"], rate["max"], rate["per"], rate["burst"]) == ("rate", 50, 1.0, 10)
    assert "50 in 1s, 10 at once" in shop.run("limits", "list").stdout
    assert shop.run("limits", "set", "depth/queue/mail", "10000").stdout.startswith(
        "limit depth/queue/mail allows 10,000 waiting"
    )
    assert shop.run("limits", "unset", "queue/mail", "queue/other").stdout == (
        "limit queue/mail is reset to the value in the code\nlimit queue/other was not set\n"
    )
    assert shop.json("limits", "unset", "depth/queue/mail") == ["depth/queue/mail"]
    assert [each["action"] for each in shop.json("audit", "list")] == [
        "limit.removed", "limit.removed", "limit.changed", "limit.changed", "limit.changed",
    ]  # fmt: skip


def test_show_prints_the_declared_limit_next_to_the_one_that_is_set(shop: Shop) -> None:
    shop.run("limits", "set", "task/charge", "1")
    text = shop.run("limits", "show", "task/charge").stdout
    assert "the code says  4 at a time" in text
    assert "1 at a time" in text
    shop.run("limits", "unset", "task/charge")
    assert shop.json("limits", "show", "task/charge")["max"] == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "mial.rate", "5"), "there is no limit 'mial.rate'"),
        (("set", "queue/", "5"), "is not the queue's name"),
        (("set", "queue/a", "-5"), "No such option"),
        (("set", "queue/a", "5", "--burst", "3"), "give per too"),
        (("set", "breaker/api", "5"), "a breaker is declared by its tasks"),
        (("show", "nobody"), "there is no limit 'nobody'"),
        (("reset-breaker", "nobody"), "there is no breaker 'nobody'"),
    ],
)
def test_an_invalid_limit_is_rejected_with_a_message(shop: Shop, words: tuple[str, ...], said: str) -> None:
    done = shop.run("limits", *words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_breaker_is_reset(shop: Shop) -> None:
    with shop.app() as app:
        app.declare_limits()
    assert shop.run("limits", "reset-breaker", "api").stdout == "breaker/api is closed\n"
    assert shop.json("limits", "reset-breaker", "breaker/api")["phase"] == "closed"


def test_stats_and_top_show_the_use_of_limits(shop: Shop) -> None:
    assert "Limits" not in shop.run("stats").stdout
    shop.run("limits", "set", "queue/mail", "1")
    shop.run("jobs", "enqueue", "send", "to=ann")
    assert "queue/mail   0/1" in shop.run("stats").stdout
    assert "queue/mail" in shop.run("top", "--once").stdout
    assert [each["name"] for each in shop.json("stats")["limits"]] == ["queue/mail"]


def test_queues_whose_jobs_all_have_limits_are_listed(shop: Shop) -> None:
    shop.run("jobs", "enqueue", "charge", "account=1", "--queue", "till")
    found = {each["name"]: each["pending"] for each in shop.json("queues", "list")}
    assert found["till"] == 1
    assert [(each["name"], each["pending"]) for each in shop.json("stats")["queues"]] == [("till", 1)]


# Settings --------------------------------------------------------------------------------------------------------------


def test_settings_are_listed_set_and_unset(shop: Shop) -> None:
    assert "worker_enabled" in shop.run("config", "list").stdout
    assert shop.run("config", "set", "worker_enabled", "false").stdout == "worker_enabled is false\n"
    shop.run("config", "set", "smtp_password", "sesame", "--description", "of the relay")
    shop.run("config", "set", "greeting", "hello")
    found = {each["key"]: each for each in shop.json("config", "list")}
    assert found["worker_enabled"]["value"] is False
    assert found["worker_enabled"]["description"] == "Whether workers claim anything at all."
    assert found["greeting"]["value"] == "hello"
    assert "sesame" not in str(found) + shop.run("config", "list").stdout
    assert shop.run("config", "unset", "greeting", "nothing").stdout == (
        "greeting is removed\nnothing was not set\n"
    )
    assert "greeting" not in shop.run("config", "list").stdout


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("worker_enabled", "no", "give a bool"),
        ("worker_enabled", "1", "give a bool"),
        ("task/send", "5", "a dictionary of max_attempts, timeout and retry_delay"),
        ("task/send", '{"max_attempts": 0}', "one is the least"),
        ("task/send", '{"timeout": -1}', "longer than zero"),
        ("task/send", '{"queue": "x"}', "a dictionary of max_attempts, timeout and retry_delay"),
    ],
)
def test_a_known_setting_is_validated(shop: Shop, key: str, value: str, said: str) -> None:
    done = shop.run("config", "set", key, value)
    assert done.exit_code == 2
    assert said in done.stderr
    assert shop.json("config", "list") == []


def test_a_task_is_changed_at_run_time_and_shown_next_to_its_declaration(shop: Shop) -> None:
    words = ("--max-attempts", "7", "--timeout", "30s", "--max-concurrent", "2")
    done = shop.run("tasks", "set", "send", *words)
    assert done.stdout == "task send: 7 attempts, timeout 30s, 2 at a time\n"
    (setting,) = shop.json("config", "list")
    assert (setting["key"], setting["value"]) == ("task/send", {"max_attempts": 7, "timeout": 30.0})
    assert shop.json("limits", "show", "task/send")["max"] == 2
    shown = shop.run("tasks", "show", "send").stdout
    assert "7 attempts, timeout 30s, 2 at a time" in shown
    assert "2m" in shown
    document = shop.json("tasks", "show", "send")
    assert document["set"] == {"max_attempts": 7, "timeout": 30.0, "max_concurrent": 2}
    assert document["max_attempts"] == 3
    again = shop.json("tasks", "set", "send", "--unset", "timeout", "--unset", "max-concurrent")
    assert again["set"] == {"max_attempts": 7}
    assert shop.run("tasks", "set", "send", "--unset", "max_attempts").stdout == (
        "task send is reset to the values in the code\n"
    )
    assert shop.json("config", "list") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nobody", "--timeout", "3s"), "nobody"),
        (("send",), "nothing to set"),
        (("send", "--unset", "queue"), "there is no queue"),
        (("send", "--timeout", "3s", "--unset", "timeout"), "cannot be set and unset at once"),
        (("send", "--max-attempts", "0"), "0 is not in the range"),
        (("send", "--timeout", "0s"), "longer than zero"),
    ],
)
def test_an_invalid_change_is_rejected(shop: Shop, words: tuple[str, ...], said: str) -> None:
    done = shop.run("tasks", "set", *words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_the_new_commands_are_in_the_help() -> None:
    assert {"limits", "config"} <= set(commands.list_commands(None))  # type: ignore[arg-type]
    assert "List, set and reset limits" in call("--help").stdout
