"""Laws of sealed values: every row is seen once, and a text is replaced only if it is still the old one."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tidemill.domain.sealed_values import PLACES, SealChange, SealedPlace, SealedRow
from tidemill.domain.states import JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import T0, at, bring, claim_one, get_one, put_one
from tidemill.testing.conformance.planned_fires import a_definition

OLD, NEW = '{"pin":{"$sealed":"k1:old"}}', '{"pin":{"$sealed":"k2:new"}}'


def _rows(store: Store, place: SealedPlace, limit: int = 100) -> list[SealedRow]:
    rows: list[SealedRow] = []
    after: tuple[UUID, str] | None = None
    while page := store.sealed_rows(place, after, limit):
        assert len(page) <= limit
        rows += page
        after = page[-1].cursor
    return rows


def _replaced(row: SealedRow) -> SealChange:
    assert row.args is not None
    return SealChange(row, "args", row.args, row.args.replace("k1:old", "k2:new"))


class SealLaws:
    """Texts with sealed values."""

    def test_an_empty_store_has_no_rows(self, store: Store) -> None:
        assert [_rows(store, place) for place in PLACES] == [[], [], [], []]

    def test_every_job_is_seen_once_in_pages(self, store: Store) -> None:
        ids = sorted(put_one(store, args=OLD if number % 2 else "{}") for number in range(7))
        rows = _rows(store, "jobs", 3)
        assert [row.id for row in rows] == ids
        assert {row.args for row in rows} == {OLD, None}

    @pytest.mark.parametrize("state", list(JobState))
    def test_the_arguments_of_a_job_in_any_state_are_replaced(self, store: Store, state: JobState) -> None:
        job = bring(store, state, args=OLD)
        (row,) = _rows(store, "jobs")
        assert store.reseal([_replaced(row)]) == 1
        assert get_one(store, job.id) == replace(job, args=NEW)

    def test_a_text_that_has_changed_is_not_replaced(self, store: Store) -> None:
        id = put_one(store, args=OLD)
        (row,) = _rows(store, "jobs")
        assert store.reseal([SealChange(row, "args", "{}", NEW)]) == 0
        assert get_one(store, id).args == OLD
        assert store.reseal([]) == 0

    def test_a_job_that_has_moved_on_is_found_by_the_next_pass(self, store: Store) -> None:
        id = put_one(store, args=OLD)
        (row,) = _rows(store, "jobs")
        claim_one(store, id)
        assert store.reseal([_replaced(row)]) == 0
        assert store.reseal([_replaced(_rows(store, "jobs")[0])]) == 1
        assert get_one(store, id).args == NEW

    def test_definitions_and_their_versions_are_replaced(self, store: Store) -> None:
        stored = store.put_definition(a_definition(args=OLD), now=T0)
        assert stored is not None
        (row,) = _rows(store, "definitions")
        (version,) = _rows(store, "definition_versions")
        assert store.reseal([_replaced(row), _replaced(version)]) == 2
        (definition,) = store.definitions(tenant="default")
        assert (definition.args, definition.version, definition.updated_at) == (NEW, 1, T0)
        (old,) = store.definition_versions(stored.id, tenant="default")
        assert old.definition.args == NEW

    def test_versions_are_seen_in_pages(self, store: Store) -> None:
        stored = store.put_definition(a_definition(args=OLD), now=T0)
        assert stored is not None
        for second in range(1, 4):
            stored = store.put_definition(stored, now=at(second))
            assert stored is not None
        assert [int(row.name) for row in _rows(store, "definition_versions", 2)] == [1, 2, 3, 4]

    def test_a_large_value_is_seen_as_a_reference(self, store: Store) -> None:
        put_one(store, args='blob:{"size":5}', id=new_id())
        (row,) = _rows(store, "jobs")
        assert row.args == 'blob:{"size":5}'
