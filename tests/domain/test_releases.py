"""Tests of the order of deployments."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tidemill.domain.releases import (
    ALIVE_FOR,
    Deployment,
    ReleaseDecision,
    ReleaseRecord,
    ReleaseVerdict,
    judge,
    order_of,
    read_release,
)
from tidemill.errors import BadSettings

NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)


def stored(deployment: Deployment, **changes: object) -> ReleaseRecord:
    record = ReleaseRecord("shop:app", deployment, revision=1, seen_at=LATER)
    return replace(record, **changes)  # type: ignore[arg-type]


def verdict(mine: Deployment, record: ReleaseRecord | None, now: datetime = LATER) -> ReleaseVerdict:
    return judge(mine, record, now).verdict


def test_the_first_deployment_may_write() -> None:
    assert judge(Deployment(NOON), None, NOON) == ReleaseDecision(ReleaseVerdict.WRITE)


def test_without_releases_the_later_start_is_newer() -> None:
    assert verdict(Deployment(LATER), stored(Deployment(NOON))) is ReleaseVerdict.WRITE
    assert verdict(Deployment(NOON), stored(Deployment(LATER))) is ReleaseVerdict.OLDER
    assert judge(Deployment(NOON), stored(Deployment(NOON)), LATER) == ReleaseDecision(
        ReleaseVerdict.WRITE, ours=True
    )


def test_releases_are_compared_before_start_times() -> None:
    assert verdict(Deployment(LATER, "1.9"), stored(Deployment(NOON, "1.10"))) is ReleaseVerdict.OLDER
    assert verdict(Deployment(NOON, "1.10"), stored(Deployment(LATER, "1.9"))) is ReleaseVerdict.WRITE


def test_deployments_of_one_release_are_equal() -> None:
    judgement = judge(Deployment(NOON, "7"), stored(Deployment(LATER, "7")), LATER)
    assert judgement == ReleaseDecision(ReleaseVerdict.WRITE, ours=True)


def test_a_deployment_without_a_release_is_compared_by_its_start() -> None:
    assert verdict(Deployment(LATER), stored(Deployment(NOON, "7"))) is ReleaseVerdict.WRITE
    assert verdict(Deployment(NOON, "7"), stored(Deployment(LATER))) is ReleaseVerdict.OLDER


def test_an_older_deployment_may_write_once_the_newer_one_is_gone() -> None:
    record = stored(Deployment(LATER, "8"))
    older = Deployment(NOON, "7")
    assert verdict(older, record, LATER + ALIVE_FOR - timedelta(seconds=1)) is ReleaseVerdict.OLDER
    assert verdict(older, record, LATER + ALIVE_FOR) is ReleaseVerdict.WRITE


def test_a_forced_release_stays_until_a_later_start() -> None:
    record = stored(Deployment(NOON, "7"), forced_at=LATER)
    before, after = Deployment(NOON, "8"), Deployment(LATER, "8")
    assert verdict(before, record, LATER + 10 * ALIVE_FOR) is ReleaseVerdict.FORCED
    assert verdict(after, record) is ReleaseVerdict.WRITE
    assert judge(Deployment(NOON, "7"), record, LATER).ours


@pytest.mark.parametrize(
    "releases",
    [
        ["1.9", "1.10", "1.10.1", "2.0"],
        ["2026.11.17-1", "2026.11.17-2", "2026.11.17-10", "2026.12.01-1"],
        ["build-99", "build-100"],
        ["v9", "v10"],
    ],
)
def test_releases_sort_naturally(releases: list[str]) -> None:
    assert [order_of(release) for release in releases] == sorted(order_of(release) for release in releases)


@pytest.mark.parametrize("given", ["deadbee", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "green", " 7", 7])
def test_a_release_without_an_order_is_refused(given: object) -> None:
    with pytest.raises(BadSettings, match="release is"):
        read_release(given)


@pytest.mark.parametrize("given", ["7", "2026.11.17-1", "v1.2.3", "20261117", "build-5", "1234567"])
def test_a_release_with_an_order_is_accepted(given: str) -> None:
    assert read_release(given) == given


def test_a_missing_release_is_none() -> None:
    assert read_release(None) is None
    assert read_release("") is None
