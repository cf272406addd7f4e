"""Failovers by Patroni under load keep what each durability promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.faults.patroni import MODES, patroni_harness, run
from tests.servers.patroni import find_patroni
from tests.servers.processes import ServiceMissing
from tests.services import go_without


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    try:
        find_patroni()
    except ServiceMissing as missing:
        go_without("patroni", missing)
    with ExitStack() as stack:
        yield stack


@pytest.mark.nightly
@pytest.mark.parametrize("mode", MODES)
def test_failovers_under_load_lose_and_repeat_what_the_mode_allows(mode: str, stack: ExitStack) -> None:
    pair, harness = stack.enter_context(patroni_harness(mode))
    verdict = run(pair, harness, mode, 4, seed=3)
    print(verdict.facts)
    assert verdict.violations == []
