"""The stores against a model: long random lives, each step compared with the memory store and with plain accounts.

Each example is 50 to 60 steps of ``rules.py``. The memory store, which is the oracle of the others, is itself checked by
the accounts alone, which share no code with it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conformance.conftest import Shared
from tests.conformance.rules import KINDS, WEIGHTED, Rules
from tests.conformance.world import Act
from tests.grounds import THOROUGH, new_file

from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import open_store

EXAMPLES = 200 if THOROUGH else 20
LEAST_STEPS = 50
MOST_STEPS = 60

SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
if THOROUGH:
    SETTINGS = settings(SETTINGS, database=None)

OpenStore = Callable[[], AbstractContextManager[Store]]
acts = st.builds(Act, st.sampled_from(WEIGHTED), *(st.integers(0, 7) for _ in "abc"))


def live(world: Rules, life: list[Act]) -> None:
    """Go through one life, looking at everything after each step."""
    for act in life:
        world.clock.advance(timedelta(milliseconds=1))
        rule: Callable[[int, int, int], None] = getattr(world, act.kind)
        rule(act.a, act.b, act.c)
        world.look()


def make_machine(open_fresh: OpenStore, *, oracle: bool) -> Callable[[], Counter[str]]:
    """A run of many lives on fresh stores; it answers with how often each rule was taken."""

    def run() -> Counter[str]:
        taken: Counter[str] = Counter()

        @SETTINGS
        @given(st.lists(acts, min_size=LEAST_STEPS, max_size=MOST_STEPS))
        def lives(life: list[Act]) -> None:
            with open_fresh() as store:
                live(Rules(store, MemoryStore() if oracle else None), life)
            taken.update(act.kind for act in life)
            taken["lives"] += 1

        lives()
        return taken

    return run


def _judge(taken: Counter[str]) -> None:
    """The run was as long as promised, and every rule had its turn."""
    steps = sum(count for kind, count in taken.items() if kind != "lives")
    print(f"{taken['lives']} lives of {steps / taken['lives']:.1f} steps on average")
    assert taken["lives"] >= EXAMPLES
    assert steps / taken["lives"] >= LEAST_STEPS
    assert set(taken) - {"lives"} == set(KINDS)


@contextmanager
def _new_file() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(new_file(Path(folder)))
        try:
            yield store
        finally:
            store.close()


def test_the_memory_store_keeps_the_accounts() -> None:
    _judge(make_machine(lambda: nullcontext(MemoryStore()), oracle=False)())


def test_sqlite_lives_as_the_memory_store_does() -> None:
    _judge(make_machine(_new_file, oracle=True)())


def test_postgresql_lives_as_the_memory_store_does(shared_postgres: Shared) -> None:
    _judge(make_machine(lambda: nullcontext(shared_postgres.fresh()), oracle=True)())
