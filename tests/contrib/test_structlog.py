"""Tests of the structlog processor, and of structlog over the logging module."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from tidemill import App
from tidemill.contrib.structlog import add_job_fields
from tidemill.engine.log_records import stamp_records


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    yield
    structlog.reset_defaults()
    logging.setLogRecordFactory(before)


def test_events_inside_a_job_have_its_fields() -> None:
    stream = io.StringIO()
    structlog.configure(
        processors=[add_job_fields, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(stream),
    )
    app = App("memory://")

    @app.task
    async def charge(order: int) -> None:
        structlog.get_logger().info("charged", order=order, queue="own value")

    with app, app.worker():
        job = charge.enqueue(order=7)
        job.result()
        structlog.get_logger().info("outside")
    inside, outside = map(json.loads, stream.getvalue().splitlines())
    assert inside == {
        "event": "charged", "order": 7, "queue": "own value", "job_id": str(job.id), "task": "charge", "attempt": 1,
        "tenant": "default", "correlation_id": str(job.id),
    }  # fmt: skip
    assert outside == {"event": "outside"}


def test_structlog_renders_records_of_tidemill_with_their_fields() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), structlog.stdlib.add_log_level],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    log = logging.getLogger("tidemill.jobs")
    log.addHandler(handler)
    stamp_records()
    app = App("memory://")

    @app.task(retry=None)
    def fail() -> None:
        raise ValueError("no")

    try:
        with app, app.worker():
            job = fail.enqueue()
            with pytest.raises(Exception, match="no"):
                job.result()
    finally:
        log.removeHandler(handler)
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["level"], line["job_id"], line["task"]) == ("error", str(job.id), "fail")
    assert "Traceback" in line["event"]
