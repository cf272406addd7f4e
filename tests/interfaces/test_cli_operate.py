"""``tidemill tasks``, ``queues``, ``workers``, ``leases``, ``stats`` and ``top``."""

from __future__ import annotations

import json
import re
import sys
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from tests.interfaces.cli_kit import Shop, call, make_shop, terminal

from tidemill.domain.cluster import Worker, WorkerState, holder_data
from tidemill.domain.job import NewJob, Progress, ProgressReport
from tidemill.domain.lanes import ClaimRequest, Watermarks
from tidemill.ids import new_id

HOUR = timedelta(hours=1)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("USER", "ann")
    return make_shop(tmp_path)


def crew(shop: Shop) -> dict[str, str]:
    """Create two pending jobs, a running one, a live worker, a dead one, and a lease with two duties."""
    for name in ("ann", "bob", "eve"):
        shop.run("jobs", "enqueue", "send", f"to={name}")
    with shop.app() as app:
        store = app.store
        living = store.register(
            Worker(new_id(), "w1", host="h", pid=7, queues=("mail",), tasks=("send",), concurrency=4),
            lease=HOUR,
        )
        gone = store.register(Worker(new_id(), "old"), lease=timedelta(microseconds=1))
        marks = Watermarks()
        marks.seen(store.lanes())
        (claim,) = store.claim(ClaimRequest(living.id, marks.lanes(), 1))
        store.report(
            [
                ProgressReport(
                    claim.id, claim.token, claim.worker, Progress(0.5, message="half [red]way\x1b[0m")
                )
            ]
        )
        lease = store.acquire("duties", living.id, ttl=HOUR)
        assert lease is not None
        duties = {
            "promote": {
                "last_tick": app.clock.now().isoformat(),
                "items": 12,
                "errors": 0,
                "last_error": None,
                "took_ms": 1.5,
            },
            "reclaim": {
                "last_tick": None,
                "items": 0,
                "errors": 3,
                "last_error": "StoreBusy: x",
                "took_ms": 0,
            },
        }
        store.renew("duties", living.id, lease.term, ttl=HOUR, metadata={"duties": duties})
        return {"living": str(living.id), "gone": str(gone.id), "running": str(claim.id)}


# Tasks and queues --------------------------------------------------------------------------------------------------------


def test_tasks_are_listed_with_their_options_and_counts(shop: Shop) -> None:
    crew(shop)
    found = {task["name"]: task for task in shop.json("tasks", "list")}
    assert set(found) == {"send", "look", "fail"}
    assert found["send"]["counts"] == {"pending": 2, "running": 1}
    assert found["send"]["queue"] == "mail"
    assert found["send"]["max_attempts"] == 3
    assert found["send"]["timeout"] == 120.0
    assert found["send"]["description"] == "Send one letter."
    assert "Send one letter." in shop.run("tasks", "list").stdout


def test_without_an_app_tasks_come_from_waiting_jobs_and_workers(shop: Shop) -> None:
    crew(shop)
    found = json.loads(call("tasks", "list", "--store", shop.url, "--json").stdout)
    assert [task["name"] for task in found] == ["send"]
    assert call("tasks", "show", "send", "--store", shop.url).exit_code == 0
    assert call("tasks", "show", "nope", "--store", shop.url).exit_code == 2


def test_a_task_is_shown_with_its_arguments(shop: Shop) -> None:
    crew(shop)
    shown = shop.json("tasks", "show", "send")
    assert shown["schema"]["required"] == ["to"]
    assert shown["retry"]["kind"] == "exponential"
    assert shown["retry"]["max_attempts"] == shown["max_attempts"] == 3
    said = shop.run("tasks", "show", "send").stdout
    assert re.search(r"to +string +required", said)
    assert re.search(r"size +integer +default 1", said)
    assert re.search(r"^retry +3 attempts", said, re.MULTILINE)
    assert "timedelta" not in said
    assert shop.run("tasks", "show", "sned").exit_code == 2


@pytest.mark.parametrize(("group", "name"), [("tasks", "send"), ("queues", "mail")])
def test_a_pause_records_who_and_why_until_it_is_resumed(shop: Shop, group: str, name: str) -> None:
    (made,) = shop.json(group, "pause", name, "--reason", "flood")
    assert (made["name"], made["reason"], made["paused_by"]) == (name, "flood", "cli:ann")
    again = shop.run(group, "pause", name, "--reason", "other")
    assert again.exit_code == 0
    assert "is paused already (paused by cli:ann" in again.stdout
    assert "flood" in shop.run(group, "list").stdout
    id = shop.run("jobs", "enqueue", "send", "to=x").stdout.strip()
    assert "paused by cli:ann" in shop.run("jobs", "why", id).stdout
    assert "is resumed" in shop.run(group, "resume", name).stdout
    assert "was not paused" in shop.run(group, "resume", name).stdout


@pytest.mark.parametrize(
    ("words", "kind", "name"),
    [(("queues", "--all"), "all", ""), (("tenants", "default"), "tenant", "default")],
)
def test_the_whole_store_and_a_tenant_can_be_paused_and_resumed_too(
    shop: Shop, words: tuple[str, str], kind: str, name: str
) -> None:
    group, which = words
    id = shop.run("jobs", "enqueue", "send", "to=x").stdout.strip()
    (made,) = shop.json(group, "pause", which, "--reason", "flood")
    assert (made["kind"], made["name"], made["paused_by"]) == (kind, name, "cli:ann")
    what = "everything" if kind == "all" else "tenant default"
    assert f"{what} is paused already (paused by cli:ann" in shop.run(group, "pause", which).stdout
    assert "paused by cli:ann" in shop.run("jobs", "why", id).stdout
    assert f"(flood); tidemill {group} resume {which}" in shop.run("doctor").stdout
    assert shop.run(group, "resume", which).stdout == f"{what} is resumed\n"
    assert shop.run(group, "resume", which).stdout == f"{what} was not paused\n"


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("which", [(), ("mail", "--all")])
def test_pause_and_resume_need_queue_names_or_all(shop: Shop, verb: str, which: tuple[str, ...]) -> None:
    said = shop.run("queues", verb, *which)
    assert (said.exit_code, said.stderr) == (
        2,
        "tidemill: name the queues, or pass --all for all of them\n",
    )


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize(
    ("group", "typed", "hint"),
    [
        ("queues", "mial", "no task, worker or job uses queue 'mial'; did you mean 'mail'?"),
        ("tasks", "sned", "no task is named 'sned'; did you mean 'send'?"),
        ("tenants", "acmee", "no job, pause or setting uses tenant 'acmee'; did you mean 'acme'?"),
    ],
)
def test_an_unknown_name_is_rejected_with_a_suggestion(
    shop: Shop, verb: str, group: str, typed: str, hint: str
) -> None:
    shop.run("jobs", "enqueue", "send", "to=ann", "--tenant", "acme")
    for store in (("--app", shop.where), ("--store", shop.url)):
        sys.modules.pop(shop.name, None)
        done = call(group, verb, typed, *store)
        assert (done.exit_code, done.stderr) == (2, f"tidemill: {hint}\n")
    assert shop.run(group, "pause", "zzz").exit_code == 2
    assert shop.run(group, "pause", "zzz", "--new").exit_code == 0
    assert shop.run(group, "resume", "zzz").stdout == f"{group[:-1]} zzz is resumed\n"


def test_a_task_whose_jobs_wait_can_be_paused_even_if_the_app_no_longer_declares_it(shop: Shop) -> None:
    with shop.app() as app:
        app.store.enqueue([NewJob(new_id(), "renamed")])
    assert shop.run("tasks", "pause", "renamed").stdout == "task renamed is paused; running jobs continue\n"


def test_an_action_on_the_jobs_of_an_unknown_task_or_queue_is_rejected(shop: Shop) -> None:
    shop.run("jobs", "enqueue", "send", "to=ann")
    for words in (("cancel", "--task", "sned"), ("delete", "--queue", "mial"), ("retry", "--task", "sned")):
        done = shop.run("jobs", *words, "--yes")
        assert done.exit_code == 2
        assert "did you mean" in done.stderr
    assert shop.json("jobs", "count")["counts"] == {"pending": 1}


def test_a_list_of_an_unknown_task_or_queue_names_the_problem(shop: Shop) -> None:
    shop.run("jobs", "enqueue", "send", "to=ann")
    shown = shop.run("jobs", "list", "--task", "sned")
    assert (shown.exit_code, shown.stdout) == (0, "no task is named 'sned'; did you mean 'send'?\n")
    assert "did you mean 'mail'?" in shop.run("jobs", "count", "--queue", "mial").stdout
    assert shop.run("jobs", "list", "--task", "look").stdout.startswith("no live jobs")
    assert shop.json("jobs", "list", "--task", "sned")["items"] == []


def test_a_new_queue_with_a_similar_name_is_probably_a_typing_error(shop: Shop) -> None:
    done = shop.run("jobs", "enqueue", "send", "to=ann", "--queue", "mial")
    assert done.exit_code == 2
    assert "did you mean 'mail'? --new allows a new queue" in done.stderr
    id = shop.run("jobs", "enqueue", "send", "to=ann", "--queue", "slow").stdout.strip()
    assert shop.run("jobs", "change", id, "--to-queue", "mial").exit_code == 2
    assert shop.run("jobs", "change", id, "--to-queue", "mial", "--new").exit_code == 0
    assert shop.json("jobs", "show", id)["queue"] == "mial"


def test_queues_are_listed_with_pending_jobs_and_the_oldest(shop: Shop) -> None:
    crew(shop)
    found = {queue["name"]: queue for queue in shop.json("queues", "list")}
    assert set(found) == {"default", "mail"}
    assert found["mail"]["pending"] == 2
    assert found["mail"]["oldest_at"] is not None
    assert found["default"] == {"name": "default", "pending": 0, "oldest_at": None, "paused": None}
    assert json.loads(call("queues", "list", "--store", shop.url, "--tenant", "x", "--json").stdout) == [
        {"name": "mail", "pending": 0, "oldest_at": None, "paused": None}  # a live worker serves it
    ]


# Workers and leases ------------------------------------------------------------------------------------------------------


def test_workers_are_listed_with_held_jobs_and_liveness(shop: Shop) -> None:
    ids = crew(shop)
    (living,) = shop.json("workers", "list")
    assert (living["id"], living["liveness"], living["held"]) == (ids["living"], "alive", 1)
    assert {worker["liveness"] for worker in shop.json("workers", "list", "--all")} == {"alive", "gone"}
    assert "no workers" not in shop.run("workers", "list").stdout


@pytest.mark.parametrize("by", ["id", "name"])
def test_a_worker_is_drained_by_id_or_by_name(shop: Shop, by: str) -> None:
    ids = crew(shop)
    said = shop.run("workers", "drain", ids["living"] if by == "id" else "w1")
    assert "w1 drains; it holds 1 job" in said.stdout
    with shop.app() as app:
        assert {worker.state for worker in app.store.workers() if worker.name == "w1"} == {
            WorkerState.DRAINING
        }
    assert shop.run("workers", "drain", "w1").exit_code == 0
    assert shop.run("workers", "drain", "old").exit_code == 2


def test_the_holder_of_a_lease_is_named(shop: Shop) -> None:
    known = crew(shop)
    living = UUID(known["living"])
    (lease,) = shop.json("leases", "list")
    assert (lease["holder_name"], lease["holder_workers"]) == ("w1", [known["living"]])
    with shop.app() as app:
        facts = {"holder": holder_data("box-7", [living])}
        assert app.store.renew("duties", living, 1, ttl=HOUR, metadata=facts)
    assert "box-7 (supervises w1)" in shop.run("leases", "list").stdout
    (leader,) = shop.json("stats", "leaders")["rows"]
    assert leader["holder_name"] == "box-7"
    with shop.app() as app:
        assert app.store.renew("duties", living, 1, ttl=HOUR, metadata={"coordination": "steal"})
        assert app.store.release("duties", living, 1)
    assert "not used (coordination: steal)" in shop.run("leases", "list").stdout


def test_a_lease_for_each_duty_is_listed_with_its_holder_and_health(shop: Shop) -> None:
    known = crew(shop)
    living = UUID(known["living"])
    with shop.app() as app:
        assert app.store.renew(
            "duties", living, 1, ttl=HOUR, metadata={"coordination": "a lease for each duty"}
        )
        assert app.store.release("duties", living, 1)
        for duty, box in (("fire", "box-1"), ("promote", "box-2")):
            holder = new_id()
            assert app.store.acquire(f"duties:{duty}", holder, ttl=HOUR)
            status = {"last_tick": app.store.now().isoformat(), "items": 7, "errors": 0, "every": 5.0}
            facts = {"holder": holder_data(box, []), "duties": {duty: status}}
            assert app.store.renew(f"duties:{duty}", holder, 1, ttl=HOUR, metadata=facts)
    said = shop.run("leases", "list").stdout
    assert "not used (coordination: a lease for each duty)" in said
    assert re.search(r"duties:fire +box-1 +ok +1 ", said)
    assert re.search(r"duties:promote +box-2 +ok +1 ", said)
    assert re.search(r"duties:promote +promote +\S+ +\S* *7 +0", said)
    leaders = {row["lease"]: row["holder_name"] for row in shop.json("stats", "leaders")["rows"]}
    assert leaders == {"duties": None, "duties:fire": "box-1", "duties:promote": "box-2"}


def test_leases_are_listed_with_a_line_per_duty_and_released(shop: Shop) -> None:
    crew(shop)
    (lease,) = shop.json("leases", "list")
    assert (lease["name"], lease["term"], lease["held"]) == ("duties", 1, True)
    assert lease["duties"]["promote"]["items"] == 12
    said = shop.run("leases", "list").stdout
    assert re.search(r"duties +w1 +ok +1 ", said)
    assert re.search(r"promote .* 12 +0 +2ms", said)
    assert "StoreBusy: x" in said
    assert "lease duties is free" in shop.run("leases", "release", "duties").stdout
    assert "free already" in shop.run("leases", "release", "duties").stdout
    assert shop.run("leases", "release", "nope").exit_code == 2


# Stats and top -----------------------------------------------------------------------------------------------------------


def test_stats_count_states_queues_tasks_workers_and_recent_jobs(shop: Shop) -> None:
    crew(shop)
    found = shop.json("stats")
    assert found["counts"] == {"pending": 2, "running": 1}
    assert found["tasks"] == {"send": 2}
    assert found["queues"][0]["pending"] == 2
    assert found["recent"]["hour"] == {"enqueued": 3, "completed": 0, "failed": 0}
    assert found["workers"]["alive"] == 1
    assert found["workers"]["gone"] == 1
    said = shop.run("stats").stdout
    for word in ("pending", "Queues", "Pending by task", "1 alive, 4 slots", "oldest pending"):
        assert word in said


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_top_draws_one_frame_that_fits_and_escapes_control_characters(shop: Shop, columns: int) -> None:
    crew(shop)
    done = shop.run("top", "--once", env=terminal(columns, NO_COLOR="1"))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    assert done.exit_code == 0
    assert all(len(line) <= columns for line in plain.splitlines()), plain
    assert "\x1b" not in plain
    assert "2 pending" in plain
    if columns == 200:
        assert "half [red]way\\x1b[0m" in plain


def test_top_prints_one_line_of_json_per_frame(shop: Shop) -> None:
    ids = crew(shop)
    (line,) = shop.run("top", "--once", "--json").stdout.splitlines()
    frame = json.loads(line)
    assert [job["id"] for job in frame["running"]] == [ids["running"]]
    assert [worker["name"] for worker in frame["living"]] == ["w1"]


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "list"), ("tasks", "list"), ("queues", "list"), ("workers", "list"), ("leases", "list"), ("stats",),
        ("top", "--once"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("env", [{}, terminal(40)])
def test_an_empty_store_is_reported_as_empty(
    tmp_path: Path, words: tuple[str, ...], env: dict[str, str]
) -> None:
    url = f"sqlite:///{tmp_path}/empty.db"
    done = call(*words, "--store", url, env=env)
    assert done.exit_code == 0
    assert "no" in done.stdout
    printed = call(*words, "--store", url, "--json", env=env)
    assert json.loads(printed.stdout) is not None
