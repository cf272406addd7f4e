"""The Grafana dashboard: every expression refers to metrics and labels that are served."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tidemill import App
from tidemill.engine.runner.counters import Counters
from tidemill.engine.runner.metrics import worker_metrics
from tidemill.ids import new_id

BOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "deploy" / "grafana" / "tidemill.json").read_text()
)
EXPRESSIONS = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]] + [
    variable["query"] for variable in BOARD["templating"]["list"] if variable["type"] == "query"
]
_METRIC = re.compile(r"\b(tidemill_\w+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_BY = re.compile(r"\bby \(([^)]*)\)")
_LINE = re.compile(r"^(tidemill_\w+)(?:\{(.*)\})? \S+$")
_ADDED = {"instance"}
"""Labels that Prometheus adds to what it scrapes."""


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """The labels of every metric that a store with some history and a worker serve."""
    found: dict[str, set[str]] = {}
    with App("memory://") as app:

        @app.task(queue="mail")
        def work() -> None: ...

        work.enqueue()
        app.testing().drain()
        run = app.archive.run(older_than=timedelta(0))
        assert run.archived == 1
        app.store.acquire("duties", new_id(), ttl=timedelta(minutes=1))
        work.enqueue()
        text = app.stats.metrics() + worker_metrics(True, True, {}, {None: Counters()})
    for line in text.splitlines():
        if match := _LINE.match(line):
            found.setdefault(match[1], set()).update(re.findall(r'(\w+)="', match[2] or ""))
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_uses_served_metrics_and_labels(expression: str, served: dict[str, set[str]]) -> None:
    metrics = _METRIC.findall(expression)
    assert metrics
    for name, conditions in metrics:
        assert name in served, f"{name} is not served"
        assert set(_LABEL.findall(conditions)) <= served[name] | _ADDED
        for labels in _BY.findall(expression):
            assert {label.strip() for label in labels.split(",")} <= served[name] | _ADDED


def test_legends_use_labels_that_remain(served: dict[str, set[str]]) -> None:
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            kept = {label.strip() for labels in _BY.findall(target["expr"]) for label in labels.split(",")}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, panel["title"]
