"""Random workflows on every store, with the memory store as oracle: the invariants F1 to F15.

A sequence has flows with growth and retries, open batches with callbacks, and sagas with compensations, in two tenants; crashes,
zombies and trespassers act on them. F6, F7 and F8 have a machine of their own in ``test_message_machine.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conformance.workflow_world import TENANTS, Act, World, hire
from tests.grounds import new_file

from tidemill.domain.graph import EdgeCondition
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import open_store

C = EdgeCondition
SEQUENCES = 300
CONDITIONS = [C.SUCCESS, C.SUCCESS, C.FAILURE, C.NOT_SUCCESS, C.END]
KINDS = [
    "complete", "fail", "again", "give_up", "two_at_once", "grow", "crash", "zombie", "compensate", "cancel_waiting", "retry",
    "release", "cascade", "remove", "trespass",
]  # fmt: skip
WEIGHTED = [*KINDS, "complete", "fail", "grow", "compensate", "retry", "cascade"]

Graph = list[tuple[dict[int, EdgeCondition], int]]
Pair = tuple[Store, Store | None, UUID]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw at most five nodes without cycles: the needs of each, and how many of them must count."""
    nodes: Graph = []
    for place in range(draw(st.integers(1, 5))):
        needs = draw(st.sets(st.integers(0, place - 1), max_size=3)) if place else set()
        edges = {need: draw(st.sampled_from(CONDITIONS)) for need in sorted(needs)}
        every = draw(st.booleans()) or len(edges) < 2
        nodes.append((edges, len(edges) if every else draw(st.integers(1, len(edges)))))
    return nodes


acts = st.lists(
    st.builds(Act, st.sampled_from(WEIGHTED), st.integers(0, 7), st.integers(0, 7)), min_size=4, max_size=14
)
tenants = st.sampled_from(TENANTS)


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A store, its oracle (none for the memory store itself), and a worker of both."""
    worker, oracle = new_id(), None if request.param == "memory" else MemoryStore()
    if request.param == "memory":
        store: Store = MemoryStore()
    elif request.param == "sqlite":
        store = open_store(new_file(tmp_path_factory.mktemp("machine")) + "?synchronous=normal")
    else:
        store = request.getfixturevalue("shared_postgres").fresh()
    for each in (store, oracle):
        if each is not None:
            hire(each, worker)
    yield store, oracle, worker
    if request.param == "sqlite":
        store.close()


@pytest.mark.long
def test_random_workflows_keep_every_invariant(pair: Pair) -> None:
    taken = Counter[str]()

    @settings(max_examples=SEQUENCES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(st.tuples(tenants, graphs()), min_size=1, max_size=2),
        st.lists(st.tuples(tenants, st.integers(0, 3)), max_size=1),
        st.lists(tenants, max_size=1),
        acts,
    )
    def runs(
        flows: list[tuple[str, Graph]], batches: list[tuple[str, int]], sagas: list[str], sequence: list[Act]
    ) -> None:
        world = World(*pair)
        for tenant, graph in flows:
            world.build_flow(tenant, graph)
        for tenant, members in batches:
            world.build_batch(tenant, members)
        for tenant in sagas:
            world.build_saga(tenant)
        world.settle()
        for act in sequence:
            world.act(act)
        world.finish()
        taken.update(world.taken)

    runs()
    assert set(taken) == set(KINDS), "every act took place"
