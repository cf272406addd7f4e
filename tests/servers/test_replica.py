"""Tests of the pair of PostgreSQL servers that failover tests use."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from tests.servers.processes import ServiceMissing
from tests.servers.replica import Pair, running_pair
from tests.services import go_without

pytestmark = pytest.mark.long


@pytest.fixture
def pair() -> Iterator[Pair]:
    try:
        with running_pair() as pair:
            yield pair
    except ServiceMissing as missing:
        go_without("postgres", missing)


def test_a_halted_standby_takes_over_without_the_last_writes(
    pair: Pair,
) -> None:
    assert pair.standby is not None
    url = pair.url()
    pair.primary.do("create table seen(n int)")
    pair.primary.do("insert into seen values (1)")
    pair.wait_for_receiver()
    pair.halt_receiver()
    pair.primary.do("insert into seen values (2)")
    pair.kill_primary()
    pair.promote()
    assert pair.primary.ask("select sum(n) from seen") == "1"
    pair.add_standby()
    assert pair.url() == url
    with psycopg.connect(f"{url}?target_session_attrs=read-write", autocommit=True) as client:
        client.execute("insert into seen values (4)")
    pair.wait_for_receiver()
    assert pair.standby.ask("select sum(n) from seen") == "5"
    pair.halt_receiver()
    pair.primary.do("insert into seen values (8)")
    assert pair.standby.ask("select sum(n) from seen") == "5"
    pair.resume_receiver()
    assert pair.standby.ask("select sum(n) from seen") == "13"


def test_a_running_primary_is_not_replaced(pair: Pair) -> None:
    with pytest.raises(RuntimeError, match="kill_primary"):
        pair.promote()
