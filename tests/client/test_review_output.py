"""Tests of the output of a review, which becomes the result on approval."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tidemill import App, JobState, Review
from tidemill.errors import BadArguments, JobFailed


def test_an_output_of_the_wrong_type_fails_the_job(app: App) -> None:
    @app.task
    def draft(words: str) -> int:
        raise Review("please look", output=words)

    job = draft.enqueue(words="many")
    app.testing().drain()
    assert job.refresh().status is JobState.FAILED
    with pytest.raises(JobFailed) as failed:
        job.result()
    assert (
        "Review(output=…): task draft returned a value that its annotation or JSON does not allow: result"
        in str(failed.value)
    )
    assert "; return a value that fits the annotation, or change the annotation, or give no output" in str(
        failed.value
    )


def test_an_output_of_the_right_type_and_no_output_are_accepted(app: App) -> None:
    @app.task
    def draft(pages: int | None) -> int:
        raise Review("please look", output=pages)

    right, none = draft.enqueue(pages=3), draft.enqueue(pages=None)
    app.testing().drain()
    assert (right.approve().value, none.approve().value) == (3, None)


def test_a_task_without_a_return_type_may_give_any_output(app: App) -> None:
    @app.task
    def publish() -> None:
        raise Review("please look", output={"at": datetime(2026, 1, 1, tzinfo=UTC)})

    job = publish.enqueue()
    app.testing().drain()
    assert job.approve().value == {"at": "2026-01-01T00:00:00Z"}


def test_a_stored_output_of_the_wrong_type_cannot_be_approved(app: App) -> None:
    @app.task(name="draft")
    def loose() -> object:
        raise Review("please look", output={"page": 1})

    job = loose.enqueue()
    app.testing().drain()
    strict = app.registry.get("draft")
    app.registry._tasks["draft"] = replace(strict, result=type(strict.result)("draft", int))
    with pytest.raises(BadArguments, match=rf"job {job.id} cannot be approved: .*reject it, or run it again"):
        job.approve()
    assert job.refresh().status is JobState.REVIEW_NEEDED
    assert job.reject().status is JobState.FAILED
