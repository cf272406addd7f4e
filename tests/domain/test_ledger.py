"""Tests of the audit's hash chain."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.domain.strategies import NOW, instants, json_objects, words

from tidemill.domain.records import GENESIS, AuditEntry, AuditRecord, audit_hash, first_break

facts = st.dictionaries(words, st.none() | st.booleans() | st.integers() | words, max_size=2)
entries = st.builds(
    AuditEntry,
    who=words,
    action=words,
    subject=words,
    tenant=words,
    before=st.none() | facts,
    after=st.none() | facts,
)


def chain_of(dated: list[tuple[datetime, AuditEntry]]) -> list[AuditRecord]:
    records, previous = [], GENESIS
    for number, (at, entry) in enumerate(dated, start=1):
        previous = audit_hash(previous, number, at, entry)
        records.append(AuditRecord(number, at, entry, previous))
    return records


def chains(least: int, most: int = 6) -> st.SearchStrategy[list[AuditRecord]]:
    return st.lists(st.tuples(instants, entries), min_size=least, max_size=most).map(chain_of)


def forged(record: AuditRecord, other: AuditRecord, field: str) -> AuditRecord:
    """Return the record with one field taken from another record."""
    if field in AuditRecord._fields:
        return record._replace(**{field: getattr(other, field)})
    entry = {name: getattr(record.entry, name) for name in AuditEntry.__slots__}
    return record._replace(entry=AuditEntry(**{**entry, field: getattr(other.entry, field)}))


@given(chains(0))
def test_an_unmodified_chain_is_intact(chain: list[AuditRecord]) -> None:
    assert first_break(chain) is None


@given(chains(1), chains(1, 1), st.data())
def test_any_change_is_detected_at_its_record(
    chain: list[AuditRecord], strange: list[AuditRecord], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(chain) - 1))
    field = data.draw(st.sampled_from([*AuditRecord._fields, *AuditEntry.__slots__]))
    false = forged(chain[at], strange[0], field)
    assume(false != chain[at])
    assert first_break([*chain[:at], false, *chain[at + 1 :]]) == at + 1


@given(chains(2), st.data())
def test_a_removed_record_is_detected(chain: list[AuditRecord], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(chain) - 2))
    assert first_break(chain[:at] + chain[at + 1 :]) == at + 1


@given(chains(2), st.data())
def test_swapped_records_are_detected(chain: list[AuditRecord], data: st.DataObject) -> None:
    one, other = sorted(
        data.draw(st.lists(st.integers(0, len(chain) - 1), min_size=2, max_size=2, unique=True))
    )
    chain[one], chain[other] = chain[other], chain[one]
    assert first_break(chain) == one + 1


@given(chains(2), st.data())
def test_renumbering_does_not_hide_a_removal(chain: list[AuditRecord], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(chain) - 2))
    rest = [
        record._replace(number=number) for number, record in enumerate(chain[:at] + chain[at + 1 :], start=1)
    ]
    assert first_break(rest) == at + 1


@given(chains(1), chains(1, 1), st.data())
def test_an_inserted_record_is_detected(
    chain: list[AuditRecord], extra: list[AuditRecord], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(chain)))
    assume(at > 0 or extra[0] != chain[0])
    assert first_break([*chain[:at], extra[0], *chain[at:]]) in (at + 1, at + 2)


@given(chains(2), st.data())
def test_a_chain_can_be_checked_from_any_known_hash(chain: list[AuditRecord], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(chain) - 1))
    assert first_break(chain[at:], chain[at - 1].hash, at) is None
    assert first_break(chain[at:], GENESIS, at) == at + 1


@given(instants, entries, st.integers(-14, 14))
def test_the_hash_does_not_depend_on_the_time_zone(at: datetime, entry: AuditEntry, hours: int) -> None:
    elsewhere = at.astimezone(timezone(timedelta(hours=hours)))
    assert audit_hash(GENESIS, 1, at, entry) == audit_hash(GENESIS, 1, elsewhere, entry)


@given(json_objects, st.randoms(use_true_random=False))
def test_the_hash_does_not_depend_on_the_key_order(fields: dict[str, Any], rng: Any) -> None:
    items = list(fields.items())
    rng.shuffle(items)
    one, other = (
        AuditEntry("ada", "edit", "queue:mail", "default", after=after) for after in (fields, dict(items))
    )
    assert audit_hash(GENESIS, 1, NOW, one) == audit_hash(GENESIS, 1, NOW, other)


def test_a_hash_is_stable() -> None:
    entry = AuditEntry("ada", "pause", "queue:mail", "default", None, {"reason": "Zoë asked"})
    assert (
        audit_hash(GENESIS, 1, NOW, entry)
        == "c30d94674bcbde4056debfacf1afd32f34303d819dd2f95f2b5b8a7112b3f060"
    )
