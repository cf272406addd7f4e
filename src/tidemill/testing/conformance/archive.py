"""Laws of the archive: a copy is verified before the original is deleted."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import Details, JobRow, Move
from tidemill.domain.retention import (
    ArchivedJob,
    ArchivePolicy,
    Position,
    Selection,
    Selector,
    archive_document,
    fingerprint,
)
from tidemill.domain.states import ENDED, LIVE, JobState
from tidemill.errors import BadFilter
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    CRASHED,
    ENDS,
    FAILED,
    HOUR,
    OTHER,
    SECOND,
    T0,
    a_job,
    a_line,
    at,
    bring,
    claim_all,
    claim_one,
    due,
    finish_all,
    get_one,
    ids_of,
    put,
    put_one,
    retry,
    snapshot,
)

S = JobState
POLICY = ArchivePolicy("old", max_age=HOUR)
LATE = T0 + 2 * HOUR


def _copy(store: Store, policy: ArchivePolicy = POLICY) -> list[ArchivedJob]:
    """Copy everything that is due into the archive; return the documents."""
    documents = due(store, policy, LATE)
    store.put_archive(documents, now=LATE)
    return documents


def _expected(store: Store, job: JobRow) -> ArchivedJob:
    """Return the expected document of a job, built from what the store shows."""
    executions = store.executions([job.id], tenant=ALL_TENANTS)
    lines = [entry for _, entry in store.logs(job.id, tenant=ALL_TENANTS)]
    return archive_document(job, executions, lines, tier="archive", policy="old")


class ArchivableLaws:
    """A policy selects jobs that ended long enough ago."""

    @pytest.mark.parametrize("state", sorted(ENDED))
    def test_every_ended_job_is_archivable_when_old_enough(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        assert due(store, POLICY, T0 + HOUR - SECOND) == []
        assert ids_of(due(store, POLICY, T0 + HOUR + SECOND)) == [job.id]

    @pytest.mark.parametrize("state", sorted(LIVE))
    def test_a_live_job_is_not_archivable(self, store: Store, state: JobState) -> None:
        bring(store, state)
        assert due(store, POLICY, T0 + 1000 * HOUR) == []

    def test_a_policy_filters_states_and_tasks(self, store: Store) -> None:
        for state in (S.COMPLETED, S.FAILED):
            bring(store, state)
        put_one(store, "mail")
        finish_all(store, claim_all(store))
        by_state = replace(POLICY, states=frozenset({S.FAILED}))
        assert [document.state for document in due(store, by_state, LATE)] == [S.FAILED]
        by_task = replace(POLICY, tasks=frozenset({"mail", "none"}))
        assert [document.task for document in due(store, by_task, LATE)] == ["mail"]

    def test_jobs_are_archivable_oldest_first_up_to_the_batch_size(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(4)])
        claims = claim_all(store)
        for n, claim in enumerate(reversed(claims)):
            finish_all(store, [claim], now=at(n))
        assert ids_of(due(store, POLICY, LATE)) == ids[::-1]
        assert ids_of(due(store, replace(POLICY, batch=2), LATE)) == ids[:1:-1]

    def test_the_document_is_sound_and_complete(self, store: Store) -> None:
        parent = new_id()
        about = Details("c-1", parent, ("order", "17"), ("red",), {"a": [1, None, "“x” 🦊"]}, {"h": "v"})
        id = put_one(store, tenant="t", queue="q", args='{"a": 1}', details=about, limits=("l",))
        for transition in (CRASHED, FAILED):
            claim = claim_one(store, id, worker=OTHER)
            store.log([a_line(claim, "one", details={"n": 1}, duration=SECOND), a_line(claim, "two")])
            finish_all(store, [claim], transition, result="1", started_ago=0.5)
        (document,) = due(store, POLICY, LATE)
        assert document.sound
        assert (document.tier, document.policy, document.token) == ("archive", "old", 2)
        assert (document.correlation_id, document.parent_id) == ("c-1", parent)
        assert replace(document, archived_at=None) == _expected(store, get_one(store, id))

    def test_listing_archivable_jobs_changes_nothing(self, store: Store) -> None:
        job = bring(store, S.COMPLETED)
        before = snapshot(store, job.id)
        due(store, POLICY, LATE)
        assert snapshot(store, job.id) == before
        assert store.archived([job.id], tenant="default") == []


class DocumentLaws:
    """The archive returns what was put there."""

    def test_a_document_is_stored_as_it_was_written(self, store: Store) -> None:
        bring(store, S.FAILED, args='{"a":"\\u0000 “x” 🦊"}')
        documents = _copy(store)
        (stored,) = store.archived(ids_of(documents), tenant="default")
        assert stored == replace(documents[0], archived_at=LATE)
        assert stored.sound

    def test_documents_are_read_by_id_and_tenant(self, store: Store) -> None:
        jobs = [bring(store, S.COMPLETED, tenant=tenant) for tenant in ("a", "b", "a")]
        _copy(store)
        everything = ids_of(jobs)
        assert ids_of(store.archived([*reversed(everything), new_id()], tenant=ALL_TENANTS)) == everything
        assert ids_of(store.archived(everything, tenant="a")) == [jobs[0].id, jobs[2].id]
        assert store.archived(everything, tenant="c") == []

    def test_an_existing_document_is_replaced(self, store: Store) -> None:
        bring(store, S.COMPLETED)
        (document,) = _copy(store)
        other = replace(document, document="{}", fingerprint=fingerprint("{}"), tier="cold", token=9)
        store.put_archive([other], now=LATE + HOUR)
        (stored,) = store.archived([document.id], tenant="default")
        assert stored == replace(other, archived_at=LATE + HOUR)
        assert store.archived_due(Selection(Selector(), "archive")) == []
        assert store.archived_due(Selection(Selector(), "cold")) == [stored]

    def test_a_modified_document_is_not_sound(self, store: Store) -> None:
        bring(store, S.COMPLETED)
        (document,) = _copy(store)
        store.put_archive([replace(document, document=document.document + " ")], now=LATE)
        assert not store.archived([document.id], tenant="default")[0].sound

    def test_the_id_of_an_archived_job_is_free(self, store: Store) -> None:
        job = bring(store, S.COMPLETED)
        assert store.forget(_copy(store)) == {job.id}
        put(store, a_job(id=job.id))
        assert get_one(store, job.id).token == 0
        assert ids_of(store.archived([job.id], tenant="default")) == [job.id]


class ForgetLaws:
    """The original is deleted only while it matches its copy."""

    @pytest.mark.parametrize("state", sorted(ENDS))
    def test_forget_deletes_the_job_with_its_executions_and_logs(self, store: Store, state: JobState) -> None:
        claim = claim_one(store, put_one(store))
        store.log([a_line(claim, "one")])
        finish_all(store, [claim], CRASHED)
        finish_all(store, [claim_one(store, claim.id)], ENDS[state])
        documents = _copy(store)
        assert store.forget(documents) == {claim.id}
        assert snapshot(store, claim.id) == ([], [], [])
        assert store.count(JobFilter(ALL_TENANTS)) == {}
        assert ids_of(store.archived([claim.id], tenant="default")) == [claim.id]
        assert store.forget(documents) == frozenset()

    def test_a_reopened_job_is_not_forgotten(self, store: Store) -> None:
        job = bring(store, S.FAILED)
        documents = _copy(store)
        store.move([retry(job)], now=LATE)
        before = snapshot(store, job.id)
        assert store.forget(documents) == frozenset()
        assert snapshot(store, job.id) == before

    def test_a_job_that_ended_again_is_not_forgotten(self, store: Store) -> None:
        job = bring(store, S.FAILED)
        documents = _copy(store)
        store.move([retry(job)], now=LATE)
        finish_all(store, [claim_one(store, job.id, now=LATE)], FAILED, now=LATE)
        before = snapshot(store, job.id)
        assert store.forget(documents) == frozenset()
        assert snapshot(store, job.id) == before

    def test_a_job_reopened_and_cancelled_unclaimed_is_not_forgotten(self, store: Store) -> None:
        job = bring(store, S.CANCELLED)
        documents = _copy(store)
        store.move([retry(job)], now=LATE)
        store.move([Move(job.id, "default", frozenset({S.PENDING}), S.CANCELLED)], now=LATE)
        assert get_one(store, job.id).token == documents[0].token
        assert store.forget(documents) == frozenset()
        assert ids_of(store.get([job.id], tenant="default")) == [job.id]

    def test_a_job_that_ended_again_at_one_instant_is_not_forgotten(self, store: Store) -> None:
        job = bring(store, S.FAILED)
        documents = _copy(store)
        store.move([retry(job)], now=T0)
        finish_all(store, [claim_one(store, job.id)], FAILED)
        assert get_one(store, job.id).finished_at == documents[0].finished_at
        assert store.forget(documents) == frozenset()
        assert get_one(store, job.id).token == 2

    def test_a_document_of_another_tenant_forgets_nothing(self, store: Store) -> None:
        job = bring(store, S.COMPLETED, tenant="a")
        (document,) = _copy(store)
        assert store.forget([replace(document, tenant="b")]) == frozenset()
        assert ids_of(store.get([job.id], tenant="a")) == [job.id]

    def test_a_batch_forgets_only_unchanged_jobs(self, store: Store) -> None:
        kept, gone = bring(store, S.FAILED), bring(store, S.FAILED)
        documents = _copy(store)
        store.move([retry(kept)], now=LATE)
        assert store.forget(documents) == {gone.id}

    def test_every_job_is_in_the_store_or_in_the_archive_at_every_step(self, store: Store) -> None:
        ids = {bring(store, state).id for state in JobState for _ in range(3)}
        ended = {id for id in ids if get_one(store, id).state in ENDED}
        hashes: dict[UUID, str] = {}

        def conserved() -> None:
            hot = set(ids_of(store.get(list(ids), tenant=ALL_TENANTS)))
            cold = set(ids_of(store.archived(list(ids), tenant=ALL_TENANTS)))
            assert hot | cold == ids

        while documents := due(store, replace(POLICY, batch=4), LATE):
            hashes |= {document.id: document.fingerprint for document in documents}
            conserved()
            store.put_archive(documents, now=LATE)
            conserved()
            assert all(copy.sound for copy in store.archived(ids_of(documents), tenant=ALL_TENANTS))
            assert store.forget(documents) == set(ids_of(documents))
            conserved()
        copies = store.archived(list(ids), tenant=ALL_TENANTS)
        assert set(ids_of(copies)) == ended
        assert {copy.id: copy.fingerprint for copy in copies} == hashes
        assert set(ids_of(store.get(list(ids), tenant=ALL_TENANTS))) == ids - ended


class ArchiveSearchLaws:
    """The archive can be searched and purged."""

    def _fill(self, store: Store) -> dict[str, UUID]:
        parent = UUID("0197a000-0000-7000-8000-0000000000aa")
        ids = {
            "plain": put_one(store, "a", queue="q1", now=at(-5)),
            "failed": put_one(store, "b", queue="q2"),
            "rich": put_one(store, "c", queue="q3", details=Details(correlation_id="c-1", parent_id=parent)),
            "theirs": put_one(store, "a", queue="q1", tenant="other"),
        }
        claims = {claim.id: claim for claim in claim_all(store)}
        for name, id in ids.items():
            finish_all(store, [claims[id]], FAILED if name == "failed" else ENDS[S.COMPLETED])
        assert store.forget(_copy(store)) == set(ids.values())
        return ids

    def test_the_archive_can_be_filtered_by_each_condition(self, store: Store) -> None:
        ids = self._fill(store)
        where = JobFilter("default")
        cases = [
            (where, ["plain", "failed", "rich"]),
            (JobFilter("other"), ["theirs"]),
            (JobFilter(ALL_TENANTS), list(ids)),
            (replace(where, states=frozenset({S.FAILED})), ["failed"]),
            (replace(where, tasks=frozenset({"a", "c"})), ["plain", "rich"]),
            (replace(where, queues=frozenset({"q2"})), ["failed"]),
            (replace(where, ids=frozenset({ids["rich"], ids["theirs"]})), ["rich"]),
            (replace(where, correlation_id="c-1"), ["rich"]),
            (replace(where, parent_id=UUID("0197a000-0000-7000-8000-0000000000aa")), ["rich"]),
            (replace(where, created_after=at(-1)), ["failed", "rich"]),
            (replace(where, created_before=at(-1)), ["plain"]),
            (replace(where, tasks=frozenset({"a"}), queues=frozenset({"q2"})), []),
        ]
        for condition, names in cases:
            documents = store.search_archive(condition, sort=Sort.OLDEST).items
            assert ids_of(documents) == [ids[name] for name in names], condition
            assert all(document.sound for document in documents)

    @pytest.mark.parametrize("sort", list(Sort))
    def test_pages_of_the_archive_show_everything_once_in_order(self, store: Store, sort: Sort) -> None:
        ids = put(store, *[a_job() for _ in range(7)])
        finish_all(store, claim_all(store))
        _copy(store)
        seen: list[UUID] = []
        after: str | None = None
        while True:
            page = store.search_archive(JobFilter("default"), sort=sort, limit=3, after=after)
            seen += ids_of(page.items)
            assert len(seen) <= len(ids)
            after = page.next
            if after is None:
                break
        assert seen == (ids if sort is Sort.OLDEST else ids[::-1])

    def test_fields_inside_the_document_cannot_be_filtered(self, store: Store) -> None:
        where = JobFilter("default")
        inside = [
            replace(where, tag="x"),
            replace(where, reference=("a", "b")),
            replace(where, definition_id=UUID(int=1)),
            replace(where, schedule_id=UUID(int=1)),
            replace(where, metadata={"a": "b"}),
        ]
        for condition in inside:
            with pytest.raises(BadFilter):
                store.search_archive(condition)

    def test_an_invalid_cursor_or_limit_is_refused(self, store: Store) -> None:
        with pytest.raises(BadFilter):
            store.search_archive(JobFilter("default"), after="nonsense")
        with pytest.raises(BadFilter):
            store.search_archive(JobFilter("default"), limit=0)


class TierLaws:
    """Selections of the live tables and of archive tiers, and removal of documents."""

    def _ended(self, store: Store) -> dict[str, UUID]:
        """Jobs of several tasks, tenants and states; each ended one second after the one before."""
        wanted = [
            ("report.daily", "a", S.COMPLETED), ("report.daily", "b", S.FAILED), ("report", "a", S.COMPLETED),
            ("Report.daily", "a", S.COMPLETED), ("rep%rt_[x]?", "a", S.FAILED), ("mail", "b", S.COMPLETED),
        ]  # fmt: skip
        ids = [put_one(store, task, tenant=tenant) for task, tenant, _ in wanted]
        claims = {claim.id: claim for claim in claim_all(store)}
        for n, (id, (_, _, state)) in enumerate(zip(ids, wanted, strict=True)):
            finish_all(store, [claims[id]], ENDS[state], now=at(n))
        return dict(zip("dbRCwm", ids, strict=True))

    def _seen(self, store: Store, selection: Selection, ids: dict[str, UUID]) -> str:
        """The selected jobs by their letters, the same for the live tables and for a tier."""
        names = {id: name for name, id in ids.items()}
        live = store.archivable(selection, policy="p", tier="warm")
        store.put_archive(due(store, replace(POLICY, tier="warm"), LATE), now=LATE)
        kept = store.archived_due(replace(selection, tier="warm"))
        assert ids_of(kept) == ids_of(live)
        assert [document.tier for document in live] == ["warm"] * len(live)
        return "".join(names[document.id] for document in live)

    @pytest.mark.parametrize(
        ("rule", "expected"),
        [
            (Selector(), "dbRCwm"),
            (Selector(states=frozenset({S.FAILED})), "bw"),
            (Selector(tasks=frozenset({"report.*"})), "db"),
            (Selector(tasks=frozenset({"report*"})), "dbR"),
            (Selector(tasks=frozenset({"*daily", "mail"})), "dbCm"),
            (Selector(tasks=frozenset({"rep%rt_[x]?"})), "w"),
            (Selector(tasks=frozenset({"rep_rt", "report%", "report.????y", "[r]eport"})), ""),
            (Selector(tenants=frozenset({"b"})), "bm"),
            (Selector(frozenset({S.FAILED}), frozenset({"report.*"}), frozenset({"b", "c"})), "b"),
        ],
    )
    def test_a_rule_selects_by_state_task_pattern_and_tenant(
        self, store: Store, rule: Selector, expected: str
    ) -> None:
        assert self._seen(store, Selection(rule), self._ended(store)) == expected

    def test_jobs_of_excluded_rules_are_not_selected(self, store: Store) -> None:
        ids = self._ended(store)
        reports, of_b = Selector(tasks=frozenset({"report.*"})), Selector(tenants=frozenset({"b"}))
        failed = Selector(states=frozenset({S.FAILED}))
        for exclude, expected in (
            ((reports,), "RCwm"),
            ((reports, of_b), "RCw"),
            ((failed,), "dRCm"),
            ((Selector(frozenset({S.FAILED}), tenants=frozenset({"b"})),), "dRCwm"),
            ((Selector(),), ""),
        ):
            assert self._seen(store, Selection(Selector(), exclude=exclude), ids) == expected

    def test_a_range_has_an_exclusive_start_an_inclusive_end_and_a_limit(self, store: Store) -> None:
        ids = self._ended(store)
        first, last = Position(at(0), ids["d"]), Position(at(3), ids["C"])
        assert self._seen(store, Selection(Selector(), after=first, until=last), ids) == "bRC"
        assert self._seen(store, Selection(Selector(), after=first, until=last, limit=2), ids) == "bR"
        before = Position(at(3), UUID(int=0))
        assert self._seen(store, Selection(Selector(), until=before), ids) == "dbR"

    def test_the_newest_jobs_of_a_selection_can_be_set_aside(self, store: Store) -> None:
        ids = self._ended(store)
        store.put_archive(due(store, POLICY, LATE), now=LATE)
        for tier in (None, "archive"):
            everything = Selection(Selector(), tier, limit=1)
            assert store.ended_beyond(everything, 0) == Position(at(5), ids["m"])
            assert store.ended_beyond(everything, 2) == Position(at(3), ids["C"])
            assert store.ended_beyond(everything, 6) is None
            of_a = Selection(
                Selector(tenants=frozenset({"a"})), tier, exclude=(Selector(tasks=frozenset({"rep*"})),)
            )
            assert store.ended_beyond(of_a, 0) == Position(at(3), ids["C"])
        assert store.ended_beyond(Selection(Selector(), "cold"), 0) is None

    def test_only_unchanged_documents_are_removed(self, store: Store) -> None:
        self._ended(store)
        documents = _copy(store)
        store.put_archive([replace(documents[0], tier="cold")], now=LATE)
        store.put_archive([replace(documents[1], document="{}", fingerprint=fingerprint("{}"))], now=LATE)
        assert store.remove_archived(documents[:3]) == {documents[2].id}
        assert store.remove_archived(documents[:3]) == frozenset()
        assert store.remove_archived([]) == frozenset()
        left = store.archived(ids_of(documents), tenant=ALL_TENANTS)
        assert set(ids_of(left)) == set(ids_of(documents)) - {documents[2].id}
