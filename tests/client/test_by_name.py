"""Tests of enqueueing by task name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tidemill import App
from tidemill.errors import BadArguments, BadSettings, PayloadTooLarge
from tidemill.tasks.events import Event


def test_a_declared_task_is_validated_and_keeps_its_options(app: App) -> None:
    @app.task(name="mail.send", queue="mail", aliases=["mail"])
    def send(to: str, copies: int = 1) -> str:
        return to * copies

    jobs = [app.enqueue("mail.send", to="ada", copies=2), asyncio.run(app.aenqueue("mail", to="bob"))]
    assert [(job.task, job.queue) for job in jobs] == [("mail.send", "mail")] * 2
    for wrong in ({"to": 1}, {}, {"to": "ada", "colour": "red"}):
        with pytest.raises(BadArguments):
            app.enqueue("mail.send", **wrong)
    app.testing().drain(raise_errors=True)
    assert [job.result(timeout=10) for job in jobs] == ["adaada", "bob"]


def test_a_task_of_another_program_is_stored_unchecked_and_runs_there(app: App) -> None:
    heard: list[Event] = []
    app.on("job.enqueued", heard.append)
    job = app.enqueue("report.make", task="weekly", parts=[1, {"deep": None}])
    assert [event.job_id for event in heard] == [job.id]
    assert app.testing().drain().processed == 0  # no task of this app runs it
    assert "report.make" not in app.registry
    with App(app.store) as other:

        @other.task(name="report.make")
        def make(task: str, parts: list[object]) -> int:
            return len(parts)

        other.testing().drain(raise_errors=True)
        assert app.jobs.get(job.id).result(timeout=10) == 2


def test_names_and_arguments_that_cannot_be_stored_are_refused(tmp_path: Path) -> None:
    with App("memory://", max_args=200_000) as app:
        for name in ("", " x", "*"):
            with pytest.raises(BadSettings):
                app.enqueue(name)
        with pytest.raises(BadArguments):
            app.enqueue("a", thing=object())
        with pytest.raises(PayloadTooLarge):
            app.enqueue("a", text="x" * 300_000)
        assert app.jobs.count() == 0
