"""Tests of finding a job by a unique prefix or suffix of its id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tidemill.client.jobs import api as short_ids
from tidemill.client.jobs.api import resolve, short
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.errors import BadSettings, JobNotFound
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.testing.conformance.kit import a_job, claim_all, finish_all, put

FIRST = UUID("01a1e672-0000-7000-8000-00000a11ce01")
SECOND = UUID("01a1e672-ffff-7000-8000-0000000b0b02")
THIRD = UUID("01a1e673-0000-7000-8000-0000000b0b02")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/jobs.db"
        case _:
            url = request.getfixturevalue("fresh_postgres_url")
    opened = open_store(url)
    opened.migrate()
    yield opened
    opened.close()


@pytest.fixture
def three(store: Store) -> Store:
    put(store, *[a_job(id=id) for id in (FIRST, SECOND, THIRD)])
    return store


def found(store: Store, text: str) -> UUID:
    return resolve(store, text, tenant=ALL_TENANTS)


@pytest.mark.parametrize(
    ("text", "id"),
    [
        (str(FIRST), FIRST),
        (FIRST.hex.upper(), FIRST),
        ("01a1e672-00", FIRST),
        ("01a1e672f", SECOND),
        ("01a1e673", THIRD),
        ("11ce01", FIRST),
        ("00000A11CE01", FIRST),
        (f" {short(FIRST)} ", FIRST),
    ],
)
def test_a_unique_prefix_or_suffix_finds_the_job(three: Store, text: str, id: UUID) -> None:
    assert found(three, text) == id


def test_an_ambiguous_prefix_or_suffix_is_refused_with_the_candidates(three: Store) -> None:
    with pytest.raises(BadSettings) as refused:
        found(three, "01a1e672")
    assert str(FIRST) in str(refused.value)
    assert str(SECOND) in str(refused.value)
    assert str(THIRD) not in str(refused.value)
    with pytest.raises(BadSettings, match="matches several jobs"):
        found(three, short(SECOND))


def test_a_prefix_of_one_job_that_is_a_suffix_of_another_is_ambiguous(store: Store) -> None:
    other = UUID("01a1e700-0000-7000-8000-000001a1e672")
    put(store, a_job(id=FIRST), a_job(id=other))
    with pytest.raises(BadSettings, match="matches several jobs"):
        found(store, "01a1e672")


def test_a_long_list_of_candidates_is_cut(store: Store) -> None:
    put(store, *[a_job() for _ in range(12)])
    prefix = store.jobs(JobFilter(ALL_TENANTS)).items[0].id.hex[:6]
    with pytest.raises(BadSettings) as refused:
        found(store, prefix)
    assert str(refused.value).count("\n") == 11
    assert str(refused.value).endswith("…")


def test_an_unknown_prefix_or_suffix_is_not_found(three: Store) -> None:
    with pytest.raises(JobNotFound, match="begins or ends with 'abcdef'"):
        found(three, "abcdef")


@pytest.mark.parametrize("text", ["", "x", "no-such-id", "0" * 33])
def test_an_invalid_id_is_refused(three: Store, text: str) -> None:
    with pytest.raises(BadSettings, match="is not a job id"):
        found(three, text)


def test_fewer_than_six_characters_are_refused(three: Store) -> None:
    with pytest.raises(BadSettings, match="at least 6 characters"):
        found(three, "1ce01")


def test_a_tenant_finds_only_its_own_jobs(three: Store) -> None:
    with pytest.raises(JobNotFound):
        resolve(three, "01a1e673", tenant="other")


# A store with more jobs than are searched --------------------------------------------------------------------------------


@pytest.fixture
def look_at_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search three jobs for a suffix instead of 20,000."""

    class Narrow(JobFilter):
        def __init__(self, tenant: str, **conditions: object) -> None:
            super().__init__(tenant, look=3, **conditions)  # type: ignore[arg-type]

    monkeypatch.setattr(short_ids, "JobFilter", Narrow)


@pytest.mark.usefixtures("look_at_three")
def test_a_suffix_finds_new_and_active_jobs_and_a_prefix_finds_all(store: Store) -> None:
    old, active = put(store, a_job("old", queue="a"), a_job("active", queue="b"))
    finish_all(store, [claim for claim in claim_all(store) if claim.id == old])
    put(store, *[a_job("new", queue="c") for _ in range(2)])
    ended = put(store, *[a_job("ended", queue="d") for _ in range(4)])
    finish_all(store, [claim for claim in claim_all(store) if claim.id in ended])
    assert found(store, short(ended[-1])) == ended[-1]
    assert found(store, short(active)) == active
    assert found(store, old.hex[:28]) == old
    with pytest.raises(JobNotFound, match="give the full id or its beginning"):
        found(store, short(old))


@pytest.mark.usefixtures("look_at_three")
def test_a_short_suffix_is_refused_if_older_jobs_may_match_too(store: Store) -> None:
    ids = put(store, *[a_job() for _ in range(5)])
    assert found(store, ids[-1].hex[-8:]) == ids[-1]
    with pytest.raises(BadSettings, match="give at least 8 characters"):
        found(store, ids[-1].hex[-6:])
