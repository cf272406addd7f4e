"""``app.schedules``: managing, reading and triggering schedules at run time.

Every method has an asynchronous twin with the prefix ``a``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidemill.client._base import async_twin
from tidemill.client.access import NAMED, TenantApi
from tidemill.client.enqueue.writes import insert_new
from tidemill.client.jobs.handle import Job
from tidemill.client.schedules.schedule import (
    Schedule,
    as_trigger,
    check_key,
    named,
    ruled,
    schedule_changes,
    taken_error,
    task_data_of,
    trigger_refusal,
)
from tidemill.client.stats.loads import is_living
from tidemill.delivery.heartbeats import subscribe_heartbeats
from tidemill.domain.bounds import check_name, check_text
from tidemill.domain.cluster import is_active
from tidemill.domain.job import Enqueued, NewJob
from tidemill.domain.job_requests import TaskData
from tidemill.domain.reactions import cycle_of, reactions, waiting_words
from tidemill.domain.schedule_fires import SHORTEST_LIFE, addressed, broken, fire_job, read_rules, refuses
from tidemill.domain.schedule_rules import Misfire, Overlap
from tidemill.domain.schedules import CLUSTER_KEY, Definition, Fired, ScheduleRow, Scope, Source, runner_place
from tidemill.domain.triggers.base import Trigger
from tidemill.domain.triggers.reactive import ReactiveTrigger, SourceKind, sources_of
from tidemill.errors import BadSchedule, ScheduleExists, ScheduleNotFound
from tidemill.ids import new_id

if TYPE_CHECKING:
    from tidemill.stores.base import Store

TOPICS = ("schedules",)
REMOVED = "removed from the code"
_BATCH = 500
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Backfilled:
    """Result of a backfill or of its dry run.

    Holds the fires made, the number of fires in the range that existed already, and whether the limit left some out.
    """

    fires: tuple[datetime, ...]
    existing: int
    more: bool


class Schedules(TenantApi):
    """The schedules of an app.

    Each method uses the current tenant unless it is called with another tenant. Reading methods accept ``"*"`` for all
    tenants.
    """

    # Reading -----------------------------------------------------------------------------------------------------------

    def get(self, key: str | UUID, *, tenant: str | None = None) -> Schedule:
        """Return the schedule with that key or id, or raise ``ScheduleNotFound``."""
        return Schedule(self._row(key, tenant))

    def list(
        self,
        *,
        task: Any = None,
        enabled: bool | None = None,
        definition: Any = None,
        tenant: str | None = None,
    ) -> Sequence[Schedule]:
        """Return the schedules that match, sorted by tenant and key."""
        found = self._store.schedules(
            tenant=self._tenant(tenant), definition_id=None if definition is None else definition.id
        )
        name = getattr(task, "name", task)
        return [Schedule(row) for row in found if name in (None, row.task) and enabled in (None, row.enabled)]

    def preview(
        self, key: str | UUID, n: int = 5, *, after: datetime | None = None, tenant: str | None = None
    ) -> Sequence[datetime]:
        """Return the next fire times, in the schedule's time zone."""
        rules = read_rules(self._row(key, tenant))
        since = self._client.clock.now() if after is None else after
        return rules.trigger.preview(n, since, rules.zone, rules.calendar, rules.exclude)

    def fires(
        self,
        key: str | UUID,
        *,
        limit: int = 100,
        before: datetime | None = None,
        tenant: str | None = None,
    ) -> Sequence[Fired]:
        """Return the recorded fires of a schedule with their outcomes, newest first.

        ``before`` excludes all fires at that instant, on every node.
        """
        row = self._row(key, tenant)
        return self._store.fires(row.id, tenant=row.tenant, limit=limit, before=before)

    def why(self, key: str | UUID, *, tenant: str | None = None) -> str:
        """Tell what a schedule waits for, in words: its next fire, a definition or an event."""
        return _waits_for(self._store, self._row(key, tenant), self._client.clock.now())

    # Writing -----------------------------------------------------------------------------------------------------------

    def add(
        self,
        /,
        task: Any,
        trigger: Trigger | str,
        key: str,
        *,
        args: Mapping[str, Any] | None = None,
        timezone: str = "UTC",
        misfire: Misfire = "once",
        overlap: Overlap | None = None,
        calendar: Any = None,
        exclude: Any = None,
        scope: str | None = None,
        enabled: bool = True,
        tenant: str | None = None,
        store: str | None = None,
        **options: Any,
    ) -> Schedule:
        """Create a schedule of a task (or its name), or of a definition, after checking all of its values.

        It is stored where the jobs of its task go, or in ``store``. A definition's schedule is stored in the current
        store, or in ``store``, which has to be that of the definition.
        """
        row = self.value(
            task, trigger, key, args=args, timezone=timezone, misfire=misfire, overlap=overlap, calendar=calendar,
            exclude=exclude, scope=scope, tenant=tenant, **options,
        )  # fmt: skip
        row = replace(row, enabled=enabled)
        return self._at(self._place_of(row, store))._add(row)

    def _place_of(self, row: ScheduleRow, store: str | None) -> str:
        """Return the store of a new schedule."""
        if row.definition_id is not None:
            return self._client.store_name(store)
        return self._client.placement.place(self._client.registry.get(row.task), store, row.tenant)

    def _at(self, place: str) -> Schedules:
        return self if place == self._client.store_name(None) else Schedules(self._client.at(place))

    def _add(self, row: ScheduleRow) -> Schedule:
        key = row.key
        _refuse_cycle(self._store, row)
        with self._store.transaction():
            subscribe_heartbeats(self._store, row, self._pin)
            if self._store.put_schedules([row], now=self._pin):
                raise ScheduleExists(
                    f"tenant {row.tenant} has a schedule {key!r} already; update it, or choose another key",
                    key=key,
                    tenant=row.tenant,
                )
            self._noted("added", None, row)
        self._tell(TOPICS)
        return self.get(row.id, tenant=row.tenant)

    def value(
        self, task: Any, trigger: Any, key: str, *, tenant: str | None = None, **options: Any
    ) -> ScheduleRow:
        """Check a schedule and return it as it would be stored; writes nothing."""
        check_key("schedule", key)
        definition = task if isinstance(task, Definition) else None
        name = definition.task if definition is not None else getattr(task, "name", task)
        declared = self._client.registry.get(str(name))
        whose = definition.tenant if definition is not None else self._tenant(tenant)
        check_name("tenant", whose)
        trigger = as_trigger(trigger)
        if options.get("scope") is None:
            # A task of every node runs once per event.
            reacts = isinstance(trigger, ReactiveTrigger)
            options["scope"] = Scope.CLUSTER if reacts else declared.options.scope
        base = ScheduleRow(
            id=new_id(),
            key=key,
            task=declared.name,
            trigger=trigger.to_data(),
            tenant=whose,
            definition_id=None if definition is None else definition.id,
        )
        return ruled(base, options, declared, definition, self._client.clock.now(), self._client.limits)

    def update(self, /, key: str | UUID, *, tenant: str | None = None, **changes: Any) -> Schedule:
        """Change the rules, the arguments or the job options of a schedule, with effect from now on."""
        row = self._row(key, tenant)
        if row.source is Source.CODE:
            raise BadSchedule(
                f"schedule {row.key!r} is declared in the code of {row.options.get('app') or 'an app'}; change it there",
                field="key",
            )
        declared = self._client.registry.get(row.task)
        now = self._client.clock.now()
        changed = ruled(row, changes, declared, self._definition(row), now, self._client.limits)
        _refuse_cycle(self._store, changed)
        with self._store.transaction():
            subscribe_heartbeats(self._store, changed, self._pin)
            if self._store.put_schedules([changed], now=self._pin):
                raise ScheduleExists(
                    f"schedule {row.key!r} was changed in the meantime; reload it and try again",
                    key=row.key,
                    tenant=row.tenant,
                )
            self._noted("updated", row, changed)
        self._tell(TOPICS)
        return self.get(row.id, tenant=row.tenant)

    def pause(self, key: str | UUID, *, reason: str | None = None, tenant: str | None = None) -> Schedule:
        """Stop firing until the schedule is resumed."""
        check_text("reason", reason)
        return self._enable(key, tenant, enabled=False, note=reason)

    def resume(self, key: str | UUID, *, tenant: str | None = None) -> Schedule:
        """Fire again from now on; fires missed during the pause are not made up."""
        return self._enable(key, tenant, enabled=True)

    def _enable(
        self, key: str | UUID, tenant: str | None, *, enabled: bool, note: str | None = None
    ) -> Schedule:
        row = self._row(key, tenant)
        with self._store.transaction():
            if self._store.enable_schedules(
                [row.id], tenant=row.tenant, enabled=enabled, note=note, now=self._pin
            ):
                was = replace(row, enabled=not enabled)
                now = replace(row, enabled=enabled, note=note)
                self._noted("resumed" if enabled else "paused", was, now)
        self._tell(TOPICS)
        return self.get(row.id, tenant=row.tenant)

    def remove(self, key: str | UUID, *, force: bool = False, tenant: str | None = None) -> None:
        """Remove a schedule; its recorded fires are kept for a while.

        A schedule declared in code would be created again, so removing it requires ``force``.
        """
        row = self._row(key, tenant)
        if row.source is Source.CODE and not force and row.note != REMOVED:
            raise BadSchedule(
                f"schedule {row.key!r} is declared in the code of {row.options.get('app') or 'an app'} and would come back; "
                "remove it there, or pause it",
                field="key",
            )
        with self._store.transaction():
            if self._store.drop_schedules([row.id], tenant=row.tenant):
                self._noted("removed", row, None)
        self._tell(TOPICS)

    # Manual fires ------------------------------------------------------------------------------------------------------

    def trigger(self, key: str | UUID, *, force: bool = False, tenant: str | None = None) -> Job[Any]:
        """Enqueue a job now, independently of the schedule's trigger.

        A schedule that fires on every node or in every runner enqueues one job for each live one. Raises
        ``DefinitionDisabled`` if the definition is disabled, and ``SchedulePaused`` if a schedule with a manual trigger
        is paused. ``force`` enqueues the job in both cases, and the audit records it.
        """
        row = self._row(key, tenant)
        definition = self._definition(row)
        if not force and (refusal := trigger_refusal(row, definition)) is not None:
            raise refusal
        now = self._client.clock.now()
        jobs = []
        for place in self._places(row, now):
            job = fire_job(row, definition, self._task_data(row), now, new_id())._replace(run_at=None)
            scope_key = CLUSTER_KEY
            if place is not None:
                # A separate key, because a node computes its missed fires from its last scheduled fire, and this is
                # not one.
                job, scope_key = addressed(job, definition, place), f"{place} by hand"
            if row.scope is Scope.PROCESS:
                job = job._replace(expires_at=job.expires_at or now + SHORTEST_LIFE)
            if force and refuses(definition):
                job = job._replace(unique=None)
            jobs.append((job, scope_key))

        def write(changed: Sequence[NewJob]) -> Sequence[Enqueued]:
            with self._store.transaction():
                for job, (_, scope_key) in zip(changed, jobs, strict=True):
                    at = now if now.microsecond else now + _TICK  # never at the instant of a scheduled fire
                    while not self._store.note_fires(
                        [Fired(row.id, at, scope_key, row.tenant, job.id, "by hand")], now=self._pin
                    ):
                        at += _TICK
                written = insert_new(self._store, changed, taken_error(definition), self._pin)
                ids = [str(job.id) for job in changed[:NAMED]]
                after = {"jobs": ids, **({"force": True} if force else {})}
                self._note("schedule.triggered", f"schedule:{row.key}", row.tenant, after=after)
            return written

        made = self._client.enqueuer.made("trigger", [job for job, _ in jobs], write)
        return Job(self._client, made[0])

    def _places(self, row: ScheduleRow, now: datetime) -> Sequence[str | None]:
        """Return where a trigger creates jobs: on no particular node, on every live node, or in every live runner."""
        if row.scope is Scope.CLUSTER:
            return (None,)
        living = [worker for worker in self._store.workers() if is_living(worker, now)]
        if row.scope is Scope.INSTANCE:
            places = sorted({worker.node for worker in living})
        else:
            places = sorted(runner_place(worker.node, worker.id) for worker in living if is_active(worker))
        if not places:
            what = "on every node" if row.scope is Scope.INSTANCE else "in every runner"
            raise BadSchedule(f"schedule {row.key!r} fires {what}, and none is alive", field="scope")
        return places

    def backfill(
        self,
        key: str | UUID,
        start: datetime,
        end: datetime,
        *,
        limit: int = 1000,
        dry_run: bool = False,
        tenant: str | None = None,
    ) -> Backfilled:
        """Create the missing fires of a past range, the first ``limit`` of them."""
        row = self._row(key, tenant)
        self._check_range(row, start, end)
        definition, task_data = self._definition(row), self._task_data(row)
        there = self._existing(row, start, end)
        wanted = read_rules(row).between(start - _TICK, end, limit + len(there) + 1)
        missing = [at for at in wanted if at not in there]
        chosen, more = missing[:limit], len(missing) > limit
        if dry_run:
            return Backfilled(tuple(chosen), len(there), more)
        made = [
            fire_at
            for at in range(0, len(chosen), _BATCH)
            for fire_at in self._backfill(row, definition, task_data, chosen[at : at + _BATCH])
        ]
        return Backfilled(tuple(made), len(there) + len(chosen) - len(made), more)

    def _check_range(self, row: ScheduleRow, start: datetime, end: datetime) -> None:
        for name, at in (("start", start), ("end", end)):
            if at.tzinfo is None:
                raise BadSchedule(
                    f"{name}: {at.isoformat()} has no time zone; give an aware datetime", field=name
                )
        if start > end:
            raise BadSchedule(f"end: {end.isoformat()} is before {start.isoformat()}", field="end")
        if end > self._client.clock.now():
            raise BadSchedule(f"end: {end.isoformat()} has not passed yet", field="end")
        if sources_of(row.trigger):
            raise BadSchedule("trigger: After and On have no fires to make up for", field="trigger")
        if row.scope is not Scope.CLUSTER:
            raise BadSchedule(
                "scope: the fires of a schedule of every node or runner cannot be backfilled", field="scope"
            )

    def _existing(self, row: ScheduleRow, start: datetime, end: datetime) -> set[datetime]:
        there: set[datetime] = set()
        before = end + _TICK
        while page := self._store.fires(row.id, tenant=row.tenant, limit=_BATCH, before=before):
            there |= {fire.fire_at for fire in page if fire.fire_at >= start}
            before = page[-1].fire_at
            if before < start:
                break
        return {at.astimezone(UTC) for at in there}

    def _backfill(
        self,
        row: ScheduleRow,
        definition: Definition | None,
        task_data: TaskData | None,
        chosen: Sequence[datetime],
    ) -> Sequence[datetime]:
        made = [
            fire_job(row, definition, task_data, at, new_id())._replace(run_at=None, unique=None)
            for at in chosen
        ]
        new: set[datetime] = set()

        def write(jobs: Sequence[NewJob]) -> list[Enqueued]:
            fires = {
                job.id: Fired(row.id, at, CLUSTER_KEY, row.tenant, job.id, "back-filled")
                for at, job in zip(chosen, jobs, strict=True)
            }
            with self._store.transaction():
                noted = self._store.note_fires(list(fires.values()), now=self._pin)
                fresh = [job for job in jobs if fires[job.id].key in noted]
                if fresh:
                    insert_new(self._store, fresh, taken_error(None), self._pin)
                    after = {
                        "fires": len(fresh),
                        "first": chosen[0].isoformat(),
                        "last": chosen[-1].isoformat(),
                    }
                    self._note("schedule.backfilled", f"schedule:{row.key}", row.tenant, after=after)
            new.update(fires[job.id].fire_at for job in fresh)
            return [Enqueued(job.id, fires[job.id].key in noted) for job in jobs]

        self._client.enqueuer.made("backfill", made, write)
        return [at for at in chosen if at in new]

    # Helpers -----------------------------------------------------------------------------------------------------------

    def _row(self, key: str | UUID, tenant: str | None) -> ScheduleRow:
        found = self._store.schedules(tenant=self._tenant(tenant), **named(key))
        if not found:
            raise ScheduleNotFound(f"there is no schedule {str(key)!r} here", key=key)
        if len(found) > 1:
            raise BadSchedule(
                f"key: {len(found)} tenants have a schedule {key!r}; specify the tenant",
                field="tenant",
            )
        return found[0]

    def _noted(self, verb: str, before: ScheduleRow | None, after: ScheduleRow | None) -> None:
        row = after or before
        assert row is not None
        was, now = schedule_changes(before, after)
        self._note(f"schedule.{verb}", f"schedule:{row.key}", row.tenant, was, now)

    def _definition(self, row: ScheduleRow) -> Definition | None:
        if row.definition_id is None:
            return None
        (found,) = self._store.definitions(tenant=row.tenant, ids=[row.definition_id], deleted=True)
        return found

    def _task_data(self, row: ScheduleRow) -> TaskData | None:
        return task_data_of(self._client, row.task)

    # Async twins -------------------------------------------------------------------------------------------------------

    aget = async_twin(get)
    alist = async_twin(list)  # noqa: A003  (the method above)
    apreview = async_twin(preview)
    awhy = async_twin(why)
    afires = async_twin(fires)
    aadd = async_twin(add)
    aupdate = async_twin(update)
    apause = async_twin(pause)
    aresume = async_twin(resume)
    aremove = async_twin(remove)
    atrigger = async_twin(trigger)
    abackfill = async_twin(backfill)


def _refuse_cycle(store: Store, row: ScheduleRow) -> None:
    """Refuse a schedule of a definition that would run after itself, directly or through other definitions."""
    if row.definition_id is None or not _needs(row):
        return
    keys = {definition.id: definition.key for definition in store.definitions(tenant=row.tenant)}
    edges: dict[str, set[str]] = {}
    for other in [*store.schedules(tenant=row.tenant), row]:
        if other.definition_id in keys and (other.id != row.id or other is row):
            edges.setdefault(keys[other.definition_id], set()).update(_needs(other))
    own = keys.get(row.definition_id)
    if own is not None and (cycle := cycle_of(edges, own)):
        raise BadSchedule(
            f"trigger: definition {own!r} would run after itself: {' after '.join(cycle)}",
            field="trigger",
        )


def _needs(row: ScheduleRow) -> list[str]:
    return [source.name for source in sources_of(row.trigger) if source.kind is SourceKind.DEFINITION]


def _waits_for(store: Store, row: ScheduleRow, now: datetime) -> str:
    """The awaited events of a schedule in words."""
    if (fault := broken(row)) is not None:
        return f"does not fire, because its rule cannot be read: {fault}"
    if not row.enabled:
        return f"is paused: {row.note}" if row.note else "is paused"
    rules = read_rules(row)
    if not isinstance(rules.trigger, ReactiveTrigger):
        following = row.next_fire_at
        return "never fires by itself" if following is None else f"waits for {following.isoformat()}"
    found = reactions(rules.trigger, store.occurrences([row.id]), row.since_at, now, rules.zone)
    if found.fires:
        return f"fires at once: {len(found.fires)} fires are due"
    names = _needs(row)
    existing = (
        [definition.key for definition in store.definitions(tenant=row.tenant, keys=names)] if names else []
    )
    return waiting_words(rules.trigger, found.held, existing, row.last_fire_at)
