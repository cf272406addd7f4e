"""Tests of large values and of light records on users' own connections."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.client.connections_kit import Completion, Errand, User, job
from tests.client.test_connections import CASES
from tests.client.test_connections_complete import (  # noqa: F401  (fixtures)
    held,
    postgres_store,
    sqlite_store,
    store,
)

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish
from tidemill.domain.large_values import BlobKey, spilled
from tidemill.domain.record import Keep
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.large_values import read_value

TEXT = '{"text":"' + "ö" * 2_500_000 + '"}'


@pytest.mark.parametrize(("store", "user"), CASES, indirect=["store"])
@pytest.mark.parametrize("commit", [True, False])
def test_large_arguments_commit_or_roll_back_with_the_users_rows(
    store: Store,  # noqa: F811  (a fixture)
    user: User,
    commit: bool,
) -> None:
    new = job(queue=f"large-{new_id()}")
    new = new._replace(args=spilled(TEXT, BlobKey(new.id, 0)))
    user(Errand(store.url, store, [[new]], commit))
    found = store.get([new.id], tenant=ALL_TENANTS)
    assert len(found) == int(commit)
    assert bool(store.blob_parts(BlobKey(new.id, 0))) is commit
    for row in found:
        assert read_value(store, row.args) == TEXT


@pytest.mark.parametrize(("store", "user"), CASES, indirect=["store"])
def test_a_completion_stores_a_large_result_in_the_users_transaction(
    store: Store,  # noqa: F811  (a fixture)
    user: User,
) -> None:
    claim = held(store, f"r-{new_id()}")
    value = spilled(TEXT, BlobKey(claim.id, claim.token))
    user(Errand(store.url, store, [Completion(Finish(claim, COMPLETED, value))]))
    (found,) = store.get([claim.id], tenant=ALL_TENANTS)
    assert read_value(store, found.result or "") == TEXT
    assert store.orphan_blobs(timedelta(0), 10) == []


@pytest.mark.parametrize(("store", "user"), CASES, indirect=["store"])
def test_a_completion_that_keeps_nothing_leaves_nothing(
    store: Store,  # noqa: F811  (a fixture)
    user: User,
) -> None:
    claim = held(store, f"n-{new_id()}")
    user(Errand(store.url, store, [Completion(Finish(claim, COMPLETED, keep=Keep.NOTHING))]))
    assert store.get([claim.id], tenant=ALL_TENANTS) == []
    assert store.executions([claim.id], tenant=ALL_TENANTS) == []
