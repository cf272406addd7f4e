"""Tests of the Prometheus text format."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.prometheus import OTHER, Family, bounded, rendered

LINE = re.compile(r'^[a-z_]+(\{[a-z]+="((?:[^"\\\n]|\\[\\n"])*)"\})? (-?[0-9.e+-]+)$')


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_a_sample_round_trips(label: str, value: float) -> None:
    family = Family("tidemill_x", "Some\nhelp.", "counter")
    family.add(value, name=label)
    text = rendered([family])
    text.encode()
    head, kind, line, end = text.split("\n")
    assert (head, kind, end) == ("# HELP tidemill_x Some\\nhelp.", "# TYPE tidemill_x counter", "")
    match = LINE.match(line)
    assert match is not None
    assert float(match[3]) == value
    shown = re.sub(r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], match[2])
    assert shown == label.encode("utf-8", "backslashreplace").decode()


@given(st.dictionaries(st.text(), st.integers(0, 9)), st.integers(0, 5))
def test_names_beyond_the_maximum_are_summed_up(rows: dict[str, int], most: int) -> None:
    shown = bounded(rows.items(), most)
    assert len(shown) <= most + 1
    assert sum(value for _, value in shown) == sum(rows.values())
    if len(rows) > most:
        assert shown[-1][0] == OTHER
