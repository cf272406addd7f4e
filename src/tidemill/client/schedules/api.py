"""``app.schedules``: managing, reading and triggering schedules at run time.

Every method has an asynchronous twin with the prefix ``a``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
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
    task_facts_of,
    trigger_refusal,
)
from tidemill.client.stats.loads import is_living
from tidemill.domain.bounds import check_text
from tidemill.domain.cluster import is_active
from tidemill.domain.job import Enqueued, NewJob
from tidemill.domain.job_requests import Facts as TaskFacts
from tidemill.domain.schedule_fires import SHORTEST_LIFE, addressed, fire_job, read_rules, refuses
from tidemill.domain.schedule_rules import Misfire, Overlap
from tidemill.domain.schedules import CLUSTER_KEY, Definition, Fired, Scope, Source, runner_place
from tidemill.domain.schedules import ScheduleRow as Facts
from tidemill.domain.triggers.base import Trigger
from tidemill.errors import BadSchedule, ScheduleExists, ScheduleNotFound
from tidemill.ids import new_id
from tidemill.tasks.options import check_name

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
        return Schedule(self._facts(key, tenant))

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
        return [
            Schedule(facts)
            for facts in found
            if name in (None, facts.task) and enabled in (None, facts.enabled)
        ]

    def preview(
        self, key: str | UUID, n: int = 5, *, after: datetime | None = None, tenant: str | None = None
    ) -> Sequence[datetime]:
        """Return the next fire times, in the schedule's time zone."""
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
        """Return the recorded fires of a schedule with their outcomes, newest first.

        ``before`` excludes all fires at that instant, on every node.
        """
        facts = self._facts(key, tenant)
        return self._store.fires(facts.id, tenant=facts.tenant, limit=limit, before=before)

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
        overlap: Overlap = "skip",
        calendar: Any = None,
        exclude: Any = None,
        scope: str | None = None,
        enabled: bool = True,
        tenant: str | None = None,
        **options: Any,
    ) -> Schedule:
        """Create a schedule of a task (or its name), or of a definition, after checking all of its values."""
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
        """Check a schedule and return it as it would be stored; writes nothing."""
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

    def update(self, /, key: str | UUID, *, tenant: str | None = None, **changes: Any) -> Schedule:
        """Change the rules, the arguments or the job options of a schedule, with effect from now on."""
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
                    f"schedule {facts.key!r} was changed in the meantime; reload it and try again",
                    key=facts.key,
                    tenant=facts.tenant,
                )
            self._noted("updated", facts, changed)
        self._tell(TOPICS)
        return self.get(facts.id, tenant=facts.tenant)

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
        """Remove a schedule; its recorded fires are kept for a while.

        A schedule declared in code would be created again, so removing it requires ``force``.
        """
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

    # Manual fires ------------------------------------------------------------------------------------------------------

    def trigger(self, key: str | UUID, *, force: bool = False, tenant: str | None = None) -> Job[Any]:
        """Enqueue a job now, independently of the schedule's trigger.

        A schedule that fires on every node or in every runner enqueues one job for each live one. Raises
        ``DefinitionDisabled`` if the definition is disabled, and ``SchedulePaused`` if a schedule with a manual trigger
        is paused. ``force`` enqueues the job in both cases, and the audit records it.
        """
        facts = self._facts(key, tenant)
        definition = self._definition(facts)
        if not force and (refusal := trigger_refusal(facts, definition)) is not None:
            raise refusal
        now = self._client.clock.now()
        jobs = []
        for place in self._places(facts, now):
            job = fire_job(facts, definition, self._known(facts), now, new_id())._replace(run_at=None)
            scope_key = CLUSTER_KEY
            if place is not None:
                # A separate key, because a node computes its missed fires from its last scheduled fire, and this is
                # not one.
                job, scope_key = addressed(job, definition, place), f"{place} by hand"
            if facts.scope is Scope.PROCESS:
                job = job._replace(expires_at=job.expires_at or now + SHORTEST_LIFE)
            if force and refuses(definition):
                job = job._replace(unique=None)
            jobs.append((job, scope_key))

        def write(changed: Sequence[NewJob]) -> Sequence[Enqueued]:
            with self._store.transaction():
                for job, (_, scope_key) in zip(changed, jobs, strict=True):
                    at = now if now.microsecond else now + _TICK  # never at the instant of a scheduled fire
                    while not self._store.note_fires(
                        [Fired(facts.id, at, scope_key, facts.tenant, job.id, "by hand")], now=self._pin
                    ):
                        at += _TICK
                written = insert_new(self._store, changed, taken_error(definition), self._pin)
                ids = [str(job.id) for job in changed[:NAMED]]
                after = {"jobs": ids, **({"force": True} if force else {})}
                self._note("schedule.triggered", f"schedule:{facts.key}", facts.tenant, after=after)
            return written

        made = self._client.enqueuer.made("trigger", [job for job, _ in jobs], write)
        return Job(self._client, made[0])

    def _places(self, facts: Facts, now: datetime) -> Sequence[str | None]:
        """Return where a trigger creates jobs: on no particular node, on every live node, or in every live runner."""
        if facts.scope is Scope.CLUSTER:
            return (None,)
        living = [each for each in self._store.workers() if is_living(each, now)]
        if facts.scope is Scope.INSTANCE:
            places = sorted({each.node for each in living})
        else:
            places = sorted(runner_place(each.node, each.id) for each in living if is_active(each))
        if not places:
            what = "on every node" if facts.scope is Scope.INSTANCE else "in every runner"
            raise BadSchedule(f"schedule {facts.key!r} fires {what}, and none is alive", field="scope")
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
        if facts.scope is not Scope.CLUSTER:
            raise BadSchedule(
                "scope: the fires of a schedule of every node or runner cannot be backfilled", field="scope"
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
        made = [
            fire_job(facts, definition, known, at, new_id())._replace(run_at=None, unique=None)
            for at in chosen
        ]
        new: set[datetime] = set()

        def write(jobs: Sequence[NewJob]) -> list[Enqueued]:
            fires = {
                job.id: Fired(facts.id, at, CLUSTER_KEY, facts.tenant, job.id, "back-filled")
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
                    self._note("schedule.backfilled", f"schedule:{facts.key}", facts.tenant, after=after)
            new.update(fires[job.id].fire_at for job in fresh)
            return [Enqueued(job.id, fires[job.id].key in noted) for job in jobs]

        self._client.enqueuer.made("backfill", made, write)
        return [at for at in chosen if at in new]

    # Helpers -----------------------------------------------------------------------------------------------------------

    def _facts(self, key: str | UUID, tenant: str | None) -> Facts:
        found = self._store.schedules(tenant=self._tenant(tenant), **named(key))
        if not found:
            raise ScheduleNotFound(f"there is no schedule {str(key)!r} here", key=key)
        if len(found) > 1:
            raise BadSchedule(
                f"key: {len(found)} tenants have a schedule {key!r}; specify the tenant",
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

    # Async twins -------------------------------------------------------------------------------------------------------

    aget = async_twin(get)
    alist = async_twin(list)  # noqa: A003  (the method above)
    apreview = async_twin(preview)
    afires = async_twin(fires)
    aadd = async_twin(add)
    aupdate = async_twin(update)
    apause = async_twin(pause)
    aresume = async_twin(resume)
    aremove = async_twin(remove)
    atrigger = async_twin(trigger)
    abackfill = async_twin(backfill)
