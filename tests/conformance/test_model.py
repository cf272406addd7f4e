"""Model tests: random action sequences, compared with an oracle and accounts.

Each example has 50 to 60 actions of ``actions.py``. The memory store is the oracle of the other stores; only the accounts,
which share no code with it, check the memory store.
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
from tests.conformance.actions import KINDS, WEIGHTED, Actions
from tests.conformance.conftest import SharedPostgres
from tests.conformance.model import DrawnAction
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
actions = st.builds(DrawnAction, st.sampled_from(WEIGHTED), *(st.integers(0, 7) for _ in "abc"))


def run_actions(model: Actions, sequence: list[DrawnAction]) -> None:
    """Run a sequence of actions, and check everything after each of them."""
    for action in sequence:
        model.clock.advance(timedelta(milliseconds=1))
        rule: Callable[[int, int, int], None] = getattr(model, action.kind)
        rule(action.a, action.b, action.c)
        model.check()


def make_machine(open_fresh: OpenStore, *, oracle: bool) -> Callable[[], Counter[str]]:
    """Return a function that runs many sequences on new stores and counts the actions."""

    def run() -> Counter[str]:
        taken: Counter[str] = Counter()

        @SETTINGS
        @given(st.lists(actions, min_size=LEAST_STEPS, max_size=MOST_STEPS))
        def runs(sequence: list[DrawnAction]) -> None:
            with open_fresh() as store:
                run_actions(Actions(store, MemoryStore() if oracle else None), sequence)
            taken.update(action.kind for action in sequence)
            taken["runs"] += 1

        runs()
        return taken

    return run


def _judge(taken: Counter[str]) -> None:
    """Check that the run was long enough, and that every action occurred."""
    steps = sum(count for kind, count in taken.items() if kind != "runs")
    print(f"{taken['runs']} runs of {steps / taken['runs']:.1f} steps on average")
    assert taken["runs"] >= EXAMPLES
    assert steps / taken["runs"] >= LEAST_STEPS
    assert set(taken) - {"runs"} == set(KINDS)


@contextmanager
def _new_file() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(new_file(Path(folder)))
        try:
            yield store
        finally:
            store.close()


def test_the_memory_store_matches_the_accounts() -> None:
    _judge(make_machine(lambda: nullcontext(MemoryStore()), oracle=False)())


def test_sqlite_behaves_like_the_memory_store() -> None:
    _judge(make_machine(_new_file, oracle=True)())


def test_postgres_behaves_like_the_memory_store(shared_postgres: SharedPostgres) -> None:
    _judge(make_machine(lambda: nullcontext(shared_postgres.fresh()), oracle=True)())
