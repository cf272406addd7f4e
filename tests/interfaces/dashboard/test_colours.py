"""Colours of the timeline: distinct, and with enough contrast in both themes."""

from __future__ import annotations

import itertools
import re

import pytest

from tidemill.dashboard.files import FOLDER
from tidemill.domain.states import ExecutionState

KINDS = (
    "scheduled", "retry_wait", "queued", "claimed", "waiting", "running", "succeeded", "failed", "review", "cancelled",
)  # fmt: skip
ALIKE = {"timed_out": "failed", "crashed": "failed", "suspended": "review", "released": "cancelled"}
"""Kinds of executions that share a colour with another one of their meaning."""
LEAST_CONTRAST = 3.0
"""The minimum contrast of graphical objects in WCAG 2.1 (1.4.11)."""

LEAST_DISTANCE = 20.0
"""The minimum distance in CIELAB (CIE76); about 2 is just noticeable."""


def palette(theme: int) -> dict[str, str]:
    """The named colours of the light or the dark theme."""
    text = (FOLDER / "base.css").read_text(encoding="utf-8")
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", text)
    return {name: pair[theme] for name, *pair in found}


def named(kind: str, part: str) -> str:
    """The colour of a kind in the style sheet, for the picture or the legend."""
    text = (FOLDER / "jobs.css").read_text(encoding="utf-8")
    start = rf"\.key\.t-{kind}::before" if part == "legend" else rf"(?<!key)\.t-{kind}"
    rule = re.search(rf"{start}\b[^{{}}]*\{{ (?:background|fill): var\(--(\w+)\); \}}", text)
    assert rule is not None, (kind, part)
    return rule[1]


def linear(colour: str) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def lab(colour: str) -> tuple[float, float, float]:
    red, green, blue = linear(colour)
    xyz = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505,
        luminance(colour),
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
    )
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(one: str, other: str) -> float:
    return float(sum((a - b) ** 2 for a, b in zip(lab(one), lab(other), strict=True)) ** 0.5)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_kinds_of_time_have_distinct_colours(theme: int) -> None:
    colours = palette(theme)
    drawn = {kind: colours[named(kind, "picture")] for kind in KINDS}
    near = [
        (one, other)
        for one, other in itertools.combinations(KINDS, 2)
        if distance(drawn[one], drawn[other]) < LEAST_DISTANCE
    ]
    assert near == []


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_kind_of_time_contrasts_with_its_background(theme: int) -> None:
    colours = palette(theme)
    faint = {
        kind: found
        for kind in KINDS
        for ground in ("raised", "card")
        if (found := contrast(colours[named(kind, "picture")], colours[ground])) < LEAST_CONTRAST
    }
    assert faint == {}


def test_every_state_of_an_execution_has_a_colour() -> None:
    assert {state.value for state in ExecutionState} <= {*KINDS, *ALIKE}
    assert {kind: named(kind, "picture") for kind in ALIKE} == {
        kind: named(other, "picture") for kind, other in ALIKE.items()
    }


def test_the_legend_has_the_colours_of_the_picture() -> None:
    kinds = (*KINDS, *ALIKE)
    assert [named(kind, "legend") for kind in kinds] == [named(kind, "picture") for kind in kinds]
