"""Hubs and brokers that are killed at random lose no job and repeat no end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.faults.hubs import hub_chaos
from tests.servers.processes import ServiceMissing
from tests.servers.rabbitmq import RabbitNode, running_rabbitmq
from tests.servers.restartable import RestartableServer, running_nats_server
from tests.services import go_without

from tidemill.stores.open import open_store

Broker = RestartableServer | RabbitNode


def broker_of(kind: str, stack: ExitStack) -> Broker:
    """A private broker, or a skip."""
    try:
        if kind == "nats":
            return stack.enter_context(running_nats_server())
        return stack.enter_context(running_rabbitmq())
    except ServiceMissing as missing:
        go_without(kind, missing)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def run(url: str, kind: str, folder: Path, stack: ExitStack, seconds: float, seed: int) -> None:
    store = open_store(url, migrate=True)
    with hub_chaos(store, url, broker_of(kind, stack), folder, seed) as chaos:
        # RabbitMQ needs many seconds to start, so that a short run kills hubs only.
        result = chaos.run(seconds, restarts=kind == "nats" or seconds > 60)
        chaos.check(result)
        print(f"{len(result.ids)} jobs, {sum(result.runs.values())} runs, {result.kills} kills")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["nats", "rabbitmq"])
def test_killed_hubs_and_brokers_lose_nothing(
    kind: str, migrated_postgres_url: str, tmp_path: Path, stack: ExitStack
) -> None:
    run(migrated_postgres_url, kind, tmp_path, stack, 8.0, seed=7)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["nats", "rabbitmq"])
def test_killed_hubs_and_brokers_lose_nothing_for_minutes(
    kind: str, migrated_postgres_url: str, tmp_path: Path, stack: ExitStack
) -> None:
    run(migrated_postgres_url, kind, tmp_path, stack, 180.0, seed=11)
