"""The faults of a chaos run that need a separate store."""

from __future__ import annotations

from tests.faults import replaced, rewinds, rolling, schemas, wedges
from tests.faults.phases import Phase

PHASES: tuple[Phase, ...] = (
    Phase("wedged runner", ("sqlite", "postgres"), wedges.INVARIANT, wedges.run),
    Phase("rolling deploy", ("sqlite", "postgres"), rolling.INVARIANT, rolling.run),
    Phase("replaced file", ("sqlite",), replaced.INVARIANT, replaced.run),
    Phase("newer schema", ("sqlite", "postgres"), schemas.INVARIANT, schemas.run),
    Phase("rewound database", ("postgres",), rewinds.INVARIANT, rewinds.run),
)


def phases_for(store: str) -> list[Phase]:
    """Return the faults that apply to a store."""
    return [phase for phase in PHASES if store in phase.stores]
