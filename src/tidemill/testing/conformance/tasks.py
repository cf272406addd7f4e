"""Laws of the records of tasks: one for each name, of the newest deployment."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tidemill.domain.task_records import TaskRecord
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import T0, at, together

SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string", "description": "“x” 🦊 '; --"}, "size": {"type": "integer"}},
    "required": ["to"],
    "additionalProperties": False,
}
RECORD = TaskRecord(
    "mail.send", SCHEMA, {"queue": "mail", "timeout": 2.5, "tags": ["a"]}, "Sends mail.", "ops", T0
)


class TaskRecordLaws:
    """Tasks as workers have declared them."""

    def test_a_new_store_has_no_task_records(self, store: Store) -> None:
        assert store.declared_tasks() == []
        assert store.declared_tasks(["mail.send"]) == []
        store.declare_tasks([])
        assert store.declared_tasks() == []

    def test_every_field_of_a_task_record_is_stored(self, store: Store) -> None:
        bare = TaskRecord("“x” 🦊 '; --", {}, deployed_at=at(3))
        store.declare_tasks([RECORD, bare], now=at(5))
        (first, second) = store.declared_tasks()
        assert first == replace(RECORD, seen_at=at(5))
        assert second == replace(bare, seen_at=at(5))

    def test_task_records_are_listed_by_name_and_found_by_names(self, store: Store) -> None:
        names = ["b", "a", "B", "ä"]
        store.declare_tasks([replace(RECORD, name=name) for name in names], now=T0)
        assert [task.name for task in store.declared_tasks()] == ["B", "a", "b", "ä"]
        assert [task.name for task in store.declared_tasks(["b", "ä", "none"])] == ["b", "ä"]
        assert store.declared_tasks([]) == []

    def test_the_newest_deployment_describes_a_task(self, store: Store) -> None:
        store.declare_tasks([replace(RECORD, deployed_at=at(10))], now=at(10))
        older = replace(RECORD, owner="old", deployed_at=at(9))
        store.declare_tasks([older, replace(older, name="other")], now=at(11))
        assert [task.owner for task in store.declared_tasks()] == ["ops", "old"]
        assert store.declared_tasks([RECORD.name])[0].seen_at == at(10)
        store.declare_tasks([replace(RECORD, owner="same", deployed_at=at(10))], now=at(12))
        assert [task.owner for task in store.declared_tasks()] == ["same", "old"]
        newer = replace(RECORD, owner="new", schema={"type": "object"}, settings={}, deployed_at=at(13))
        store.declare_tasks([newer], now=at(14))
        (stored,) = store.declared_tasks([RECORD.name])
        assert stored == replace(newer, seen_at=at(14))

    def test_old_task_records_are_forgotten(self, store: Store) -> None:
        store.declare_tasks([RECORD], now=T0)
        store.declare_tasks([replace(RECORD, name="later")], now=at(60))
        assert store.forget_tasks(T0) == 0
        assert store.forget_tasks(at(60)) == 1
        assert [task.name for task in store.declared_tasks()] == ["later"]

    def test_without_a_time_a_task_record_is_seen_now(self, store: Store) -> None:
        before = store.now()
        store.declare_tasks([RECORD])
        (stored,) = store.declared_tasks()
        assert stored.seen_at is not None
        assert before - timedelta(seconds=1) <= stored.seen_at <= store.now() + timedelta(seconds=1)

    def test_concurrent_deployments_leave_the_newest_record(self, store: Store) -> None:
        def declare(number: int) -> None:
            tasks = [replace(RECORD, name=name, owner=str(number), deployed_at=at(number)) for name in "ab"]
            store.declare_tasks(tasks if number % 2 else tasks[::-1], now=at(60))

        together([lambda number=number: declare(number) for number in range(4)])  # type: ignore[misc]
        assert [task.owner for task in store.declared_tasks()] == ["3", "3"]

    def test_a_task_record_is_rolled_back_with_its_transaction(self, store: Store) -> None:
        def work() -> None:
            with store.transaction():
                store.declare_tasks([RECORD], now=T0)
                raise LookupError

        with pytest.raises(LookupError):
            work()
        assert store.declared_tasks() == []
