"""Numbers as Prometheus reads them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.exposition import OTHER, Family, bounded, rendered

LINE = re.compile(r'^[a-z_]+(\{[a-z]+="((?:[^"\\\n]|\\[\\n"])*)"\})? (-?[0-9.e+-]+)$')


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_any_label_and_number_makes_one_line_that_can_be_read_back(label: str, value: float) -> None:
    family = Family("tidemill_x", "Some\nhelp.", "counter")
    family.add(value, name=label)
    text = rendered([family])
    text.encode()
    head, kind, line, end = text.split("\n")
    assert (head, kind, end) == ("# HELP tidemill_x Some\\nhelp.", "# TYPE tidemill_x counter", "")
    found = LINE.match(line)
    assert found is not None
    assert float(found[3]) == value
    shown = re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], found[2])
    assert shown == label.encode("utf-8", "backslashreplace").decode()


@given(st.dictionaries(st.text(), st.integers(0, 9)), st.integers(0, 5))
def test_however_many_names_there_are_few_are_shown_and_nothing_is_lost(
    rows: dict[str, int], most: int
) -> None:
    found = bounded(rows.items(), most)
    assert len(found) <= most + 1
    assert sum(value for _, value in found) == sum(rows.values())
    if len(rows) > most:
        assert found[-1][0] == OTHER
