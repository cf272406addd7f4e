"""Traces across processes: ``tidemill serve``, ``tidemill worker`` and child processes, at a real OTLP endpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.contrib.otlp import CONSUMER, PRODUCER, Collected, attributes, endpoint
from tests.engine.worker_kit import until

pytestmark = pytest.mark.long

JOBS = 1_000
PROGRAM = """
from tidemill import App, Fixed

app = App({url!r}, migrate=True)


@app.task
async def on_loop(number: int) -> int:
    return number


@app.task
def in_thread(number: int) -> int:
    return number


@app.task(isolation="process")
def in_process(number: int) -> int:
    return number


@app.task(retry=Fixed(max_attempts=2, wait=0))
def retried(number: int) -> None:
    raise ConnectionError("away")
"""


@contextmanager
def started(folder: Path, collected: Collected, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command of the instrumented program until the end of the block."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "OTEL_EXPORTER_OTLP_ENDPOINT": collected.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "fastapi,starlette,asgi,logging",
    }
    instrument = str(Path(sys.executable).with_name("opentelemetry-instrument"))
    process = subprocess.Popen(
        [instrument, sys.executable, "-m", "tidemill", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_every_job_has_one_producer_and_one_consumer_span(tmp_path: Path) -> None:
    (tmp_path / "traced.py").write_text(PROGRAM.format(url=f"sqlite:///{tmp_path}/jobs.db"))
    with endpoint() as collected:
        ids = _run(tmp_path, collected)
        producers = {attributes(span)["messaging.message.id"]: span for span in collected.of_kind(PRODUCER)}
        consumers = collected.of_kind(CONSUMER)
        assert len(collected.of_kind(PRODUCER)) == JOBS
        assert producers.keys() == ids.keys()
        runs = Counter(attributes(span)["messaging.message.id"] for span in consumers)
        assert runs == {id: 2 if task == "retried" else 1 for id, task in ids.items()}
        for span in consumers:
            values = attributes(span)
            creator = producers[values["messaging.message.id"]]
            assert [link.span_id for link in span.links] == [creator.span_id]
            assert span.parent_span_id == (creator.span_id if values["tidemill.attempt"] == 1 else b"")
        asked = [span for span in producers.values() if span.parent_span_id]
        assert [span.trace_id.hex() for span in asked] == ["4bf92f3577b34da6a3ce929d0e0e4736"]
        assert "messaging.client.sent.messages" in collected.metrics
        assert "messaging.process.duration" in collected.metrics


def _run(folder: Path, collected: Collected) -> dict[str, str]:
    """Create all jobs over HTTP, run them, and return their tasks by id."""
    ids: dict[str, str] = {}
    worker_words = ["worker", "traced:app", "--processes", "2", "--max-jobs", "50"]
    with started(folder, collected, "serve", "traced:app", "--port", "0", "--json") as server:
        assert server.stdout is not None
        opened: dict[str, Any] = json.loads(server.stdout.readline())["started"]
        headers = {"authorization": f"Bearer {opened['token']}"}
        with (
            started(folder, collected, *worker_words),
            httpx.Client(base_url=opened["url"], headers=headers, timeout=60) as client,
        ):
            for number in range(JOBS):
                task = ("on_loop", "in_thread", "in_process", "retried")[
                    0 if number % 10 else number // 10 % 4
                ]
                body = {"task": task, "args": {"number": number}}
                trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
                answer = client.post("/api/jobs", json=body, headers=trace if number == 7 else {})
                assert answer.status_code == 201, answer.text
                ids[answer.json()["id"]] = task

            def is_done() -> bool:
                items = client.get(
                    "/api/jobs?status=pending&status=running&status=claimed&status=scheduled&limit=1"
                )
                return bool(items.json()["items"] == [])

            until(is_done, "all jobs have ended", 120)
    return ids
