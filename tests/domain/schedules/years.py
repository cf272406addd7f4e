"""Comparison of 200 schedules in 40 zones over ten years with an oracle.

``python -m tests.domain.schedules.years --years 10 --zones 40 --expressions 200 --seed 1 --processes 2`` takes minutes. It exits
with 1 if a fire is duplicated, missing, extra or miscounted, and prints the first differences.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from random import Random
from typing import NamedTuple
from zoneinfo import available_timezones

from tests.domain.schedules.cases import Case, cases
from tests.domain.schedules.clocks import ODD_ZONES, WallClock
from tests.domain.schedules.compare import OutcomeCounts, compare

from tidemill.clock import SystemClock

_ORDINARY_YEAR = 2024


class Part(NamedTuple):
    """One zone with all schedules: the unit of work of a process."""

    zone: str
    first_year: int
    years: int
    expressions: int
    seed: int


def parts(years: int, zones: int, expressions: int, seed: int) -> list[Part]:
    """Return the odd zones first, then random ones."""
    chosen = list(ODD_ZONES.items())[:zones]
    others = sorted(available_timezones() - set(ODD_ZONES) - {"localtime", "Factory"})
    drawn = Random(seed).sample(others, min(max(zones - len(chosen), 0), len(others)))
    chosen += [(zone, _ORDINARY_YEAR) for zone in drawn]
    return [Part(zone, year, years, expressions, seed) for zone, year in chosen]


def do(part: Part) -> OutcomeCounts:
    """Compare all schedules in one zone."""
    clock = WallClock(part.zone, part.first_year, part.years)
    counts = OutcomeCounts()
    for case in _cases(part.expressions, part.seed):
        counts.add(compare(case, clock))
    return counts


@lru_cache(maxsize=1)
def _cases(expressions: int, seed: int) -> list[Case]:
    return cases(expressions, seed)


def _done(given: list[Part], processes: int) -> Iterator[OutcomeCounts]:
    if processes == 1:
        yield from map(do, given)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        for future in as_completed([pool.submit(do, part) for part in given]):
            yield future.result()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.domain.schedules.years", description=__doc__)
    parser.add_argument("--years", type=int, default=10)
    parser.add_argument("--zones", type=int, default=40)
    parser.add_argument("--expressions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    clock = SystemClock()
    began = clock.monotonic()
    every = parts(given.years, given.zones, given.expressions, given.seed)
    total = OutcomeCounts()
    for number, counts in enumerate(_done(every, given.processes), start=1):
        total.add(counts)
        print(
            f"{number}/{len(every)} zones, {total.listed:,} fires listed, {total.counted:,} counted,"
            f" {total.wrong} wrong, {clock.monotonic() - began:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    seconds = clock.monotonic() - began
    print(
        f"{given.years} years, {len(every)} zones, {given.expressions} schedules, seed {given.seed}, {seconds:.0f} s:"
        f" {total.listed:,} fires compared one by one, {total.counted:,} counted;"
        f" {total.doubled} doubled, {total.skipped} skipped, {total.extra} extra, {total.miscounted} miscounted"
    )
    for difference in total.differences:
        print(f"  {difference}")
    figures = {name: value for name, value in vars(total).items() if name != "differences"}
    print(json.dumps({"run": "years", "seconds": round(seconds, 1)} | figures))
    return 1 if total.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
