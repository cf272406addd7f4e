"""Tests of archive policies and documents."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.domain.strategies import NOW, a_job, ended_jobs, executions, log_entries

from tidemill.domain.job import Details, Execution, JobRow, LogEntry
from tidemill.domain.retention import ArchivedJob, ArchivePolicy, archive_document, fingerprint
from tidemill.domain.states import ENDED, LIVE, JobState
from tidemill.errors import BadSettings


def archived(job: JobRow, runs: list[Execution], lines: list[LogEntry]) -> ArchivedJob:
    return archive_document(job, runs, lines, tier="archive", policy="monthly")


@given(ended_jobs(), st.lists(executions, max_size=2), st.lists(log_entries, max_size=2))
def test_a_document_round_trips_as_json(job: JobRow, runs: list[Execution], lines: list[LogEntry]) -> None:
    kept = archived(job, runs, lines)
    again = json.dumps(json.loads(kept.document), sort_keys=True, separators=(",", ":"))
    assert again == kept.document
    assert fingerprint(again) == kept.fingerprint
    assert kept.sound


@given(ended_jobs(), st.lists(executions, max_size=2), st.lists(log_entries, max_size=2))
def test_a_document_is_complete(job: JobRow, runs: list[Execution], lines: list[LogEntry]) -> None:
    body = json.loads(archived(job, runs, lines).document)
    assert body["format"] == 1
    assert set(body["job"]) == {field.name for field in fields(JobRow)} - {"archived_at", "tier"}
    assert body["job"]["id"] == str(job.id)
    assert body["job"]["state"] == job.state.value
    assert body["job"]["args"] == job.args
    assert body["job"]["result"] == job.result
    assert body["job"]["details"]["metadata"] == job.details.metadata
    assert datetime.fromisoformat(body["job"]["finished_at"]) == job.finished_at
    assert [run["number"] for run in body["executions"]] == [run.number for run in runs]
    assert [line["message"] for line in body["logs"]] == [line.message for line in lines]


@given(ended_jobs(), ended_jobs(), st.sampled_from([field.name for field in fields(JobRow)]))
def test_the_fingerprint_changes_with_any_change_of_the_job(one: JobRow, other: JobRow, field: str) -> None:
    assume(field != "state" or other.state in ENDED)
    changed = replace(one, **{field: getattr(other, field)})
    assume(asdict(changed) != asdict(one))
    assert archived(changed, [], []).fingerprint != archived(one, [], []).fingerprint


@given(
    ended_jobs(), st.lists(executions, min_size=1, max_size=2), st.lists(log_entries, min_size=1, max_size=2)
)
def test_the_fingerprint_covers_executions_and_logs(
    job: JobRow, runs: list[Execution], lines: list[LogEntry]
) -> None:
    prints = [
        archived(job, *rest).fingerprint for rest in ((runs, lines), (runs[1:], lines), (runs, lines[1:]))
    ]
    assert len(set(prints)) == 3


@given(ended_jobs(), st.data())
def test_a_changed_document_is_not_sound(job: JobRow, data: st.DataObject) -> None:
    kept = archived(job, [], [])
    at = data.draw(st.integers(0, len(kept.document) - 1))
    letter = data.draw(st.characters(codec="ascii").filter(lambda c: c != kept.document[at]))
    assert not replace(kept, document=kept.document[:at] + letter + kept.document[at + 1 :]).sound
    assert not replace(kept, document=kept.document[:at]).sound


@given(ended_jobs())
def test_an_archived_job_keeps_its_search_fields(job: JobRow) -> None:
    kept = archived(job, [], [])
    for name in ("id", "tenant", "task", "queue", "state", "token", "created_at", "finished_at"):
        assert getattr(kept, name) == getattr(job, name)
    assert (kept.correlation_id, kept.parent_id) == (job.details.correlation_id, job.details.parent_id)
    assert (kept.tier, kept.policy) == ("archive", "monthly")


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_has_a_fingerprint(text: str) -> None:
    assert len(fingerprint(text)) == 64


def test_a_document_is_ascii() -> None:
    assert archived(a_job(JobState.FAILED, reason="Zoë \x00 🙂"), [], []).document.isascii()


@pytest.mark.parametrize("state", sorted(LIVE))
def test_a_live_job_is_not_archived(state: JobState) -> None:
    with pytest.raises(BadSettings, match=f"is {state}; only ended jobs are archived"):
        archived(a_job(state, finished_at=NOW), [], [])


def test_a_job_without_an_end_time_is_not_archived() -> None:
    with pytest.raises(BadSettings, match="only ended jobs"):
        archived(a_job(JobState.FAILED, finished_at=None), [], [])


def test_a_value_without_a_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes cannot be stored in an archive document"):
        archived(a_job(JobState.FAILED, details=Details(metadata={"raw": b"1"})), [], [])


def test_metadata_may_be_any_mapping() -> None:
    job = a_job(JobState.FAILED, details=Details(metadata=MappingProxyType({"a": 1})))
    assert json.loads(archived(job, [], []).document)["job"]["details"]["metadata"] == {"a": 1}


def test_the_default_policy_archives_after_thirty_days() -> None:
    policy = ArchivePolicy("all")
    assert (policy.states, policy.tasks, policy.max_age) == (ENDED, frozenset(), timedelta(days=30))
    assert (policy.tier, policy.batch) == ("archive", 500)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"states": frozenset({JobState.FAILED, JobState.RUNNING})},
            "archive policy p: only ended jobs can be archived",
        ),
        ({"batch": 0}, "archive policy p: give a batch of 1 or more"),
        ({"max_age": timedelta(-1)}, "archive policy p: give a batch of 1 or more"),
    ],
)
def test_a_bad_policy_is_refused_and_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSettings, match=message) as caught:
        ArchivePolicy("p", **settings)
    assert caught.value.details == {"name": "p"}
