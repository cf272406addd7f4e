"""``app.definitions``: a tenant's own configurations of tasks, with versions. Every verb has a twin that is awaited."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.client.acting import named
from tidemill.client.handle import Job
from tidemill.client.limiting import drop_rule
from tidemill.client.ruled import definition_changes
from tidemill.client.rules import check_key, encoded, read_job_options
from tidemill.client.scheduled import Tenanted, task_facts_of
from tidemill.domain.bounds import check_text, data_flaw, text_flaw
from tidemill.domain.firing import definition_limit, limited
from tidemill.domain.limits import LimitKind, Rule
from tidemill.domain.requests import request
from tidemill.domain.timetable import Definition, DefinitionVersion
from tidemill.errors import BadArguments, BadSchedule, DefinitionExists, DefinitionNotFound, JobExists
from tidemill.ids import new_id
from tidemill.tasks.limiting import called_names

_LONGEST = 200  # characters of a name, as every store's table has it


class Definitions(Tenanted):
    """The definitions of an app's tenants. The tenant is the surrounding one unless another is given."""

    def save(
        self,
        key: str,
        task: Any = None,
        *,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
        owner: str | None = None,
        notifications: Mapping[str, object] | None = None,
        version: int | None = None,
        by: str | None = None,
        tenant: str | None = None,
        **settings: Any,
    ) -> Definition:
        """Write a definition: a new one, or the next version of the one with this key. What is left out stays as it is.

        With ``version`` only over that version (0: only a new one). ``settings`` are options of its jobs, and ``max_concurrent``:
        how many of them may run at a time, 0 for no limit.
        """
        check_key("definition", key)
        whose = self._tenant(tenant)
        found = self._living(key, whose)
        if version is not None and version != (0 if found is None else found.version):
            raise _changed(key, whose, found)
        base = found or Definition(id=new_id(), key=key, task=_name(task), tenant=whose)
        if found is not None and task is not None and _name(task) != found.task:
            raise BadSchedule(
                f"task: definition {key!r} is of task {found.task}; choose another key for {_name(task)}",
                field="task",
            )
        declared = self._client.registry.get(base.task)
        most = (
            {"max_concurrent": _most(settings.pop("max_concurrent"))} if "max_concurrent" in settings else {}
        )
        changes: dict[str, Any] = {"settings": {**base.settings, **read_job_options(settings), **most}}
        if args is not None or found is None:
            changes["args"] = encoded(declared, args or {}, self._client.limits)
        for field, value in (("name", name), ("owner", owner)):
            if value is not None:
                changes[field] = _words(field, value)
        if notifications is not None:
            changes["notifications"] = _plain("notifications", notifications)
        return self._put("saved", found, replace(base, **changes), by)

    def get(self, key: str, *, tenant: str | None = None) -> Definition:
        """The living definition of that key, or ``DefinitionNotFound``."""
        whose = self._tenant(tenant)
        found = self._living(key, whose)
        if found is None:
            raise DefinitionNotFound(f"tenant {whose} has no definition {key!r}", key=key, tenant=whose)
        return found

    def list(
        self, *, task: Any = None, deleted: bool = False, tenant: str | None = None
    ) -> Sequence[Definition]:
        """The definitions that match, by tenant and key; ``tenant="*"`` for all tenants."""
        name = None if task is None else _name(task)
        return self._store.definitions(tenant=self._tenant(tenant), task=name, deleted=deleted)

    def versions(self, key: str, *, tenant: str | None = None) -> Sequence[DefinitionVersion]:
        """Every version of a definition, the oldest first."""
        found = self.get(key, tenant=tenant)
        return self._store.definition_versions(found.id, tenant=found.tenant)

    def enable(self, key: str, *, tenant: str | None = None) -> Definition:
        """Let its schedules fire again, from now on."""
        return self._enable(key, tenant, enabled=True)

    def disable(self, key: str, *, tenant: str | None = None) -> Definition:
        """Let none of its schedules fire."""
        return self._enable(key, tenant, enabled=False)

    def _enable(self, key: str, tenant: str | None, *, enabled: bool) -> Definition:
        found = self.get(key, tenant=tenant)
        with self._store.transaction():
            if self._store.enable_definitions(
                [found.id], tenant=found.tenant, enabled=enabled, now=self._pin
            ):
                verb = "enabled" if enabled else "disabled"
                self._noted(verb, replace(found, enabled=not enabled), replace(found, enabled=enabled))
        self._tell(["schedules"])
        return self.get(key, tenant=found.tenant)

    def trigger(
        self, key: str, *, args: Mapping[str, Any] | None = None, tenant: str | None = None
    ) -> Job[Any]:
        """Make a job now, with these arguments over its own; also while it is disabled."""
        found = self.get(key, tenant=tenant)
        declared = self._client.registry.get(found.task)
        merged = {**declared.arguments.load(found.args), **(args or {})}
        job = request(
            new_id(),
            found.task,
            tenant=found.tenant,
            facts=task_facts_of(self._client, found.task) or {},
            layers=[found.settings],
            args=encoded(declared, merged, self._client.limits),
            run_at=None,
        )
        details = replace(job.details, definition_id=found.id, definition_version=found.version)
        values = {**declared.arguments.defaults(), **json.loads(job.args)}
        called = called_names(declared.options, found.tenant, lambda: values)
        job = limited(job._replace(limits=tuple(sorted({*job.limits, *called})), details=details), found)
        with self._store.transaction():
            (answer,) = self._store.enqueue([job], now=self._pin)
            if not answer.created:
                raise JobExists(f"job {answer.id} of task {job.task} holds the same unique key", id=answer.id)
            after = {"jobs": [str(job.id)], "version": found.version}
            self._note("definition.triggered", f"definition:{found.key}", found.tenant, after=after)
        self._tell([f"ready:{job.queue}"])
        return Job(self._client, job)

    def remove(self, key: str, *, tenant: str | None = None) -> None:
        """Delete it with its schedules; its key is free again, and its versions stay."""
        found = self.get(key, tenant=tenant)
        with self._store.transaction():
            if self._store.drop_definitions([found.id], tenant=found.tenant, now=self._pin):
                self._noted("removed", found, None)
                self._limit(found, None)
        self._tell(["schedules"])

    def restore(
        self, key: str, version: int | None = None, *, by: str | None = None, tenant: str | None = None
    ) -> Definition:
        """Write an old version anew; of a deleted one (its last, unless you say which) as a new definition, without schedules."""
        whose = self._tenant(tenant)
        living = self._living(key, whose)
        if living is not None and version is None:
            raise BadSchedule(
                f"version: definition {key!r} lives; say which version is wanted", field="version"
            )
        found = living or self._last_deleted(key, whose)
        versions = self._store.definition_versions(found.id, tenant=whose)
        wanted = versions[-1].definition.version if version is None else version
        old = next((each.definition for each in versions if each.definition.version == wanted), None)
        if old is None:
            raise DefinitionNotFound(f"definition {key!r} has no version {wanted}", key=key, version=wanted)
        content = {
            field: getattr(old, field) for field in ("name", "args", "settings", "notifications", "owner")
        }
        if living is not None:
            return self._put("restored", living, replace(living, **content), by)
        new = Definition(id=new_id(), key=key, task=old.task, tenant=whose, **content)
        return self._put("restored", None, new, by)

    # Parts -------------------------------------------------------------------------------------------------------------

    def _living(self, key: str, tenant: str) -> Definition | None:
        found = self._store.definitions(tenant=tenant, keys=[key])
        return found[0] if found else None

    def _last_deleted(self, key: str, tenant: str) -> Definition:
        found = self._store.definitions(tenant=tenant, keys=[key], deleted=True)
        if not found:
            raise DefinitionNotFound(
                f"tenant {tenant} never had a definition {key!r}", key=key, tenant=tenant
            )
        return max(
            found, key=lambda each: (each.deleted_at is not None and each.deleted_at.timestamp(), each.id)
        )

    def _put(self, verb: str, before: Definition | None, after: Definition, by: str | None) -> Definition:
        check_text("by", by)
        with self._store.transaction():
            written = self._store.put_definition(after, by=by or named(), now=self._pin)
            if written is None:
                raise _changed(after.key, after.tenant, self._living(after.key, after.tenant))
            self._noted(verb, before, written)
            changed = self._limit(before, written)
        if changed:
            self._tell(["change"])
        return written

    def _limit(self, before: Definition | None, after: Definition | None) -> bool:
        """Have the store's rule say what the definition says; whether that is something else than before."""
        found = after or before
        assert found is not None
        was, now = (0 if each is None else each.settings.get("max_concurrent", 0) for each in (before, after))
        if was == now:
            return False
        name = definition_limit(found.id)
        if isinstance(now, int) and now:
            self._store.put_rules([Rule(name, LimitKind.CONCURRENCY, now)], now=self._pin)
        elif after is None or not any(rule.name == name and rule.pinned for rule in self._store.rules()):
            drop_rule(self._store, name, None, self._pin)
        return True

    def _noted(self, verb: str, before: Definition | None, after: Definition | None) -> None:
        found = after or before
        assert found is not None
        was, now = definition_changes(before, after)
        self._note(f"definition.{verb}", f"definition:{found.key}", found.tenant, was, now)

    # Twins -------------------------------------------------------------------------------------------------------------

    async def asave(
        self, key: str, task: Any = None, *, tenant: str | None = None, **said: Any
    ) -> Definition:
        return await self._await(self.save, key, task, tenant=tenant, **said)

    async def aget(self, key: str, *, tenant: str | None = None) -> Definition:
        return await self._await(self.get, key, tenant=tenant)

    async def alist(self, *, tenant: str | None = None, **where: Any) -> Sequence[Definition]:
        return await self._await(self.list, tenant=tenant, **where)

    async def aversions(self, key: str, *, tenant: str | None = None) -> Sequence[DefinitionVersion]:
        return await self._await(self.versions, key, tenant=tenant)

    async def aenable(self, key: str, *, tenant: str | None = None) -> Definition:
        return await self._await(self.enable, key, tenant=tenant)

    async def adisable(self, key: str, *, tenant: str | None = None) -> Definition:
        return await self._await(self.disable, key, tenant=tenant)

    async def atrigger(
        self, key: str, *, args: Mapping[str, Any] | None = None, tenant: str | None = None
    ) -> Job[Any]:
        return await self._await(self.trigger, key, args=args, tenant=tenant)

    async def aremove(self, key: str, *, tenant: str | None = None) -> None:
        await self._await(self.remove, key, tenant=tenant)

    async def arestore(
        self, key: str, version: int | None = None, *, by: str | None = None, tenant: str | None = None
    ) -> Definition:
        return await self._await(self.restore, key, version, by=by, tenant=tenant)


def _name(task: Any) -> str:
    if task is None:
        raise BadSchedule("task: a new definition needs a task", field="task")
    return str(getattr(task, "name", task))


def _most(given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise BadSchedule(
            f"max_concurrent: {given!r} is no number of jobs; give a whole number, 0 for no limit",
            field="max_concurrent",
        )
    return given


def _words(field: str, value: Any) -> str:
    if not isinstance(value, str) or text_flaw(value):
        raise BadArguments(f"{field}: {value!r} is no text that can be stored", field=field)
    if field == "name" and len(value) > _LONGEST:
        raise BadArguments(f"name: it has {len(value)} characters; give at most {_LONGEST}", field=field)
    return value


def _plain(field: str, value: Any) -> Any:
    if flaw := data_flaw(value):
        raise BadArguments(f"{field}: {value!r} is not plain data: {flaw}", field=field)
    return value


def _changed(key: str, tenant: str, found: Definition | None) -> DefinitionExists:
    now = "is gone" if found is None else f"has version {found.version}"
    return DefinitionExists(
        f"definition {key!r} of tenant {tenant} {now} meanwhile; look again", key=key, tenant=tenant
    )
