"""The picture of a flow: layers, positions and curves, and its critical path."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Id = TypeVar("Id", bound=Hashable)

MOST_BOXES = 300
"""Boxes of a picture; the layers of a larger flow are folded."""

WIDE = 40
"""Boxes of one layer of a folded picture."""

WIDTH, HEIGHT = 190, 58
GAP_X, GAP_Y = 60, 22
MARGIN = 12


class Box(NamedTuple, Generic[Id]):
    """A node, or the folded nodes of one layer, with its upper left corner."""

    ids: tuple[Id, ...]
    layer: int
    x: int
    y: int

    @property
    def is_folded(self) -> bool:
        """Whether it stands for several nodes."""
        return len(self.ids) > 1


class Curve(NamedTuple, Generic[Id]):
    """A connection from a need to the node that waits for it; ids of folded boxes are those of their first nodes."""

    start: Id
    end: Id
    path: str  #: an SVG path


@dataclass(frozen=True, slots=True)
class Layout(Generic[Id]):
    """The picture of a flow."""

    boxes: list[Box[Id]]
    curves: list[Curve[Id]]
    width: int
    height: int


class CriticalPath(NamedTuple, Generic[Id]):
    """The chain of nodes with the longest sum of durations, in seconds."""

    ids: list[Id]
    seconds: float


def layers_of(nodes: Sequence[Id], needs: Mapping[Id, Iterable[Id]]) -> dict[Id, int]:
    """The layer of each node: the longest way from a node without needs. Needs outside of ``nodes`` are ignored.

    >>> layers_of(["a", "b", "c"], {"b": ["a"], "c": ["a", "b"]})
    {'a': 0, 'b': 1, 'c': 2}
    """
    order = _sorted_by_needs(nodes, needs)
    layers: dict[Id, int] = {}
    for node in order:
        layers[node] = max((layers[need] + 1 for need in needs.get(node, ()) if need in layers), default=0)
    return {node: layers[node] for node in nodes}


def _sorted_by_needs(nodes: Sequence[Id], needs: Mapping[Id, Iterable[Id]]) -> list[Id]:
    """The nodes, each after what it needs. Nodes of a cycle come last."""
    known = set(nodes)
    open_needs = {node: len({need for need in needs.get(node, ()) if need in known}) for node in nodes}
    users: dict[Id, list[Id]] = defaultdict(list)
    for node in nodes:
        for need in {need for need in needs.get(node, ()) if need in known}:
            users[need].append(node)
    ready = [node for node in nodes if not open_needs[node]]
    order: list[Id] = []
    for node in ready:
        order.append(node)
        for user in users[node]:
            open_needs[user] -= 1
            if not open_needs[user]:
                ready.append(user)
    placed = set(order)
    return order + [node for node in nodes if node not in placed]


def lay_out(
    nodes: Sequence[Id],
    needs: Mapping[Id, Iterable[Id]],
    *,
    most: int = MOST_BOXES,
    wide: int | None = None,
    apart: Collection[Id] = (),
) -> Layout[Id]:
    """Place the nodes in columns from left to right, with few crossings. Needs outside of ``nodes`` are ignored.

    A column of more than ``wide`` nodes becomes one box. The nodes in ``apart`` keep boxes of their own in it.
    """
    layers = layers_of(nodes, needs)
    columns: dict[int, list[Id]] = defaultdict(list)
    for node in nodes:
        columns[layers[node]].append(node)
    # Folded first, so that only what is drawn is sorted.
    groups = _folded(columns, most, len(nodes) if wide is None else wide, frozenset(apart))
    first = {id: ids[0] for column in groups.values() for ids in column for id in ids}
    pairs = dict.fromkeys(
        (first[need], first[node]) for node in nodes for need in needs.get(node, ()) if need in first
    )
    _order_columns(groups, [pair for pair in pairs if pair[0] != pair[1]])
    boxes = _placed(groups)
    corner = {box.ids[0]: box for box in boxes}
    gaps = _gaps(boxes)
    curves = [
        Curve(start, end, _curve(corner[start], corner[end], gaps)) for start, end in pairs if start != end
    ]
    width = max((box.x + WIDTH for box in boxes), default=0) + MARGIN
    height = max((box.y + HEIGHT for box in boxes), default=0) + MARGIN
    return Layout(boxes, curves, width, height)


def _order_columns(groups: dict[int, list[tuple[Id, ...]]], pairs: Iterable[tuple[Id, Id]]) -> None:
    """Sort each column by the mean place of its neighbours: one sweep to the right by needs, one to the left by users.

    A box is known by the first of its nodes.
    """
    before: dict[Id, list[Id]] = defaultdict(list)
    after: dict[Id, list[Id]] = defaultdict(list)
    for need, node in pairs:
        before[node].append(need)
        after[need].append(node)
    place = {ids[0]: index for column in groups.values() for index, ids in enumerate(column)}
    for numbers, neighbours in ((sorted(groups), before), (sorted(groups, reverse=True), after)):
        for number in numbers:
            means = {
                ids[0]: sum(place[other] for other in neighbours[ids[0]]) / len(neighbours[ids[0]])
                if neighbours[ids[0]]
                else float(place[ids[0]])
                for ids in groups[number]
            }
            groups[number].sort(key=lambda ids: means[ids[0]])
            place.update({ids[0]: index for index, ids in enumerate(groups[number])})


def _folded(
    columns: Mapping[int, list[Id]], most: int, wide: int, apart: Collection[Id]
) -> dict[int, list[tuple[Id, ...]]]:
    """The boxes of each column. Wide columns become one box each, and in a flow with too many nodes the longest ones."""
    groups: dict[int, list[tuple[Id, ...]]] = {
        number: [(node,) for node in column] for number, column in columns.items()
    }
    count = sum(map(len, groups.values()))
    for number in sorted(columns, key=lambda number: -len(columns[number])):
        column = columns[number]
        if (count <= most and len(column) <= wide) or len(column) == 1:
            break
        alone = [node for node in column if node in apart]
        rest = tuple(node for node in column if node not in apart)
        groups[number] = [(node,) for node in alone] + ([rest] if rest else [])
        count += len(groups[number]) - len(column)
    if count <= most:
        return groups
    # A long chain: neighbouring layers share a box.
    size = -(-count // most)
    merged: dict[int, list[Id]] = defaultdict(list)
    for number in sorted(groups):
        merged[number // size] += [node for ids in groups[number] for node in ids]
    return {number: [tuple(box)] for number, box in merged.items()}


def _placed(groups: Mapping[int, list[tuple[Id, ...]]]) -> list[Box[Id]]:
    tallest = max((len(column) for column in groups.values()), default=0)
    boxes: list[Box[Id]] = []
    for number in sorted(groups):
        column = groups[number]
        top = MARGIN + (tallest - len(column)) * (HEIGHT + GAP_Y) // 2
        boxes += [
            Box(ids, number, MARGIN + number * (WIDTH + GAP_X), top + place * (HEIGHT + GAP_Y))
            for place, ids in enumerate(column)
        ]
    return boxes


def _curve(start: Box[Id], end: Box[Id], gaps: Mapping[int, Sequence[int]]) -> str:
    """A curve from box to box. Where it crosses a column in between, it passes through the gap nearest to the straight line."""
    x, y = start.x + WIDTH, start.y + HEIGHT // 2
    last = end.y + HEIGHT // 2
    path = f"M{x} {y}"
    for layer in range(start.layer + 1, end.layer):
        wanted = y + (last - y) / (end.layer - layer + 1)
        left = MARGIN + layer * (WIDTH + GAP_X)
        gap = min(gaps[layer], key=lambda gap: abs(gap - wanted))
        path += _bend(x, y, left, gap) + f"H{left + WIDTH}"
        x, y = left + WIDTH, gap
    return path + _bend(x, y, end.x, last)


def _bend(x1: int, y1: int, x2: int, y2: int) -> str:
    bend = max((x2 - x1) // 2, GAP_X // 2)
    return f"C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"


def _gaps(boxes: Iterable[Box[Id]]) -> dict[int, list[int]]:
    """The heights at which a line may cross each column: above its first box, and below each of its boxes."""
    gaps: dict[int, list[int]] = {}
    for box in boxes:
        gaps.setdefault(box.layer, [box.y - GAP_Y // 2]).append(box.y + HEIGHT + GAP_Y // 2)
    return gaps


def critical_path(
    nodes: Sequence[Id], needs: Mapping[Id, Iterable[Id]], seconds: Mapping[Id, float]
) -> CriticalPath[Id]:
    """The longest chain by the durations of its nodes; a node without a duration counts as zero.

    >>> critical_path(["a", "b", "c"], {"c": ["a", "b"]}, {"a": 5, "b": 2, "c": 1})
    CriticalPath(ids=['a', 'c'], seconds=6)
    """
    total: dict[Id, float] = {}
    came_from: dict[Id, Id | None] = {}
    for node in _sorted_by_needs(nodes, needs):
        ahead = max(
            (need for need in needs.get(node, ()) if need in total), key=total.__getitem__, default=None
        )
        came_from[node] = ahead
        total[node] = seconds.get(node, 0) + (0 if ahead is None else total[ahead])
    if not total:
        return CriticalPath([], 0)
    last: Id | None = max(nodes, key=total.__getitem__)
    longest = total[last] if last is not None else 0
    path: list[Id] = []
    while last is not None:
        path.append(last)
        last = came_from[last]
    return CriticalPath(path[::-1], longest)


def counted_states(states: Iterable[str]) -> dict[str, int]:
    """How many nodes are in each state, the most frequent first."""
    return dict(Counter(states).most_common())
