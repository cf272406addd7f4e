"""``app.schedules``: schedules made, changed, looked at and triggered at run time. Every verb has a twin that is awaited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tidemill.client.acting import NAMED
from tidemill.client.handle import Job
from tidemill.client.ruled import schedule_changes
from tidemill.client.rules import as_trigger, check_key, ruled
from tidemill.client.scheduled import Schedule, Tenanted, named, task_facts_of
from tidemill.client.stats import liveness
from tidemill.domain.bounds import check_text
from tidemill.domain.firing import NODE_QUEUE, fire_job, read_rules
from tidemill.domain.job import NewJob
from tidemill.domain.requests import Facts as TaskFacts
from tidemill.domain.schedule import Misfire, Overlap
from tidemill.domain.timetable import CLUSTER_KEY, Definition, Fired, Scope, Source
from tidemill.domain.timetable import Schedule as Facts
from tidemill.domain.triggers.base import Trigger
from tidemill.errors import BadSchedule, JobExists, ScheduleExists, ScheduleNotFound
from tidemill.ids import new_id
from tidemill.tasks.options import check_name

TOPICS = ("schedules",)
REMOVED = "removed from the code"
_BATCH = 500
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What a back-fill did, or would do: the fires made, how many of the range existed, and whether the limit cut it short."""

    fires: tuple[datetime, ...]
    existing: int
    more: bool


class Schedules(Tenanted):
    """The schedules of an app. The tenant is the surrounding one unless another, or ``"*"`` for reading all, is given."""

    # Reading -----------------------------------------------------------------------------------------------------------

    def get(self, key: str | UUID, *, tenant: str | None = None) -> Schedule:
        """The schedule of that key or id, or ``ScheduleNotFound``."""
        return Schedule(self._facts(key, tenant))

    def list(
        self,
        *,
        task: Any = None,
        enabled: bool | None = None,
        definition: Any = None,
        tenant: str | None = None,
    ) -> Sequence[Schedule]:
        """The schedules that match, by tenant and key."""
        found = self._store.schedules(
            tenant=self._tenant(tenant), definition_id=None if definition is None else definition.id
        )
        name = getattr(task, "name", task)
        return [
            Schedule(facts)
            for facts in found
            if name in (None, facts.task) and enabled in (None, facts.enabled)
        ]

    def preview(
        self, key: str | UUID, n: int = 5, *, after: datetime | None = None, tenant: str | None = None
    ) -> Sequence[datetime]:
        """The next fires, as a clock in the schedule's time zone shows them."""
        rules = read_rules(self._facts(key, tenant))
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
        """What became of a schedule's fires, the newest first. ``before`` passes over all fires of that instant, of whichever node."""
        facts = self._facts(key, tenant)
        return self._store.fires(facts.id, tenant=facts.tenant, limit=limit, before=before)

    # Writing -----------------------------------------------------------------------------------------------------------

    def add(
        self,
        task: Any,
        trigger: Trigger | str,
        key: str,
        *,
        args: Mapping[str, Any] | None = None,
        timezone: str = "UTC",
        misfire: Misfire = "once",
        overlap: Overlap = "skip",
        calendar: Any = None,
        exclude: Any = None,
        scope: str | None = None,
        enabled: bool = True,
        tenant: str | None = None,
        **options: Any,
    ) -> Schedule:
        """Save a new schedule of a task (or its name), or of a definition; all of it is checked first."""
        facts = self.value(
            task, trigger, key, args=args, timezone=timezone, misfire=misfire, overlap=overlap, calendar=calendar,
            exclude=exclude, scope=scope, tenant=tenant, **options,
        )  # fmt: skip
        facts = replace(facts, enabled=enabled)
        with self._store.transaction():
            if self._store.put_schedules([facts], now=self._pin):
                raise ScheduleExists(
                    f"tenant {facts.tenant} has a schedule {key!r} already; update it, or choose another key",
                    key=key,
                    tenant=facts.tenant,
                )
            self._noted("added", None, facts)
        self._tell(TOPICS)
        return self.get(facts.id, tenant=facts.tenant)

    def value(self, task: Any, trigger: Any, key: str, *, tenant: str | None = None, **said: Any) -> Facts:
        """A schedule as it would be stored, with all of it checked; nothing is written."""
        check_key("schedule", key)
        definition = task if isinstance(task, Definition) else None
        name = definition.task if definition is not None else getattr(task, "name", task)
        declared = self._client.registry.get(str(name))
        whose = definition.tenant if definition is not None else self._tenant(tenant)
        check_name("tenant", whose)
        if said.get("scope") is None:
            said["scope"] = declared.options.scope
        base = Facts(
            id=new_id(),
            key=key,
            task=declared.name,
            trigger=as_trigger(trigger).to_data(),
            tenant=whose,
            definition_id=None if definition is None else definition.id,
        )
        return ruled(base, said, declared, definition, self._client.clock.now(), self._client.limits)

    def update(self, key: str | UUID, *, tenant: str | None = None, **changes: Any) -> Schedule:
        """Change what is said of a schedule: its rules, its arguments, the options of its jobs. It counts from now on."""
        facts = self._facts(key, tenant)
        if facts.source is Source.CODE:
            raise BadSchedule(
                f"schedule {facts.key!r} is declared in the code of {facts.options.get('app') or 'an app'}; change it there",
                field="key",
            )
        declared = self._client.registry.get(facts.task)
        now = self._client.clock.now()
        changed = ruled(facts, changes, declared, self._definition(facts), now, self._client.limits)
        with self._store.transaction():
            if self._store.put_schedules([changed], now=self._pin):
                raise ScheduleExists(
                    f"schedule {facts.key!r} was changed meanwhile; look again",
                    key=facts.key,
                    tenant=facts.tenant,
                )
            self._noted("updated", facts, changed)
        self._tell(TOPICS)
        return self.get(facts.id, tenant=facts.tenant)

    def pause(self, key: str | UUID, *, reason: str | None = None, tenant: str | None = None) -> Schedule:
        """Fire no more, until it is resumed."""
        check_text("reason", reason)
        return self._enable(key, tenant, enabled=False, note=reason)

    def resume(self, key: str | UUID, *, tenant: str | None = None) -> Schedule:
        """Fire again, from now on: what lies before is not made up for."""
        return self._enable(key, tenant, enabled=True)

    def _enable(
        self, key: str | UUID, tenant: str | None, *, enabled: bool, note: str | None = None
    ) -> Schedule:
        facts = self._facts(key, tenant)
        with self._store.transaction():
            if self._store.enable_schedules(
                [facts.id], tenant=facts.tenant, enabled=enabled, note=note, now=self._pin
            ):
                was = replace(facts, enabled=not enabled)
                now = replace(facts, enabled=enabled, note=note)
                self._noted("resumed" if enabled else "paused", was, now)
        self._tell(TOPICS)
        return self.get(facts.id, tenant=facts.tenant)

    def remove(self, key: str | UUID, *, force: bool = False, tenant: str | None = None) -> None:
        """Remove a schedule; its fires stay a while. One that is declared in code would come back: that needs ``force``."""
        facts = self._facts(key, tenant)
        if facts.source is Source.CODE and not force and facts.note != REMOVED:
            raise BadSchedule(
                f"schedule {facts.key!r} is declared in the code of {facts.options.get('app') or 'an app'} and would come back; "
                "remove it there, or pause it",
                field="key",
            )
        with self._store.transaction():
            if self._store.drop_schedules([facts.id], tenant=facts.tenant):
                self._noted("removed", facts, None)
        self._tell(TOPICS)

    # Firing by hand ----------------------------------------------------------------------------------------------------

    def trigger(self, key: str | UUID, *, tenant: str | None = None) -> Job[Any]:
        """Make a job now, whatever the rules say; of a schedule of every node one for each node that lives."""
        facts = self._facts(key, tenant)
        definition = self._definition(facts)
        now = self._client.clock.now()
        nodes: Iterable[str | None] = (None,)
        if facts.scope is Scope.INSTANCE:
            nodes = sorted({each.node for each in self._store.workers() if liveness(each, now) != "gone"})
            if not nodes:
                raise BadSchedule(
                    f"schedule {facts.key!r} fires on every node, and none is alive", field="scope"
                )
        jobs = []
        for node in nodes:
            job = fire_job(facts, definition, self._known(facts), now, new_id())._replace(run_at=None)
            scope_key = CLUSTER_KEY
            if node is not None:
                # Under a key of its own: a node counts what it has missed from its last fire, and this is none.
                job, scope_key = job._replace(queue=NODE_QUEUE + node), f"{node} by hand"
            jobs.append((job, scope_key))
        with self._store.transaction():
            for job, scope_key in jobs:
                at = now if now.microsecond else now + _TICK  # never in the place of a fire of its own
                while not self._store.note_fires(
                    [Fired(facts.id, at, scope_key, facts.tenant, job.id, "by hand")], now=self._pin
                ):
                    at += _TICK
                self._enqueue([job])
            ids = [str(job.id) for job, _ in jobs[:NAMED]]
            self._note("schedule.triggered", f"schedule:{facts.key}", facts.tenant, after={"jobs": ids})
        self._tell({f"ready:{job.queue}" for job, _ in jobs})
        return Job(self._client, jobs[0][0])

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
        """Make the fires of a range that has passed and that do not exist yet, the first ``limit`` of them."""
        facts = self._facts(key, tenant)
        self._check_range(facts, start, end)
        definition, known = self._definition(facts), self._known(facts)
        there = self._existing(facts, start, end)
        wanted = read_rules(facts).between(start - _TICK, end, limit + len(there) + 1)
        missing = [at for at in wanted if at not in there]
        chosen, more = missing[:limit], len(missing) > limit
        if dry_run:
            return Backfilled(tuple(chosen), len(there), more)
        made = [
            fire_at
            for at in range(0, len(chosen), _BATCH)
            for fire_at in self._backfill(facts, definition, known, chosen[at : at + _BATCH])
        ]
        return Backfilled(tuple(made), len(there) + len(chosen) - len(made), more)

    def _check_range(self, facts: Facts, start: datetime, end: datetime) -> None:
        for name, at in (("start", start), ("end", end)):
            if at.tzinfo is None:
                raise BadSchedule(
                    f"{name}: {at.isoformat()} has no time zone; give an aware datetime", field=name
                )
        if start > end:
            raise BadSchedule(f"end: {end.isoformat()} is before {start.isoformat()}", field="end")
        if end > self._client.clock.now():
            raise BadSchedule(f"end: {end.isoformat()} has not passed yet", field="end")
        if facts.scope is Scope.INSTANCE:
            raise BadSchedule(
                "scope: the fires of a schedule of every node cannot be made up for", field="scope"
            )

    def _existing(self, facts: Facts, start: datetime, end: datetime) -> set[datetime]:
        there: set[datetime] = set()
        before = end + _TICK
        while page := self._store.fires(facts.id, tenant=facts.tenant, limit=_BATCH, before=before):
            there |= {fire.fire_at for fire in page if fire.fire_at >= start}
            before = page[-1].fire_at
            if before < start:
                break
        return {at.astimezone(UTC) for at in there}

    def _backfill(
        self, facts: Facts, definition: Definition | None, known: TaskFacts | None, chosen: Sequence[datetime]
    ) -> Sequence[datetime]:
        jobs = [
            fire_job(facts, definition, known, at, new_id())._replace(run_at=None, unique=None)
            for at in chosen
        ]
        fires = [
            Fired(facts.id, at, CLUSTER_KEY, facts.tenant, job.id, "back-filled")
            for at, job in zip(chosen, jobs, strict=True)
        ]
        with self._store.transaction():
            new = self._store.note_fires(fires, now=self._pin)
            fresh = [job for job, fire in zip(jobs, fires, strict=True) if fire.key in new]
            if fresh:
                self._enqueue(fresh)
                after = {"fires": len(fresh), "first": chosen[0].isoformat(), "last": chosen[-1].isoformat()}
                self._note("schedule.backfilled", f"schedule:{facts.key}", facts.tenant, after=after)
        self._tell({f"ready:{job.queue}" for job in fresh})
        return [fire.fire_at for fire in fires if fire.key in new]

    # Parts -------------------------------------------------------------------------------------------------------------

    def _facts(self, key: str | UUID, tenant: str | None) -> Facts:
        found = self._store.schedules(tenant=self._tenant(tenant), **named(key))
        if not found:
            raise ScheduleNotFound(f"there is no schedule {str(key)!r} here", key=key)
        if len(found) > 1:
            raise BadSchedule(
                f"key: {len(found)} tenants have a schedule {key!r}; say which tenant is meant",
                field="tenant",
            )
        return found[0]

    def _noted(self, verb: str, before: Facts | None, after: Facts | None) -> None:
        facts = after or before
        assert facts is not None
        was, now = schedule_changes(before, after)
        self._note(f"schedule.{verb}", f"schedule:{facts.key}", facts.tenant, was, now)

    def _definition(self, facts: Facts) -> Definition | None:
        if facts.definition_id is None:
            return None
        (found,) = self._store.definitions(tenant=facts.tenant, ids=[facts.definition_id], deleted=True)
        return found

    def _known(self, facts: Facts) -> TaskFacts | None:
        return task_facts_of(self._client, facts.task)

    def _enqueue(self, jobs: Sequence[NewJob]) -> None:
        for job, answer in zip(jobs, self._store.enqueue(jobs, now=self._pin), strict=True):
            if not answer.created:
                raise JobExists(
                    f"job {answer.id} of task {job.task} holds the same unique key",
                    id=answer.id,
                    task=job.task,
                )

    # Twins -------------------------------------------------------------------------------------------------------------

    async def aget(self, key: str | UUID, *, tenant: str | None = None) -> Schedule:
        return await self._await(self.get, key, tenant=tenant)

    async def alist(self, *, tenant: str | None = None, **where: Any) -> Sequence[Schedule]:
        return await self._await(self.list, tenant=tenant, **where)

    async def apreview(
        self, key: str | UUID, n: int = 5, *, after: datetime | None = None, tenant: str | None = None
    ) -> Sequence[datetime]:
        return await self._await(self.preview, key, n, after=after, tenant=tenant)

    async def afires(self, key: str | UUID, *, tenant: str | None = None, **where: Any) -> Sequence[Fired]:
        return await self._await(self.fires, key, tenant=tenant, **where)

    async def aadd(
        self, task: Any, trigger: Trigger | str, key: str, *, tenant: str | None = None, **said: Any
    ) -> Schedule:
        return await self._await(self.add, task, trigger, key, tenant=tenant, **said)

    async def aupdate(self, key: str | UUID, *, tenant: str | None = None, **changes: Any) -> Schedule:
        return await self._await(self.update, key, tenant=tenant, **changes)

    async def apause(
        self, key: str | UUID, *, reason: str | None = None, tenant: str | None = None
    ) -> Schedule:
        return await self._await(self.pause, key, reason=reason, tenant=tenant)

    async def aresume(self, key: str | UUID, *, tenant: str | None = None) -> Schedule:
        return await self._await(self.resume, key, tenant=tenant)

    async def aremove(self, key: str | UUID, *, force: bool = False, tenant: str | None = None) -> None:
        await self._await(self.remove, key, force=force, tenant=tenant)

    async def atrigger(self, key: str | UUID, *, tenant: str | None = None) -> Job[Any]:
        return await self._await(self.trigger, key, tenant=tenant)

    async def abackfill(
        self, key: str | UUID, start: datetime, end: datetime, *, tenant: str | None = None, **how: Any
    ) -> Backfilled:
        return await self._await(self.backfill, key, start, end, tenant=tenant, **how)
