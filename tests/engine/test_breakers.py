"""Tests that one unreadable breaker does not affect the others."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine.cluster_kit import Line, eventually

from tidemill import Breaker
from tidemill.domain.limits import LimitKind, Rule
from tidemill.domain.states import ExecutionState
from tidemill.engine.runner.breaker_reports import BreakerReports
from tidemill.stores.memory import MemoryStore

PATIENCE = 20.0


def failed(name: str) -> Any:
    return SimpleNamespace(
        claim=SimpleNamespace(limits=(name,)), transition=SimpleNamespace(execution=ExecutionState.FAILED)
    )


def test_a_breaker_with_unreadable_state_does_not_block_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rules = {
        f"breaker/{name}": Rule(
            f"breaker/{name}", kind=LimitKind.BREAKER, breaker=Breaker(name, failures=0.5, least=1)
        )
        for name in ("sick", "well")
    }
    line, changed = Line(MemoryStore()), threading.Event()
    line.broken = lambda verb, given: (
        KeyError("what is this") if verb == "uses" and list(given[1]) == ["breaker/sick"] else None
    )
    breakers = BreakerReports(line.store, lambda: rules, changed.set)
    with caplog.at_level(logging.WARNING, "tidemill.engine"):
        breakers.note([failed("breaker/sick")])
        eventually(lambda: "breaker/sick: cannot record the results" in caplog.text, PATIENCE)
        breakers.note([failed("breaker/well")])
        assert changed.wait(PATIENCE)
    breakers.close()
    assert "breaker well is open" in caplog.text
