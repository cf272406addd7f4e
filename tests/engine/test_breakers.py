"""Whoever tells breakers how jobs ended goes on, whatever one of them makes of it."""

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
from tidemill.engine.breakers import Breakers
from tidemill.stores.memory import MemoryStore

PATIENCE = 20.0


def failed(name: str) -> Any:
    return SimpleNamespace(
        claim=SimpleNamespace(limits=(name,)), transition=SimpleNamespace(execution=ExecutionState.FAILED)
    )


def test_a_breaker_whose_state_nobody_can_read_does_not_silence_the_others(
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
    breakers = Breakers(line.store, lambda: rules, changed.set)
    with caplog.at_level(logging.WARNING, "tidemill.engine"):
        breakers.note([failed("breaker/sick")])
        eventually(lambda: "breaker/sick could not be told" in caplog.text, PATIENCE)
        breakers.note([failed("breaker/well")])
        assert changed.wait(PATIENCE)
    breakers.close()
    assert "breaker well is open" in caplog.text
