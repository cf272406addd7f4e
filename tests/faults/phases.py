"""Common parts of the chaos faults that need a separate store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.faults.cluster import Cluster
from tests.faults.invariants import Finding
from tests.faults.kit import Stuck

from tidemill.errors import TidemillError

PROMISES = {
    "I26": "a sick runner is not ready within 10 s, and is replaced",
    "I27": "an older release never overrides a newer one",
    "I28": "nothing is accepted into a file that is not at its path",
    "I29": "the last release works on the next schema",
    "I30": "a rewound database accepts no write from a job's former holder",
}
"""The invariant that checks each of these faults."""


@dataclass
class PhaseResult:
    """How often the fault was injected, the findings, and figures to report."""

    count: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Phase:
    """A fault: its name, the stores it applies to, and its invariant."""

    name: str
    stores: tuple[str, ...]
    invariant: str
    run: Callable[[Cluster, Random], PhaseResult]


def run_phase(phase: Phase, cluster: Cluster, random: Random) -> PhaseResult:
    """Run one fault; a timeout or a store error breaks its invariant."""
    try:
        return phase.run(cluster, random)
    except (Stuck, TidemillError) as error:
        return PhaseResult(1, {phase.invariant: Finding(1, [f"{type(error).__name__}: {error}"])})
