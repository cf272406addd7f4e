"""``app.definitions``: versioned task configurations of a tenant.

Every method has an asynchronous twin with the prefix ``a``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.client._base import async_twin
from tidemill.client.access import TenantApi, named
from tidemill.client.enqueue.limit_cache import drop_rule
from tidemill.client.enqueue.writes import insert_new
from tidemill.client.jobs.handle import Job
from tidemill.client.schedules.schedule import (
    HEARTBEAT,
    RULES,
    check_key,
    definition_changes,
    definition_refusal,
    read_job_options,
    sealed_call,
    sealed_parameters,
    taken_error,
    task_data_of,
)
from tidemill.delivery.notification_duty import KEPT, definition_subscription
from tidemill.domain.bounds import check_text, text_flaw
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Enqueued, NewJob
from tidemill.domain.job_requests import request
from tidemill.domain.limits import LimitKind, Rule
from tidemill.domain.masks import HIDDEN
from tidemill.domain.notifications import read_channels
from tidemill.domain.schedule_fires import definition_limit, limited, refuses
from tidemill.domain.schedules import Definition, DefinitionVersion
from tidemill.errors import BadArguments, BadSchedule, BadSettings, DefinitionExists, DefinitionNotFound
from tidemill.ids import new_id
from tidemill.tasks.limits import called_names
from tidemill.tasks.parameter_rows import ParameterRow, parameter_rows
from tidemill.tasks.task import Declared

DEFAULT_CONCURRENT = 1
"""Default maximum of concurrently running jobs of a new definition."""

_LONGEST = 200  # characters of a name, as in every store's table
_OWN = ("max_concurrent", "on_busy")
_ON_BUSY = ("queue", "refuse")

OWN = ("args", "name", "owner", "notifications", "max_concurrent", "on_busy")
"""Keywords of a definition other than the options of its jobs."""


class Definitions(TenantApi):
    """The definitions of an app's tenants. Each method uses the current tenant unless another is given."""

    def save(
        self,
        /,
        key: str,
        task: Any = None,
        *,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
        owner: str | None = None,
        notifications: Mapping[str, Any] | None = None,
        version: int | None = None,
        by: str | None = None,
        tenant: str | None = None,
        store: str | None = None,
        **settings: Any,
    ) -> Definition:
        """Create a definition, or save the next version of an existing one. Omitted values stay unchanged.

        With ``version``, save only if that is the current version (0: only if the key is new). ``settings`` are options
        of its jobs and two settings of the definition itself.

        ``max_concurrent`` limits how many of its jobs run at a time. The default for a new definition is 1; 0 means no
        limit.

        ``on_busy`` decides about a job above that limit. ``"queue"`` makes it wait; ``"refuse"``, for
        ``max_concurrent=1``, refuses a second job until the first one has ended.

        ``notifications`` names the channels that receive notifications about its jobs: ``{"failed": ["ops"]}``. ``owner`` is a person
        or team of ``App(owners=…)``, who is notified of permanent failures.

        A new definition is stored where the jobs of its task go, or in ``store``.
        """
        check_key("definition", key)
        whose = self._tenant(tenant)
        place, here = self._place_of(key, task, whose, store), self._client.store_name(None)
        if place != here:
            return Definitions(self._client.at(place)).save(
                key,
                task,
                args=args,
                name=name,
                owner=owner,
                notifications=notifications,
                version=version,
                by=by,
                tenant=tenant,
                **settings,
            )
        stored = self._living(key, whose)
        if version is not None and version != (0 if stored is None else stored.version):
            raise _changed(key, whose, stored)
        base = stored or Definition(id=new_id(), key=key, task=_name(task), tenant=whose)
        if (
            stored is not None
            and task is not None
            and self._client.registry.name_of(stored.task) != _name(task)
        ):
            raise BadSchedule(
                f"task: definition {key!r} is of task {stored.task}; choose another key for {_name(task)}",
                field="task",
            )
        declared = self._client.registry.get(base.task)
        own = {name: settings.pop(name) for name in _OWN if name in settings}
        if stored is None:
            own.setdefault("max_concurrent", DEFAULT_CONCURRENT)
        changes: dict[str, Any] = {"settings": {**base.settings, **_options(settings), **own}}
        _check_own(changes["settings"], declared)
        if args is not None or stored is None:
            changes["args"] = sealed_parameters(
                declared, _unmasked(declared, args or {}, stored), self._client.limits, base.id
            )
        for field, value in (("name", name), ("owner", owner)):
            if value is not None:
                changes[field] = _words(field, value)
        if notifications is not None:
            changes["notifications"] = self._check_notifications(notifications)
        return self._put("saved", stored, replace(base, **changes), by)

    def _check_notifications(self, given: Mapping[str, Any]) -> dict[str, Sequence[str]]:
        try:
            found = read_channels("notifications", given)
        except BadSettings as error:
            raise BadSchedule(error.message, field="notifications") from None
        settings = self._client.delivery
        known = {*settings.channels, *settings.owners}
        unknown = sorted({name for names in found.values() for name in names} - known)
        if unknown:
            raise BadSchedule(
                f"notifications: there is no channel {unknown[0]!r}; App(notify=…) and App(owners=…) have "
                f"{', '.join(sorted(known)) or 'none'}",
                field="notifications",
            )
        return dict(found)

    def _place_of(self, key: str, task: Any, tenant: str, store: str | None) -> str:
        """Return the store of a definition: the given one, the one that has it already, or that of its task."""
        here = self._client.store_name(None)
        if store is not None:
            return self._client.store_name(store)
        if self._client.placement.is_single or task is None or self._living(key, tenant) is not None:
            return here
        return self._client.placement.place(self._client.registry.get(_name(task)), None, tenant)

    def get(self, key: str, *, tenant: str | None = None) -> Definition:
        """Return the definition with that key, or raise ``DefinitionNotFound``. Deleted definitions are not found."""
        whose = self._tenant(tenant)
        definition = self._living(key, whose)
        if definition is None:
            raise DefinitionNotFound(f"tenant {whose} has no definition {key!r}", key=key, tenant=whose)
        return definition

    def parameters(self, key: str, *, tenant: str | None = None) -> Sequence[ParameterRow]:
        """Return the parameters of the definition's task as rows, with the definition's values. Secrets are ``***``."""
        definition = self.get(key, tenant=tenant)
        return parameter_rows(self._client.registry.get(definition.task), definition.args)

    def list(
        self, *, task: Any = None, deleted: bool = False, tenant: str | None = None
    ) -> Sequence[Definition]:
        """Return the definitions that match, sorted by tenant and key; ``tenant="*"`` for all tenants."""
        name = None if task is None else _name(task)
        return self._store.definitions(tenant=self._tenant(tenant), task=name, deleted=deleted)

    def versions(self, key: str, *, tenant: str | None = None) -> Sequence[DefinitionVersion]:
        """Return every version of a definition, oldest first."""
        definition = self.get(key, tenant=tenant)
        return self._store.definition_versions(definition.id, tenant=definition.tenant)

    def enable(self, key: str, *, tenant: str | None = None) -> Definition:
        """Let its schedules fire again, from now on."""
        return self._enable(key, tenant, enabled=True)

    def disable(self, key: str, *, tenant: str | None = None) -> Definition:
        """Stop all of its schedules from firing."""
        return self._enable(key, tenant, enabled=False)

    def _enable(self, key: str, tenant: str | None, *, enabled: bool) -> Definition:
        definition = self.get(key, tenant=tenant)
        with self._store.transaction():
            if self._store.enable_definitions(
                [definition.id], tenant=definition.tenant, enabled=enabled, now=self._pin
            ):
                verb = "enabled" if enabled else "disabled"
                self._noted(
                    verb, replace(definition, enabled=not enabled), replace(definition, enabled=enabled)
                )
        self._tell(["schedules"])
        return self.get(key, tenant=definition.tenant)

    def trigger(
        self,
        key: str,
        *,
        args: Mapping[str, Any] | None = None,
        force: bool = False,
        tenant: str | None = None,
    ) -> Job[Any]:
        """Enqueue a job now, with these arguments merged over the definition's own.

        Raises ``DefinitionDisabled`` if the definition is disabled, and ``DefinitionBusy`` if it refuses a second job
        while one has not ended. ``force`` enqueues the job in both cases, and the audit records it.
        """
        definition = self.get(key, tenant=tenant)
        if not force and (refusal := definition_refusal(definition)) is not None:
            raise refusal
        declared = self._client.registry.get(definition.task)
        merged = {
            **declared.arguments.load(definition.args, definition.id, definition.id),
            **(args or {}),
        }
        id = new_id()
        job = request(
            id,
            definition.task,
            tenant=definition.tenant,
            task_data=task_data_of(self._client, definition.task) or {},
            layers=[definition.settings],
            args=sealed_call(declared, merged, self._client.limits, id),
            run_at=None,
        )
        details = replace(job.details, definition_id=definition.id, definition_version=definition.version)
        values = {**declared.arguments.defaults(), **json.loads(job.args)}
        called = called_names(declared.options, definition.tenant, lambda: values)
        job = limited(job._replace(limits=tuple(sorted({*job.limits, *called})), details=details), definition)
        if force and refuses(definition):
            job = job._replace(unique=None)

        def write(jobs: Sequence[NewJob]) -> list[Enqueued]:
            with self._store.transaction():
                written = insert_new(self._store, jobs, taken_error(definition), self._pin)
                after = {
                    "jobs": [str(job.id)],
                    "version": definition.version,
                    **({"force": True} if force else {}),
                }
                self._note(
                    "definition.triggered", f"definition:{definition.key}", definition.tenant, after=after
                )
            return written

        (made,) = self._client.enqueuer.made("trigger", [job], write)
        return Job(self._client, made)

    def remove(self, key: str, *, tenant: str | None = None) -> None:
        """Delete a definition with its schedules. Its versions are kept, and its key can be reused."""
        definition = self.get(key, tenant=tenant)
        with self._store.transaction():
            if self._store.drop_definitions([definition.id], tenant=definition.tenant, now=self._pin):
                self._noted("removed", definition, None)
                self._limit(definition, None)
        self._tell(["schedules"])

    def restore(
        self, key: str, version: int | None = None, *, by: str | None = None, tenant: str | None = None
    ) -> Definition:
        """Save an old version as the newest one.

        A deleted definition is created again without schedules, from its last version by default.
        """
        whose = self._tenant(tenant)
        living = self._living(key, whose)
        if living is not None and version is None:
            raise BadSchedule(
                f"version: definition {key!r} is not removed; specify the version", field="version"
            )
        definition = living or self._last_deleted(key, whose)
        versions = self._store.definition_versions(definition.id, tenant=whose)
        wanted = versions[-1].definition.version if version is None else version
        old = next((version.definition for version in versions if version.definition.version == wanted), None)
        if old is None:
            raise DefinitionNotFound(f"definition {key!r} has no version {wanted}", key=key, version=wanted)
        content = {
            field: getattr(old, field) for field in ("name", "args", "settings", "notifications", "owner")
        }
        if living is not None:
            return self._put("restored", living, replace(living, **content), by)
        new = Definition(id=new_id(), key=key, task=old.task, tenant=whose, **content)
        declared = self._client.registry.get(old.task)
        if declared.arguments.secrets:
            values = declared.arguments.load(old.args, old.id, old.id)
            new = replace(new, args=sealed_parameters(declared, values, self._client.limits, new.id))
        return self._put("restored", None, new, by)

    # Helpers -----------------------------------------------------------------------------------------------------------

    def _living(self, key: str, tenant: str) -> Definition | None:
        rows = self._store.definitions(tenant=tenant, keys=[key])
        return rows[0] if rows else None

    def _last_deleted(self, key: str, tenant: str) -> Definition:
        rows = self._store.definitions(tenant=tenant, keys=[key], deleted=True)
        if not rows:
            raise DefinitionNotFound(
                f"tenant {tenant} never had a definition {key!r}", key=key, tenant=tenant
            )
        return max(
            rows,
            key=lambda definition: (
                definition.deleted_at is not None and definition.deleted_at.timestamp(),
                definition.id,
            ),
        )

    def _put(self, verb: str, before: Definition | None, after: Definition, by: str | None) -> Definition:
        check_text("by", by)
        with self._store.transaction():
            written = self._store.put_definition(after, by=by or named(), now=self._pin)
            if written is None:
                raise _changed(after.key, after.tenant, self._living(after.key, after.tenant))
            self._noted(verb, before, written)
            changed = self._limit(before, written)
            changed |= self._subscribe(written)
        if changed:
            self._tell(["change"])
        return written

    def _subscribe(self, definition: Definition) -> bool:
        """Record the events of the notifications from now on; return whether that is new."""
        if not definition.notifications:
            return False
        rows = [row for row in self._store.definitions(tenant=ALL_TENANTS) if row.id != definition.id]
        wanted = definition_subscription([*rows, definition])
        if wanted is None:
            return False
        until = self._now() + KEPT
        self._store.put_settings([replace(wanted, until=until).setting()], now=self._pin)
        self._store.settings()
        return True

    def _limit(self, before: Definition | None, after: Definition | None) -> bool:
        """Update the stored limit from the definition's ``max_concurrent``; return whether the value changed."""
        owner = after or before
        assert owner is not None
        was, now = (
            0 if definition is None else definition.settings.get("max_concurrent", 0)
            for definition in (before, after)
        )
        if was == now:
            return False
        name = definition_limit(owner.id)
        if isinstance(now, int) and now:
            self._store.put_rules([Rule(name, LimitKind.CONCURRENCY, now)], now=self._pin)
        elif after is None or not any(rule.name == name and rule.pinned for rule in self._store.rules()):
            drop_rule(self._store, name, None, self._pin)
        return True

    def _noted(self, verb: str, before: Definition | None, after: Definition | None) -> None:
        definition = after or before
        assert definition is not None
        was, now = definition_changes(before, after)
        self._note(f"definition.{verb}", f"definition:{definition.key}", definition.tenant, was, now)

    # Async twins -------------------------------------------------------------------------------------------------------

    asave = async_twin(save)
    aget = async_twin(get)
    aparameters = async_twin(parameters)
    alist = async_twin(list)  # noqa: A003  (the method above)
    aversions = async_twin(versions)
    aenable = async_twin(enable)
    adisable = async_twin(disable)
    atrigger = async_twin(trigger)
    aremove = async_twin(remove)
    arestore = async_twin(restore)


def _unmasked(declared: Declared, args: Mapping[str, Any], stored: Definition | None) -> Mapping[str, Any]:
    """Replace secrets that were left as ``***`` in a form by those of the stored definition."""
    hidden = [name for name in declared.arguments.secrets if args.get(name) == HIDDEN]
    if stored is None or not hidden:
        return args
    values = declared.arguments.load(stored.args, stored.id, stored.id)
    return {**args, **{name: values[name] for name in hidden if name in values}}


def _name(task: Any) -> str:
    if task is None:
        raise BadSchedule("task: a new definition needs a task", field="task")
    return str(getattr(task, "name", task))


def _check_own(settings: Mapping[str, Any], declared: Declared) -> None:
    """Reject settings of the definition itself that are invalid or contradict each other."""
    most, on_busy = settings.get("max_concurrent", 0), settings.get("on_busy", "queue")
    _check_most(most)
    if on_busy not in _ON_BUSY:
        raise BadSchedule(f"on_busy: {on_busy!r} is unknown; choose {' or '.join(_ON_BUSY)}", field="on_busy")
    if on_busy == "refuse" and most != 1:
        raise BadSchedule(
            f"on_busy: 'refuse' is for one job at a time, and max_concurrent is {most}; set it to 1",
            field="on_busy",
        )
    if on_busy == "refuse" and declared.options.unique is not None:
        raise BadSchedule(
            f"on_busy: task {declared.name} has a unique rule of its own, so its definitions cannot refuse; use 'queue'",
            field="on_busy",
        )


def _check_most(given: Any) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise BadSchedule(
            f"max_concurrent: {given!r} is not a number of jobs; give a whole number, 0 for no limit",
            field="max_concurrent",
        )


def _words(field: str, value: Any) -> str:
    if not isinstance(value, str) or text_flaw(value):
        raise BadArguments(f"{field}: {value!r} is not a text that can be stored", field=field)
    if field == "name" and len(value) > _LONGEST:
        raise BadArguments(f"name: it has {len(value)} characters; give at most {_LONGEST}", field=field)
    return value


def _options(given: Mapping[str, Any]) -> dict[str, object]:
    """Check the options of its jobs; the error for an option of schedules names the method that accepts it."""
    for name in given:
        if name in RULES or name in ("jitter", HEARTBEAT):
            raise BadSchedule(
                f"{name}: a definition has none, its schedules do; give it to app.schedules.add(…, {name}=…)",
                field=name,
            )
    return read_job_options(given, OWN)


def _changed(key: str, tenant: str, current: Definition | None) -> DefinitionExists:
    now = "is gone" if current is None else f"has version {current.version}"
    return DefinitionExists(
        f"definition {key!r} of tenant {tenant} {now} in the meantime; reload it and try again",
        key=key,
        tenant=tenant,
    )
