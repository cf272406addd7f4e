"""``tidemill jobs``: listing, enqueueing, following and changing jobs."""

from __future__ import annotations

import json
import re
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.interfaces.cli_kit import Shop, call, make_shop, terminal

from tidemill import BoundTask, JobState
from tidemill.domain.job import Details, NewJob
from tidemill.ids import new_id


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    return make_shop(tmp_path)


def fill(shop: Shop) -> dict[str, str]:
    """Create one job per state; return the ids by state."""
    with shop.app() as app:
        jobs = app.registry
        assert len(jobs) == 3
    ids = {}
    for name, words in {
        "completed": ("send", "to=ann"),
        "review_needed": ("look", "what=x"),
        "failed": ("fail", "words=no way"),
    }.items():
        ids[name] = shop.run("jobs", "enqueue", *words).stdout.strip()
    shop.drain()
    ids["pending"] = shop.run("jobs", "enqueue", "send", "to=bob").stdout.strip()
    ids["scheduled"] = shop.run("jobs", "enqueue", "send", "to=eve", "--delay", "2h").stdout.strip()
    return ids


# Enqueueing --------------------------------------------------------------------------------------------------------------


def test_enqueue_validates_arguments_and_accepts_every_option(shop: Shop) -> None:
    made = shop.json(
        "jobs", "enqueue", "send", "to=007", "size=3", "--priority", "9", "--queue", "fast", "--delay", "1h30m",
        "--tag", "a", "--tag", "b", "--metadata", "customer=acme", "--metadata", "n=1", "--reference", "user:42",
        "--tenant", "acme", "--correlation-id", "story", "--expires", "1d", "--unique",
    )  # fmt: skip
    assert made["args"] == {"to": "007", "size": 3}
    assert (made["priority"], made["queue"], made["tenant"]) == (9, "fast", "acme")
    assert (made["tags"], made["metadata"]) == (["a", "b"], {"customer": "acme", "n": 1})
    assert (made["reference"], made["correlation_id"]) == (["user", "42"], "story")
    assert made["status"] == "scheduled"
    assert made["expires_at"] is not None
    again = shop.json("jobs", "enqueue", "send", "to=007", "size=3", "--tenant", "acme", "--unique")
    assert again["id"] == made["id"]


def test_the_headers_of_a_job_are_shown(shop: Shop) -> None:
    with shop.app() as app:
        send: BoundTask[..., Any] = app.bound_task("send")
        id = str(send.using(headers={"trace": "1"}).enqueue(to="ann").id)
    assert shop.json("jobs", "show", id)["headers"] == {"trace": "1"}
    assert '{"trace": "1"}' in shop.run("jobs", "show", id).stdout


def test_words_override_arguments_given_as_json(shop: Shop) -> None:
    made = shop.json("jobs", "enqueue", "send", "--args", '{"to": "ann", "size": 1}', "size=2")
    assert made["args"] == {"to": "ann", "size": 2}
    made = shop.json("jobs", "enqueue", "send", "to=x", "--at", "2099-01-01T00:00Z")
    assert made["run_at"] == "2099-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("send",), "to: required, but missing; give it a value"),
        (("send", "to=x", "size=big"), "size: Input should be a valid integer"),
        (("send", "to=x", "nope=1"), "nope"),
        (("sned", "to=x"), "did you mean send?"),
        (("send", "to"), "'to' is not an argument"),
        (("send", "--args", "[1]"), "not a JSON object"),
        (("send", "--args", "{"), "--args is not JSON"),
        (("send", "to=x", "--delay", "soon"), "not a duration"),
        (("send", "to=x", "--at", "noon"), "not a timestamp"),
        (("send", "to=x", "--priority", "101"), "priority is 101"),
        (("send", "to=x", "--reference", "user"), "not a pair"),
    ],
)
def test_an_invalid_job_is_rejected_and_nothing_is_stored(
    shop: Shop, words: tuple[str, ...], sentence: str
) -> None:
    done = shop.run("jobs", "enqueue", *words)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert shop.json("jobs", "list")["items"] == []


def test_enqueue_needs_an_app(shop: Shop) -> None:
    done = call("jobs", "enqueue", "send", "to=x", "--store", shop.url)
    assert done.exit_code == 2
    assert "pass --app module:app" in done.stderr


# Finding -----------------------------------------------------------------------------------------------------------------


def test_every_filter_narrows_the_list(shop: Shop) -> None:
    ids = fill(shop)
    special = shop.run(
        "jobs", "enqueue", "look", "what=y", "--tag", "red", "--metadata", "customer=acme", "--reference", "user:42",
        "--tenant", "acme", "--correlation-id", "story", "--queue", "slow",
    ).stdout.strip()  # fmt: skip

    def found(*words: str) -> set[str]:
        return {job["id"] for job in shop.json("jobs", "list", *words)["items"]}

    assert found() == {*ids.values(), special}
    assert found("--status", "failed", "--status", "completed") == {ids["failed"], ids["completed"]}
    assert found("--task", "look") == {ids["review_needed"], special}
    for words in (
        ("--tag", "red"), ("--metadata", "customer=acme"), ("--reference", "user:42"), ("--tenant", "acme"),
        ("--correlation-id", "story"), ("--queue", "slow"), ("--text", "RED"), ("--text", special[-12:]),
    ):  # fmt: skip
        assert found(*words) == {special}
    assert found("--text", "no way") == {ids["failed"]}
    assert found("--arg", "what=y") == {special}
    assert found("--error", "PermanentError") == found("--error", "PermanentError", "--took-over", "0s")
    assert found("--error", "PermanentError") == {ids["failed"]}
    assert "1 retried" in shop.run("jobs", "retry", "--text", "no way", "--yes").stdout
    assert found("--parent", special) == set()
    assert found("--created-after", "1h") == {*ids.values(), special}
    assert found("--created-before", "1h") == set()
    assert found("--created-after", "2099-01-01") == set()


def test_a_list_is_paged_and_prints_the_next_cursor(shop: Shop) -> None:
    fill(shop)
    first = shop.json("jobs", "list", "--limit", "3")
    second = shop.json("jobs", "list", "--limit", "3", "--cursor", first["next"])
    assert len(first["items"]) == 3
    assert len(second["items"]) == 2
    assert second["next"] is None
    assert f"more: --cursor {first['next']}" in shop.run("jobs", "list", "--limit", "3").stdout


def test_piped_lists_are_complete_aligned_lines_without_tabs_or_escapes(shop: Shop) -> None:
    ids = fill(shop)
    said = shop.run("jobs", "list", env={"COLUMNS": "40"}).stdout
    head, *rows = said.splitlines()
    assert head.split()[:4] == ["id", "status", "task", "queue"]
    assert len(rows) == 5
    assert all(id in said for id in ids.values())
    assert "\t" not in said
    assert "\x1b" not in said
    at = head.index("status")
    assert all(row[at - 1] == " " and row[at] != " " for row in rows)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_terminal_of_any_width_shows_ids_and_no_line_is_too_long(shop: Shop, columns: int) -> None:
    ids = fill(shop)
    for words in (("jobs", "list"), ("jobs", "show", ids["failed"]), ("jobs", "why", ids["pending"])):
        said = shop.run(*words, env=terminal(columns, NO_COLOR="1")).stdout
        plain = _without_styles(said)
        assert all(len(line) <= columns for line in plain.splitlines()), plain
        assert ids["failed"][-12:] in plain or ids["pending"][-12:] in plain


def _without_styles(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_no_color_disables_colours(shop: Shop) -> None:
    fill(shop)
    assert "\x1b[38;5;160m" in shop.run("jobs", "list", env=terminal(80)).stdout
    assert "\x1b[38;5;160m" not in shop.run("jobs", "list", env=terminal(80, NO_COLOR="1")).stdout


HOSTILE = "\x1b[2J\x07[red]no[/red] [link=x]\r\nway \u202e\x9b31m"


@pytest.mark.parametrize("env", [{}, terminal(40), terminal(200)])
def test_control_characters_in_text_are_escaped(shop: Shop, env: dict[str, str]) -> None:
    id = shop.run("jobs", "enqueue", "fail", "--args", json.dumps({"words": HOSTILE})).stdout.strip()
    shop.drain()
    for verb in ("show", "why"):
        said = _without_styles(shop.run("jobs", verb, id, env=env).stdout)
        assert "[red]no[/red] [link=x]" in said.replace("\n", " ") or env
        assert not set(said) & set("\x1b\x07\r\u202e\x9b")
    said = _without_styles(shop.run("jobs", "list", env=env).stdout)
    assert not set(said) & set("\x1b\x07\r\u202e\x9b")
    assert shop.json("jobs", "show", id)["error"]["message"] == HOSTILE


def test_the_progress_of_a_job_has_the_time_of_its_update(shop: Shop) -> None:
    ids = fill(shop)
    assert re.search(
        r"^progress +50%, half, updated .* ago$",
        shop.run("jobs", "show", ids["completed"]).stdout,
        re.MULTILINE,
    )
    shown = shop.json("jobs", "show", ids["completed"])
    assert shown["progress_percent"] == 100
    assert shown["started_at"] <= shown["updated_at"] <= shown["finished_at"]


def test_a_job_is_shown_with_its_executions_logs_and_children(shop: Shop) -> None:
    ids = fill(shop)
    with shop.app() as app:
        app.bound_task("send").using(parent=ids["completed"]).enqueue(to="child")
    shown = shop.json("jobs", "show", ids["completed"])
    assert shown["value"] == "sent to ann"
    assert [execution["status"] for execution in shown["executions"]] == ["succeeded"]
    assert [line["message"] for line in shown["logs"]] == ["sent"]
    assert [child["args"] for child in shown["children"]] == [{"to": "child"}]
    said = shop.run("jobs", "show", ids["completed"]).stdout
    for word in ("Executions", "Last log lines", "Children", '"sent to ann"', 'to="ann"'):
        assert word in said
    assert shop.json("jobs", "show", ids["review_needed"])["output"] == {"what": "x"}


@pytest.mark.parametrize(
    "verb", ["show", "watch", "logs", "why", "cancel", "retry", "delete", "approve", "reject"]
)
def test_an_unknown_job_exits_with_1_and_an_invalid_id_with_2(shop: Shop, verb: str) -> None:
    missing = shop.run("jobs", verb, "01890a5d-ac96-774b-bcce-b302099a8057")
    assert missing.exit_code == 1
    assert "there is no job" in missing.stderr
    wrong = shop.run("jobs", verb, "x")
    assert wrong.exit_code == 2
    assert "'x' is not a job id" in wrong.stderr


def test_logs_are_a_json_array_and_with_follow_one_json_document_per_line(shop: Shop) -> None:
    ids = fill(shop)
    assert [line["message"] for line in shop.json("jobs", "logs", ids["completed"])] == ["sent"]
    assert shop.json("jobs", "logs", ids["completed"], "--level", "warning") == []
    assert shop.run("jobs", "logs", ids["completed"], "-f", "--level", "error").stdout == "no log lines\n"
    followed = shop.run("jobs", "logs", ids["completed"], "--follow", "--json").stdout.splitlines()
    assert [json.loads(line)["details"] for line in followed] == [{"to": "ann"}]
    assert 'sent to="ann"' in shop.run("jobs", "logs", ids["completed"], "-f").stdout


def test_why_prints_sentences_and_as_json_codes(shop: Shop) -> None:
    ids = fill(shop)
    assert [reason["code"] for reason in shop.json("jobs", "why", ids["failed"])["reasons"]] == ["ended"]
    assert "It waits for a person's decision" in shop.run("jobs", "why", ids["review_needed"]).stdout


# Following
# --------------------------------------------------------------------------------------------------------------


def test_watching_an_ended_job_reports_its_outcome_by_exit_code_too(shop: Shop) -> None:
    ids = fill(shop)
    good = shop.run("jobs", "watch", ids["completed"])
    assert good.exit_code == 0
    assert "completed\nsent to ann" in good.stdout
    bad = shop.run("jobs", "watch", ids["failed"])
    assert bad.exit_code == 1
    assert "no way" in bad.stdout
    lines = shop.run("jobs", "watch", ids["failed"], "--json").stdout.splitlines()
    assert json.loads(lines[-1])["status"] == "failed"
    assert shop.run("jobs", "watch", ids["completed"], env=terminal(40)).exit_code == 0


def test_wait_follows_a_job_that_another_process_runs(shop: Shop) -> None:
    with shop.app() as other:
        stop = threading.Event()

        def work() -> None:
            testing = other.testing()
            while not stop.is_set():
                testing.drain()
                stop.wait(0.05)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            done = shop.run("jobs", "enqueue", "send", "to=ann", "--wait")
            failed = shop.run("jobs", "enqueue", "fail", "words=no", "--wait", "--json")
        finally:
            stop.set()
            worker.join()
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "sent to ann"
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["status"] == "failed"


# Actions
# -----------------------------------------------------------------------------------------------------------------


def test_actions_apply_to_each_job_and_a_rejected_one_does_not_stop_the_others(shop: Shop) -> None:
    ids = fill(shop)
    done = shop.run("jobs", "cancel", ids["completed"], ids["pending"], "--reason", "enough")
    assert done.exit_code == 1
    assert f"cannot cancel job {ids['completed']}: it is completed" in done.stderr
    assert shop.json("jobs", "show", ids["pending"])["reason"] == "enough"
    assert shop.json("jobs", "retry", ids["failed"])["done"] == [{"id": ids["failed"], "status": "pending"}]
    assert shop.run("jobs", "approve", ids["review_needed"], "--comment", "fine").exit_code == 0
    assert shop.json("jobs", "show", ids["review_needed"])["reason"] == "fine"
    assert shop.run("jobs", "reject", ids["review_needed"]).exit_code == 1
    assert shop.run("jobs", "delete", ids["completed"], ids["pending"]).exit_code == 0
    assert shop.run("jobs", "show", ids["completed"]).exit_code == 1
    assert shop.run("jobs", "cancel", ids["scheduled"], "x").exit_code == 2
    assert shop.json("jobs", "show", ids["scheduled"])["status"] == "scheduled"


def test_a_bulk_action_shows_the_count_and_asks_for_confirmation(shop: Shop) -> None:
    ids = fill(shop)
    no = shop.run("jobs", "cancel", "--task", "send", input="n\n")
    assert no.exit_code == 1
    assert "cancel 2 jobs (1 pending, 1 scheduled)?" in no.stderr
    assert shop.json("jobs", "show", ids["pending"])["status"] == "pending"
    yes = shop.run("jobs", "cancel", "--task", "send", input="y\n")
    assert yes.exit_code == 0
    assert "2 cancelled or asked to stop" in yes.stdout
    assert shop.json("jobs", "delete", "--status", "cancelled", "--yes") == {"done": 2, "skipped": 0}
    assert shop.json("jobs", "retry", "--status", "failed", "--yes") == {"done": 1, "skipped": 0}
    assert "0 retried" in shop.run("jobs", "retry", "--task", "look").stdout


def test_a_bulk_action_processes_all_pages_of_matching_jobs(shop: Shop) -> None:
    with shop.app() as app:
        task: BoundTask[..., str] = app.bound_task("send")
        task.enqueue_many({"to": str(number)} for number in range(1203))
        task.using(delay=timedelta(hours=1)).enqueue(to="later")
    assert shop.json("jobs", "cancel", "--status", "pending", "--yes") == {"done": 1203, "skipped": 0}
    with shop.app() as app:
        assert app.jobs.counts(tenant="*") == {JobState.CANCELLED: 1203, JobState.SCHEDULED: 1}
    assert "1,203 deleted" in shop.run("jobs", "delete", "--task", "send", "-y", env=terminal(80)).stdout


@pytest.mark.parametrize("verb", ["cancel", "retry", "delete"])
def test_a_bulk_action_needs_ids_or_a_filter(shop: Shop, verb: str) -> None:
    assert shop.run("jobs", verb).exit_code == 2
    assert shop.run("jobs", verb, "--tenant", "acme", "--yes").exit_code == 2
    both = shop.run("jobs", verb, "01890a5d-ac96-774b-bcce-b302099a8057", "--task", "send")
    assert both.exit_code == 2
    assert "not both" in both.stderr


def test_an_empty_filter_value_does_not_match_every_job(shop: Shop) -> None:
    fill(shop)
    for option in ("--tag", "--text", "--correlation-id"):
        said = shop.run("jobs", "delete", option, "", "--yes")
        assert said.exit_code == 2
        assert "is empty; give one, or leave it out" in said.stderr
    assert shop.json("jobs", "list", "--status", "failed")["items"]


def test_change_sets_priority_or_queue_by_id_and_by_filter(shop: Shop) -> None:
    id = shop.run("jobs", "enqueue", "send", "to=ann", "--queue", "slow").stdout.strip()
    assert shop.run("jobs", "change", id, "--priority", "7").stdout == f"{id} pending\n"
    assert shop.json("jobs", "show", id)["priority"] == 7
    assert shop.run("jobs", "change", id).exit_code == 2
    mixed = shop.run("jobs", "change", id, "--priority", "8", "--queue", "fast")
    assert mixed.exit_code == 2
    assert "--queue is a filter; the new queue is --to-queue" in mixed.stderr
    assert shop.json("jobs", "show", id)["priority"] == 7
    mixed = shop.run("jobs", "change", id, "--priority", "8", "--task", "send")
    assert "ids or a filter, not both; leave out the one or the other" in mixed.stderr
    moved = shop.run("jobs", "change", "--queue", "slow", "--to-queue", "fast", "--yes")
    assert moved.stdout == "1 changed\n"
    assert shop.json("jobs", "show", id)["queue"] == "fast"
    shop.run("jobs", "cancel", id)
    refused = shop.run("jobs", "change", id, "--priority", "1")
    assert (refused.exit_code, "it is cancelled" in refused.stderr) == (1, True)


def test_a_job_is_cancelled_with_its_children(shop: Shop) -> None:
    id = shop.run("jobs", "enqueue", "send", "to=ann").stdout.strip()
    child = str(new_id())
    with shop.app() as app:
        app.store.enqueue([NewJob(UUID(child), "send", details=Details(parent_id=UUID(id)))])
    assert shop.run("jobs", "cancel", "--children", "--task", "send", "--yes").exit_code == 2
    assert shop.run("jobs", "cancel", id, "--children").exit_code == 0
    assert shop.json("jobs", "show", child)["status"] == "cancelled"


def test_a_scheduled_job_is_rescheduled_and_then_run_now(shop: Shop) -> None:
    id = shop.run("jobs", "enqueue", "send", "to=ann", "--delay", "1h").stdout.strip()
    assert shop.run("jobs", "reschedule", id, "--in", "2h").stdout == f"{id} scheduled\n"
    assert shop.run("jobs", "reschedule", id).exit_code == 2
    assert shop.json("jobs", "run-now", id)["done"] == [{"id": id, "status": "pending"}]
    refused = shop.run("jobs", "run-now", id)
    assert refused.exit_code == 1
    assert "it is pending; that needs scheduled" in refused.stderr
    assert shop.run("jobs", "rerun", id).exit_code == 1


def test_show_lists_the_declared_stages_including_those_not_reached(shop: Shop, tmp_path: Path) -> None:
    with (tmp_path / f"{shop.name}.py").open("a") as file:
        file.write(
            "\n\n@app.task(stages=('extract', 'store'))\ndef load(ctx: Context) -> None:\n"
            "    with ctx.stage('extract'):\n        raise PermanentError('no')\n"
        )
    id = shop.json("jobs", "enqueue", "load")["id"]
    before = shop.run("jobs", "show", id).stdout
    assert re.search(r"extract +ahead", before), before
    shop.drain()
    after = shop.run("jobs", "show", id).stdout
    assert re.search(r"extract +failed: PermanentError: no", after), after
    assert re.search(r"store +not reached", after), after


def test_an_archived_job_is_shown_and_cannot_be_changed(shop: Shop) -> None:
    id = shop.json("jobs", "enqueue", "send", "to=ada")["id"]
    shop.drain()
    assert shop.run("archive", "run", "--older-than", "0s").exit_code == 0
    assert shop.json("jobs", "list")["items"] == []
    found = shop.json("jobs", "show", id)
    assert (found["status"], found["value"]) == ("completed", "sent to ada")
    assert found["archived_at"] is not None
    assert [line["message"] for line in found["logs"]] == ["sent"]
    assert len(found["executions"]) == 1
    assert "archived" in shop.run("jobs", "show", id).stdout
    assert "cannot be changed" in shop.run("jobs", "why", id).stdout
    for words in (("logs", id), ("logs", id, "--follow")):
        assert "sent" in shop.run("jobs", *words).stdout
    assert shop.run("jobs", "watch", id).exit_code == 0
    refused = shop.run("jobs", "retry", id)
    assert refused.exit_code == 1
    assert "it was archived" in refused.output
