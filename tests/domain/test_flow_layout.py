"""The picture of a flow and its critical path."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.flow_layout import HEIGHT, MOST_BOXES, WIDTH, critical_path, lay_out, layers_of


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], dict[int, list[int]]]:
    count = draw(st.integers(0, 40))
    nodes = list(range(count))
    needs = {
        node: draw(st.lists(st.integers(0, node - 1), max_size=3, unique=True)) if node else []
        for node in nodes
    }
    return draw(st.permutations(nodes)), needs


@given(graphs())
def test_every_node_is_to_the_right_of_what_it_needs(graph: tuple[list[int], dict[int, list[int]]]) -> None:
    nodes, needs = graph
    layers = layers_of(nodes, needs)
    for node in nodes:
        assert all(layers[need] < layers[node] for need in needs[node])


@given(graphs())
def test_boxes_do_not_overlap_and_every_edge_is_drawn(graph: tuple[list[int], dict[int, list[int]]]) -> None:
    nodes, needs = graph
    layout = lay_out(nodes, needs)
    assert sorted(id for box in layout.boxes for id in box.ids) == sorted(nodes)
    for first in layout.boxes:
        for second in layout.boxes:
            if first is not second:
                assert abs(first.x - second.x) >= WIDTH or abs(first.y - second.y) >= HEIGHT
        assert first.x + WIDTH <= layout.width
        assert first.y + HEIGHT <= layout.height
    assert {(curve.start, curve.end) for curve in layout.curves} == {
        (need, node) for node in nodes for need in needs[node]
    }


@given(graphs(), st.data())
def test_the_critical_path_is_the_longest_chain(
    graph: tuple[list[int], dict[int, list[int]]], data: st.DataObject
) -> None:
    nodes, needs = graph
    seconds = {node: data.draw(st.integers(0, 9)) for node in nodes}
    found = critical_path(nodes, needs, seconds)

    def longest(node: int) -> int:
        return seconds[node] + max((longest(need) for need in needs[node]), default=0)

    assert found.seconds == max((longest(node) for node in nodes), default=0)
    assert sum(seconds[node] for node in found.ids) == found.seconds
    for need, node in zip(found.ids, found.ids[1:], strict=False):
        assert need in needs[node]


def test_a_wide_flow_is_folded_by_layer() -> None:
    nodes = ["start", *(f"load-{number}" for number in range(5_000)), "end"]
    needs = {f"load-{number}": ["start"] for number in range(5_000)} | {"end": nodes[1:-1]}
    layout = lay_out(nodes, needs)
    assert [len(box.ids) for box in layout.boxes] == [1, 5_000, 1]
    assert len(layout.curves) == 2


def test_a_long_chain_is_folded_into_few_boxes() -> None:
    nodes = list(range(2_000))
    layout = lay_out(nodes, {node: [node - 1] for node in nodes[1:]})
    assert len(layout.boxes) <= MOST_BOXES
    assert sum(len(box.ids) for box in layout.boxes) == 2_000


def test_needs_outside_of_the_picture_are_ignored() -> None:
    layout = lay_out(["a"], {"a": ["elsewhere"]})
    assert layout.curves == []
    assert critical_path(["a"], {"a": ["elsewhere"]}, {}).ids == ["a"]


def test_nodes_that_wait_for_each_other_are_still_drawn() -> None:
    assert len(lay_out(["a", "b"], {"a": ["b"], "b": ["a"]}).boxes) == 2


@given(graphs())
def test_a_long_curve_crosses_columns_between_their_boxes(
    graph: tuple[list[int], dict[int, list[int]]],
) -> None:
    layout = lay_out(*graph)
    boxes = [(box.x, box.y, box.y + HEIGHT) for box in layout.boxes]
    for curve in layout.curves:
        for height, right in re.findall(r" (-?\d+)H(\d+)", curve.path):
            column = [(top, bottom) for left, top, bottom in boxes if left + WIDTH == int(right)]
            assert column
            assert not any(top <= int(height) <= bottom for top, bottom in column)
            assert 0 <= int(height) <= layout.height


def test_urgent_nodes_of_a_folded_layer_have_boxes_of_their_own() -> None:
    nodes = ["start", *(f"load-{number}" for number in range(50)), "end"]
    needs = {f"load-{number}": ["start"] for number in range(50)} | {"end": nodes[1:-1]}
    layout = lay_out(nodes, needs, wide=40, apart=["load-7", "start"])
    assert sorted(len(box.ids) for box in layout.boxes) == [1, 1, 1, 49]
    assert ("load-7",) in [box.ids for box in layout.boxes]
    assert len(layout.curves) == 4
    assert len(lay_out(nodes, needs, wide=50).boxes) == 52
