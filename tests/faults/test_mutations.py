"""Tests of the mutations of SQL queries and clocks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import cast

import pytest
from tests.faults.mutations import MUTATIONS, SKEW, WRONG, Skewed, apply_mutation, own_clock

from tidemill.clock import SystemClock
from tidemill.stores.sql.named_queries import NamedQuery, load


@pytest.fixture
def restored_queries() -> Iterator[None]:
    """Restore the queries afterwards."""
    before = {dialect: dict(load(dialect)) for dialect in ("postgres", "sqlite")}
    yield
    for dialect, queries in before.items():
        cast("dict[str, NamedQuery]", load(dialect)).update(queries)


@pytest.mark.parametrize("wrong", MUTATIONS)
def test_a_mutation_removes_an_existing_guard(restored_queries: None, wrong: str) -> None:
    before = {
        (dialect, cut.query): load(dialect)[cut.query]
        for dialect, cuts in MUTATIONS[wrong].items()
        for cut in cuts
    }
    apply_mutation(wrong)
    for (dialect, query), was in before.items():
        assert load(dialect)[query].body != was.body
    with pytest.raises(AssertionError, match="contains no"):
        apply_mutation(wrong)


def test_an_empty_environment_mutates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (SKEW, WRONG):
        monkeypatch.delenv(name, raising=False)
    before = dict(load("sqlite"))
    apply_mutation()
    assert dict(load("sqlite")) == before
    assert isinstance(own_clock(), SystemClock)


def test_a_skewed_clock_is_off_by_the_configured_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SKEW, "-3600")
    wrong, right = own_clock(), SystemClock()
    assert isinstance(wrong, Skewed)
    assert timedelta(minutes=59) < right.now() - wrong.now() < timedelta(minutes=61)
    assert abs(right.monotonic() - wrong.monotonic()) < 60
