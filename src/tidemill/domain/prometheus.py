"""Metrics in Prometheus's text format (version 0.0.4), and in that of OpenMetrics (version 1.0.0)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate
from typing import Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"

MOST_LABELS = 50
"""Label values that get their own line; the rest are summed as ``other``."""

OTHER = "other"

Labels = Mapping[str, str]


class Exemplar(NamedTuple):
    """One event behind a count: the id of its trace, its value, and when it happened."""

    trace_id: str
    value: float
    at: datetime


@dataclass(slots=True)
class Family:
    """One metric: name, help text, and a value per label set."""

    name: str
    help: str
    kind: Literal["gauge", "counter"] = "gauge"
    values: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, value: float, /, **labels: str) -> None:
        self.values.append((labels, value))

    def samples(self) -> Iterator[Sample]:
        return (Sample(self.name, labels, value) for labels, value in self.values)


@dataclass(slots=True)
class Histogram:
    """A histogram: counts per bucket (upper bounds are inclusive), and the sum of the values."""

    name: str
    help: str
    bounds: Sequence[float]
    values: list[tuple[Labels, Sequence[int], float]] = field(default_factory=list)
    kind: Literal["histogram"] = "histogram"
    #: By labels; the bucket is the one that contains the value.
    exemplars: list[tuple[Labels, Exemplar]] = field(default_factory=list)

    def add(self, buckets: Sequence[int], total: float, /, **labels: str) -> None:
        """Add non-cumulative bucket counts (one more than there are bounds) and the sum of the values."""
        self.values.append((labels, buckets, total))

    def samples(self) -> Iterator[Sample]:
        for labels, buckets, total in self.values:
            examples = {
                bisect_left(self.bounds, exemplar.value): exemplar
                for of, exemplar in self.exemplars
                if of == labels
            }
            bounds = zip((*self.bounds, None), accumulate(buckets), strict=True)
            for number, (bound, below) in enumerate(bounds):
                end = "+Inf" if bound is None else _number(bound)
                yield Sample(f"{self.name}_bucket", {**labels, "le": end}, below, examples.get(number))
            yield Sample(f"{self.name}_sum", labels, total)
            yield Sample(f"{self.name}_count", labels, sum(buckets))


class Sample(NamedTuple):
    """One line of the text."""

    name: str
    labels: Labels
    value: float
    exemplar: Exemplar | None = None


def rendered(families: Iterable[Family | Histogram], *, openmetrics: bool = False) -> str:
    r"""All metrics as text. Only the format of OpenMetrics has exemplars.

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
        # In OpenMetrics, the samples of a counter end in _total and its family does not.
        name = family.name.removesuffix("_total") if openmetrics else family.name
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {family.kind}"]
        for sample in family.samples():
            line = f"{sample.name}{_labels(sample.labels)} {_number(sample.value)}"
            example = sample.exemplar if openmetrics else None
            lines.append(line if example is None else f"{line} {_exemplar(example)}")
    if openmetrics:
        lines.append("# EOF")
    return "".join(f"{line}\n" for line in lines)


def _exemplar(example: Exemplar) -> str:
    labels = _labels({"trace_id": example.trace_id})
    return f"# {labels} {_number(example.value)} {example.at.timestamp():.3f}"


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
                merged = found.setdefault(family.name, replace(family, values=[], exemplars=[]))
                assert isinstance(merged, Histogram)
                merged.values += [
                    ({**labels, label: name}, buckets, total) for labels, buckets, total in family.values
                ]
                merged.exemplars += [({**labels, label: name}, one) for labels, one in family.exemplars]
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
