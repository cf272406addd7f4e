"""Fair shares: the claim order between tenants.

Tenants take turns; the queues and priorities of a tenant matter only within its own turn. A tenant, or a group of tenants, has a
*pass* that rises by ``jobs / weight`` with every claim, and the lowest pass is served next (stride scheduling). A tenant
that was idle starts at the lowest pass of the waiting ones, so that it cannot save up turns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import TypeVar

Item = TypeVar("Item")

GROUP_END = "/"
"""Separator after the part of a tenant's name that its share group has in common."""


def group_of(tenant: str) -> str:
    """The share group of a tenant: its name up to the first slash.

    >>> group_of("acme/eu"), group_of("acme")
    ('acme', 'acme')
    """
    return tenant.partition(GROUP_END)[0] or tenant


class Passes:
    """The pass of each name."""

    def __init__(self) -> None:
        self._passes: dict[str, float] = {}
        self._turn = 0

    def ordered(self, names: Collection[str]) -> list[str]:
        """The names by ascending pass; names with the same pass in rotation."""
        self._turn += 1
        if len(names) < 2:
            return list(names)
        self._admit(names)
        places = {name: place for place, name in enumerate(sorted(names))}
        count, turn, passes = len(names), self._turn, self._passes
        return sorted(names, key=lambda name: (passes[name], (places[name] - turn) % count))

    def quotas(self, names: Sequence[str], limit: int, weight: Callable[[str], float]) -> dict[str, int]:
        """The share of each name in ``limit`` jobs if all had enough; names without a share are omitted."""
        self._admit(names)
        heap = [(self._passes[name], place) for place, name in enumerate(names)]
        heapify(heap)
        found: dict[str, int] = {}
        for _ in range(limit):
            at, place = heap[0]
            name = names[place]
            found[name] = found.get(name, 0) + 1
            heapreplace(heap, (at + 1 / weight(name), place))
        return found

    def served(self, counts: Mapping[str, int], weight: Callable[[str], float]) -> None:
        """Count the claimed jobs of each name."""
        for name, number in counts.items():
            if name in self._passes:
                self._passes[name] += number / weight(name)

    def keep(self, names: Collection[str]) -> None:
        """Forget all other names; a name that returns later starts with the lowest pass."""
        self._passes = {name: at for name, at in self._passes.items() if name in names}

    def _admit(self, names: Collection[str]) -> None:
        passes = self._passes
        known = [passes[name] for name in names if name in passes]
        if len(known) < len(names):
            lowest = min(known, default=0.0)
            for name in names:
                passes.setdefault(name, lowest)


class Shares:
    """The rotation between groups of tenants, and between the tenants of a group."""

    def __init__(self) -> None:
        self._groups, self._tenants = Passes(), Passes()
        self._turns: dict[str, int] = {}  # by tenant: number of requests

    def seen(self, tenants: Collection[str]) -> None:
        """Record the tenants that have work now."""
        self._tenants.keep(tenants)
        self._groups.keep({group_of(tenant) for tenant in tenants} | set(tenants))
        self._turns = {tenant: turn for tenant, turn in self._turns.items() if tenant in tenants}

    def grouped(self, tenants: Iterable[str], *, by_prefix: bool) -> dict[str, list[str]]:
        """The tenants by share group."""
        groups: dict[str, list[str]] = {}
        for tenant in tenants:
            groups.setdefault(group_of(tenant) if by_prefix else tenant, []).append(tenant)
        return groups

    def rounds(
        self, tenants: Mapping[str, Sequence[Sequence[Item]]], *, by_prefix: bool = True
    ) -> tuple[list[str], Callable[[Collection[str]], Iterator[tuple[str, Item]]]]:
        """The groups in order, and a function that yields the items of some of them in rounds, one per group at a time.

        ``tenants`` maps each tenant to its items by descending priority; items of the same priority rotate.
        """
        groups = self.grouped(tenants, by_prefix=by_prefix)
        order = self._groups.ordered(groups)

        def items(chosen: Collection[str]) -> Iterator[tuple[str, Item]]:
            streams = [(group, self._of_group(groups[group], tenants)) for group in order if group in chosen]
            return _in_rounds(streams)

        return order, items

    def quotas(self, groups: Sequence[str], limit: int, weights: Mapping[str, float]) -> dict[str, int]:
        """The share of each group in a claim."""
        return self._groups.quotas(groups, limit, lambda name: weights.get(name, 1.0))

    def served(
        self, tenants: Mapping[str, int], weights: Mapping[str, float], *, by_prefix: bool = True
    ) -> None:
        """Count the claimed jobs of each tenant."""
        groups: dict[str, int] = {}
        for tenant, number in tenants.items():
            group = group_of(tenant) if by_prefix else tenant
            groups[group] = groups.get(group, 0) + number
        self._groups.served(groups, lambda name: weights.get(name, 1.0))
        self._tenants.served(tenants, lambda name: weights.get(name, 1.0))

    def _of_group(
        self, members: Sequence[str], tenants: Mapping[str, Sequence[Sequence[Item]]]
    ) -> Iterator[Item]:
        streams = [(name, self._of_tenant(name, tenants[name])) for name in self._tenants.ordered(members)]
        return (item for _, item in _in_rounds(streams))

    def _of_tenant(self, tenant: str, ranks: Sequence[Sequence[Item]]) -> Iterator[Item]:
        turn = self._turns[tenant] = self._turns.get(tenant, 0) + 1
        for rank in ranks:
            first = turn % len(rank)
            yield from rank[first:]
            yield from rank[:first]


def _in_rounds(streams: Iterable[tuple[str, Iterator[Item]]]) -> Iterator[tuple[str, Item]]:
    """One item of each stream in turn until all are exhausted."""
    left = list(streams)
    if len(left) == 1:
        name, stream = left[0]
        yield from ((name, item) for item in stream)
        return
    while left:
        going: list[tuple[str, Iterator[Item]]] = []
        for name, stream in left:
            for item in stream:
                yield name, item
                going.append((name, stream))
                break
        left = going
