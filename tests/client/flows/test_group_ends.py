"""Waiting for the end of a flow or batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.grounds import url_of

from tidemill import App
from tidemill.client.watch import await_groups
from tidemill.domain.join_counts import GROUP_ENDS
from tidemill.stores.base import Listener


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    app = App(url_of(request.param, tmp_path, request), migrate=True)
    yield app
    app.close()


class Heard:
    """A listener that reports these topics, one set for each call."""

    def __init__(self, *reports: set[str]) -> None:
        self.reports = list(reports)

    def wait(self, timeout: float) -> frozenset[str]:
        assert timeout > 0
        return frozenset(self.reports.pop(0))

    def close(self) -> None:
        pass


def awaited(listener: Listener) -> bool:
    """Whether the end of a group arrives within ten seconds."""
    return any(GROUP_ENDS in listener.wait(0.1) for _ in range(100))


def test_the_ends_of_single_jobs_do_not_wake_those_who_wait_for_a_flow() -> None:
    listener = Heard({"ended"}, {"ready:default", "progress"}, {"ended", GROUP_ENDS}, {"never"})
    await_groups(listener, 60)
    assert listener.reports == [{"never"}]


@pytest.mark.parametrize("topic", [GROUP_ENDS, "change"])
def test_the_end_of_a_group_and_an_unknown_change_wake_them(topic: str) -> None:
    listener = Heard({topic}, {"never"})
    await_groups(listener, 60)
    assert listener.reports == [{"never"}]


def test_a_closed_listener_ends_the_wait() -> None:
    listener = Heard(set(), {"never"})
    await_groups(listener, 60)
    assert listener.reports == [{"never"}]


def test_the_end_of_a_flow_is_reported_and_the_end_of_its_first_node_is_not(app: App) -> None:
    @app.task
    def work() -> None:
        pass

    flow = app.flow("two nodes")
    first = flow.add(work)
    flow.add(work).named("last").after(first)
    run = flow.start()
    testing = app.testing()
    with closing(app.store.listen()) as listener:
        testing.drain(limit=1)
        app.store.notify(["probe"])
        heard: set[str] = set()
        while "probe" not in heard:
            heard |= listener.wait(10)
        assert GROUP_ENDS not in heard
        testing.drain()
        assert awaited(listener)
    assert run.refresh().ended


def test_a_cancelled_flow_is_reported(app: App) -> None:
    @app.task
    def work() -> None:
        pass

    flow = app.flow("cancelled")
    flow.add(work)
    run = flow.start()
    with closing(app.store.listen()) as listener:
        run.cancel("no longer wanted", hard=True)
        app.testing().drain()
        assert awaited(listener)
    assert run.refresh().ended
