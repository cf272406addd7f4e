"""Reports that workers send with their heartbeats, and the numbers of processes and slots that operators request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidemill.errors import BadSettings

MOST: Mapping[str, int] = {"processes": 128, "concurrency": 10_000, "threads": 1_000, "children": 128}
"""The highest numbers that can be requested of a running worker. The least is 1."""


class SlotCounts(NamedTuple):
    """The slots of one runner: coroutines, threads and child processes."""

    concurrency: int
    threads: int
    children: int

    @property
    def total(self) -> int:
        return sum(self)


class ProcessFigures(NamedTuple):
    """The memory and the CPU use of one process; None where the system does not report them."""

    memory: int | None = None  #: resident memory in bytes
    cpu: float | None = None  #: share of one core since the previous heartbeat; 1.0 is one whole core


class SupervisorReport(NamedTuple):
    """The process that supervises a runner, as it describes itself."""

    name: str
    pid: int
    processes: int  #: the number of runners that it keeps for this store
    figures: ProcessFigures = ProcessFigures()


class WorkerReport(NamedTuple):
    """The report of one worker. ``supervisor`` is None if it runs inside another program."""

    slots: SlotCounts
    figures: ProcessFigures = ProcessFigures()
    supervisor: SupervisorReport | None = None

    def to_text(self) -> str:
        """Encode the report for the store.

        >>> report = WorkerReport(SlotCounts(100, 10, 2), ProcessFigures(2**20, 0.25), SupervisorReport("a-1", 1, 2))
        >>> WorkerReport.from_text(report.to_text()) == report
        True
        """
        data: dict[str, Any] = {"slots": list(self.slots), **_figures_data(self.figures)}
        if self.supervisor is not None:
            name, pid, processes, figures = self.supervisor
            data["supervisor"] = {"name": name, "pid": pid, "processes": processes, **_figures_data(figures)}
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str | None) -> WorkerReport | None:
        """Decode a report. One that this version cannot read counts as missing.

        >>> WorkerReport.from_text('{"pages": 1}') is None
        True
        """
        try:
            data = None if text is None else json.loads(text)
            if data is None:
                return None
            above = data.get("supervisor")
            supervisor = None
            if above is not None:
                supervisor = SupervisorReport(
                    str(above["name"]), int(above["pid"]), int(above["processes"]), _figures(above)
                )
            return cls(SlotCounts(*map(int, data["slots"])), _figures(data), supervisor)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


class Scale(NamedTuple):
    """The numbers of runners, and of slots of each runner, that a supervisor is to have."""

    processes: int
    slots: SlotCounts


class ScaleRequest(NamedTuple):
    """The latest request to a supervisor. Its number rises with each request, so that each is carried out once."""

    number: int
    scale: Scale


def _figures_data(figures: ProcessFigures) -> dict[str, int | float]:
    data: dict[str, int | float] = {}
    if figures.memory is not None:
        data["memory"] = figures.memory
    if figures.cpu is not None:
        data["cpu"] = round(figures.cpu, 3)
    return data


def _figures(data: Mapping[str, Any]) -> ProcessFigures:
    memory, cpu = data.get("memory"), data.get("cpu")
    return ProcessFigures(None if memory is None else int(memory), None if cpu is None else float(cpu))


def scaled(report: WorkerReport, wanted: Mapping[str, int | None]) -> Scale:
    """Return the scale of a worker with these numbers changed; None keeps one. Raise ``BadSettings`` for one that is not possible."""
    above = report.supervisor
    now = {"processes": 1 if above is None else above.processes, **report.slots._asdict()}
    for name, number in wanted.items():
        if number is None or number == now[name]:
            continue
        if name == "processes" and above is None:
            raise BadSettings(
                "this worker runs inside another program, so it has one process; scale its slots, or start it with "
                "tidemill worker",
                setting=name,
            )
        if not 1 <= number <= MOST[name]:
            raise BadSettings(f"{name} is {number}; give 1 to {MOST[name]:,}", setting=name)
        if not now[name]:
            raise BadSettings(
                f"this worker was started without {name}, so its tasks of that kind are not loaded; restart it with "
                f"--{name}",
                setting=name,
            )
        now[name] = number
    return Scale(now.pop("processes"), SlotCounts(**now))
