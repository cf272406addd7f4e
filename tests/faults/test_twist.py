"""What is taken out of the statements of a process under test is really in them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import cast

import pytest
from tests.faults.twist import SKEW, WRONG, WRONGS, Skewed, own_clock, twist

from tidemill.clock import SystemClock
from tidemill.stores.sql.queries import Query, load


@pytest.fixture
def whole() -> Iterator[None]:
    """The statements as they are, again afterwards."""
    before = {dialect: dict(load(dialect)) for dialect in ("postgres", "sqlite")}
    yield
    for dialect, queries in before.items():
        cast("dict[str, Query]", load(dialect)).update(queries)


@pytest.mark.parametrize("wrong", WRONGS)
def test_a_guard_that_is_to_be_taken_out_is_there_and_then_is_not(whole: None, wrong: str) -> None:
    before = {
        (dialect, cut.query): load(dialect)[cut.query]
        for dialect, cuts in WRONGS[wrong].items()
        for cut in cuts
    }
    twist(wrong)
    for (dialect, query), was in before.items():
        assert load(dialect)[query].body != was.body
    with pytest.raises(AssertionError, match="holds no"):
        twist(wrong)


def test_without_a_word_in_the_environment_nothing_is_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (SKEW, WRONG):
        monkeypatch.delenv(name, raising=False)
    before = dict(load("sqlite"))
    twist()
    assert dict(load("sqlite")) == before
    assert isinstance(own_clock(), SystemClock)


def test_a_skewed_clock_is_wrong_by_as_much_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SKEW, "-3600")
    wrong, right = own_clock(), SystemClock()
    assert isinstance(wrong, Skewed)
    assert timedelta(minutes=59) < right.now() - wrong.now() < timedelta(minutes=61)
    assert abs(right.monotonic() - wrong.monotonic()) < 60
