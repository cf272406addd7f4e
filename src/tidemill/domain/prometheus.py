"""Metrics in Prometheus's text format (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MOST_LABELS = 50
"""Label values that get their own line; the rest are summed as ``other``."""

OTHER = "other"

Labels = Mapping[str, str]


@dataclass(slots=True)
class Family:
    """One metric: name, help text, and a value per label set."""

    name: str
    help: str
    kind: Literal["gauge", "counter"] = "gauge"
    values: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, value: float, /, **labels: str) -> None:
        self.values.append((labels, value))

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        return ((self.name, labels, value) for labels, value in self.values)


@dataclass(slots=True)
class Histogram:
    """A histogram: counts per bucket (upper bounds are inclusive), and the sum of the values."""

    name: str
    help: str
    bounds: Sequence[float]
    values: list[tuple[Labels, Sequence[int], float]] = field(default_factory=list)
    kind: Literal["histogram"] = "histogram"

    def add(self, buckets: Sequence[int], total: float, /, **labels: str) -> None:
        """Add non-cumulative bucket counts (one more than there are bounds) and the sum of the values."""
        self.values.append((labels, buckets, total))

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        for labels, buckets, total in self.values:
            for bound, below in zip((*self.bounds, None), accumulate(buckets), strict=True):
                end = "+Inf" if bound is None else _number(bound)
                yield f"{self.name}_bucket", {**labels, "le": end}, below
            yield f"{self.name}_sum", labels, total
            yield f"{self.name}_count", labels, sum(buckets)


def rendered(families: Iterable[Family | Histogram]) -> str:
    r"""All metrics as text.

    >>> depth = Family("tidemill_queue_depth", "Jobs that wait.")
    >>> depth.add(3, queue='a"b')
    >>> print(rendered([depth]), end="")
    # HELP tidemill_queue_depth Jobs that wait.
    # TYPE tidemill_queue_depth gauge
    tidemill_queue_depth{queue="a\"b"} 3
    """
    lines: list[str] = []
    for family in families:
        help_text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
        lines += [f"# HELP {family.name} {help_text}", f"# TYPE {family.name} {family.kind}"]
        lines += [f"{name}{_labels(labels)} {_number(value)}" for name, labels, value in family.samples()]
    return "".join(f"{line}\n" for line in lines)


def combined(label: str, parts: Mapping[str, Sequence[Family | Histogram]]) -> list[Family | Histogram]:
    """The families of several parts in one: each sample gets the name of its part as a label.

    >>> one, two = Family("depth", "Jobs."), Family("depth", "Jobs.")
    >>> one.add(1), two.add(2)
    (None, None)
    >>> combined("store", {"a": [one], "b": [two]})[0].values
    [({'store': 'a'}, 1), ({'store': 'b'}, 2)]
    """
    found: dict[str, Family | Histogram] = {}
    for name, families in parts.items():
        for family in families:
            if isinstance(family, Family):
                known = found.setdefault(family.name, replace(family, values=[]))
                assert isinstance(known, Family)
                known.values += [({**labels, label: name}, value) for labels, value in family.values]
            else:
                merged = found.setdefault(family.name, replace(family, values=[]))
                assert isinstance(merged, Histogram)
                merged.values += [
                    ({**labels, label: name}, buckets, total) for labels, buckets, total in family.values
                ]
    return list(found.values())


def bounded(rows: Iterable[tuple[str, float]], most: int = MOST_LABELS) -> list[tuple[str, float]]:
    """The names with the greatest values, and the sum of the rest as ``other``.

    >>> bounded([("a", 1), ("b", 5), ("c", 2)], most=1)
    [('b', 5), ('other', 3)]
    """
    ordered = sorted(rows, key=lambda row: (-row[1], row[0]))
    kept, rest = ordered[:most], ordered[most:]
    return kept + ([(OTHER, sum(value for _, value in rest))] if rest else [])


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return text.encode("utf-8", "backslashreplace").decode()


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
