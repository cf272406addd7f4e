"""``app.control``: pauses, settings, workers and leases; every change is audited."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from tidemill.client._base import StoreApi, async_twin, in_each_store
from tidemill.client.access import note, plain, who
from tidemill.client.limits import Limits, waiting_lanes
from tidemill.client.stats.api import StatsApi
from tidemill.client.stats.loads import is_living
from tidemill.domain.bounds import check_attempts, check_name, check_text, data_flaw
from tidemill.domain.cluster import Coordination, Lease, Worker, holder_of
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.limits import Rule
from tidemill.domain.masks import HIDDEN, looks_secret, masked
from tidemill.domain.records import Pause, PauseKind, Setting
from tidemill.domain.retention_settings import ENABLED, INTERVAL, OVERRIDES, USE_DEFAULTS, check_overrides
from tidemill.domain.worker_reports import Scale, scaled
from tidemill.errors import BadSettings, LeaseLost, LeaseNotFound, WorkerNotFound
from tidemill.stores.lock_server import leases_and_locks
from tidemill.tasks.options import check_priority

KNOWN_SETTINGS: dict[str, tuple[type, str]] = {
    "worker_enabled": (bool, "Whether workers claim anything at all."),
    "share_groups": (
        bool,
        "Whether tenants whose names are alike up to the first slash share one fair share.",
    ),
    ENABLED: (bool, "Whether workers archive ended jobs by themselves."),
    INTERVAL: (int, "Seconds between two archive runs of the workers."),
    USE_DEFAULTS: (bool, "Whether the default retention policies apply."),
    OVERRIDES: (dict, "Changed fields of retention policies by name: max_age, max_count, batch, comment."),
    "priority_ageing": (int, "Seconds of waiting that raise a job's priority by one; 0 for never."),
}
"""Settings whose values are checked: type and description."""

TASK_SETTING = "task/"
"""Prefix of settings that change how one task's jobs run."""

TENANT_SETTING = "tenant/"
"""Prefix of settings that change one tenant's share."""

TASK_OVERRIDES = ("max_attempts", "timeout", "max_concurrent", "retry_delay")
"""Options of a task that can be overridden at run time."""

TENANT_OVERRIDES = ("weight", "max_priority")
"""Settings of a tenant."""

COUNTED = 10_000
"""Maximum number of pending jobs to count per tenant."""

_LONGEST = 1e9  # seconds


@dataclass(frozen=True, slots=True)
class TenantState:
    """A tenant with its jobs of the last 24 hours and its settings. ``pending`` counts to ``COUNTED``."""

    name: str
    pending: int
    ended: int
    failed: int
    weight: float
    max_priority: int | None
    paused: bool


class Control(StoreApi):
    """Store-wide controls of an app."""

    # Pauses ------------------------------------------------------------------------------------------------------------

    @in_each_store
    def pause(self, kind: PauseKind | str, name: str = "", *, reason: str | None = None) -> Pause:
        """Stop starting jobs of a queue, a task, a tenant, or of ``all``, and return the pause in effect.

        Running jobs continue. An existing pause keeps its first reason.
        """
        target = _target(kind, name)
        check_text("reason", reason)
        with self._store.transaction():
            new = self._store.pause([Pause(*target, reason, who())], now=self._pin)
            if new:
                self._note(
                    f"{target[0]}.paused", _subject(*target), _whose(*target), None, {"reason": reason}
                )
            standing = new or [pause for pause in self._store.pauses() if (pause.kind, pause.name) == target]
        if not standing:
            return self.pause(kind, name, reason=reason)  # the existing pause ended in between
        self._tell(["change"])
        return standing[0]

    @in_each_store
    def resume(self, kind: PauseKind | str, name: str = "") -> Pause | None:
        """End a pause; return the pause that was in effect, if any."""
        target = _target(kind, name)
        with self._store.transaction():
            ended = self._store.resume([target])
            for pause in ended:
                before = {"reason": pause.reason, "paused_by": pause.paused_by}
                self._note(f"{target[0]}.resumed", _subject(*target), _whose(*target), before, None)
        self._tell(["change"])
        return ended[0] if ended else None

    def pauses(self) -> Sequence[Pause]:
        """Return all pauses, sorted by kind and name."""
        return self._store.pauses()

    # Settings ----------------------------------------------------------------------------------------------------------

    def settings(self) -> Sequence[Setting]:
        """Return all settings, sorted by key."""
        return self._store.settings()

    @in_each_store
    def set(self, key: str, value: object, *, description: str | None = None) -> Setting:
        """Set a setting to a JSON value; a description of None keeps the old description."""
        _check_setting(key, value)
        if key == OVERRIDES:
            check_overrides(self._client.retention, value)
        check_text("description", description)
        with self._store.transaction():
            old = self._setting(key)
            if old is not None and _same(old.value, value) and description in (None, old.description):
                return old
            if description is None and old is None and key in KNOWN_SETTINGS:
                description = KNOWN_SETTINGS[key][1]
            self._store.put_settings([Setting(key, value, description, None, who())], now=self._pin)
            new = self._setting(key)
            assert new is not None
            before = None if old is None else _shown(old)
            self._note("setting.changed", f"setting:{key}", ALL_TENANTS, before, _shown(new))
        self._tell(["change"])
        return new

    @in_each_store
    def unset(self, key: str) -> bool:
        """Remove a setting, so that its default applies; return whether it was set."""
        with self._store.transaction():
            old = self._setting(key)
            dropped = self._store.drop_settings([key])
            if dropped and old is not None:
                self._note("setting.removed", f"setting:{key}", ALL_TENANTS, _shown(old), None)
        self._tell(["change"])
        return bool(dropped)

    def _setting(self, key: str) -> Setting | None:
        return next((setting for setting in self._store.settings() if setting.key == key), None)

    # Tenants and tasks -------------------------------------------------------------------------------------------------

    def tenants(self) -> Sequence[TenantState]:
        """Return the tenants that had jobs in the last 24 hours, have pending jobs, are paused or have settings."""
        loads = {row.tenant: row for row in StatsApi(self._client).tenants(tenant=ALL_TENANTS).rows}
        paused = {pause.name for pause in self.pauses() if pause.kind is PauseKind.TENANT}
        chosen = {
            setting.key.removeprefix(TENANT_SETTING): setting.value
            for setting in self.settings()
            if setting.key.startswith(TENANT_SETTING)
        }
        waiting = {lane.tenant for lane in waiting_lanes(self._store)}
        states = []
        for name in sorted({*loads, *paused, *chosen, *waiting}):
            load, value = loads.get(name), chosen.get(name)
            values = value if isinstance(value, Mapping) else {}
            states.append(
                TenantState(
                    name,
                    self._store.depth(tenant=name, most=COUNTED) if name in waiting else 0,
                    0 if load is None else load.jobs,
                    0 if load is None else load.failed,
                    values.get("weight", 1),
                    values.get("max_priority"),
                    name in paused,
                )
            )
        return states

    @in_each_store
    def set_tenant(
        self, name: str, values: Mapping[str, object], unset: Collection[str] = ()
    ) -> Mapping[str, object]:
        """Set the ``weight`` and the ``max_priority`` of a tenant, or remove one; return what is set then.

        Settings that are neither given nor removed keep their values.
        """
        check_name("tenant", name)
        return self._override(TENANT_SETTING + name, values, unset, TENANT_OVERRIDES)

    @in_each_store
    def set_task(
        self, name: str, values: Mapping[str, object], unset: Collection[str] = ()
    ) -> Mapping[str, object]:
        """Override options of a task for all workers, or remove overrides; return what is overridden then.

        The options are ``max_attempts``, ``timeout`` (seconds; None for no limit), ``max_concurrent`` (0 for no
        limit) and ``retry_delay`` (seconds before every further attempt, instead of the retry policy's delays).
        """
        check_name("task", name)
        limits, limit_name = Limits(self._client), f"task/{name}"
        most = values.get("max_concurrent")
        if most is not None and (type(most) is not int or most < 0):
            raise BadSettings(f"max_concurrent is {most!r}; give 0 (no limit) or more", setting=name)
        others = {key: value for key, value in values.items() if key != "max_concurrent"}
        self._override(TASK_SETTING + name, others, unset, TASK_OVERRIDES)
        if most is not None:
            limits.set(limit_name, most)
        elif "max_concurrent" in unset:
            limits.unset(limit_name)
        return self.task_overrides(name)

    def task_overrides(self, name: str) -> Mapping[str, object]:
        """Return the options of a task that were overridden at run time."""
        values = setting_of(name, self.settings())
        rule = limit_of(name, self._store.rules())
        return values if rule is None else {**values, "max_concurrent": rule.max}

    def _override(
        self, key: str, values: Mapping[str, object], unset: Collection[str], options: Sequence[str]
    ) -> Mapping[str, object]:
        for option in (*values, *unset):
            if option not in options:
                raise BadSettings(
                    f"unknown setting {option!r}; expected one of {', '.join(options)}", setting=key
                )
        if both := sorted({*values} & {*unset}):
            raise BadSettings(f"{both[0]} cannot be set and removed at once", setting=key)
        with self._store.transaction():
            old = self._setting(key)
            before = dict(old.value) if old is not None and isinstance(old.value, Mapping) else {}
            after = {name: value for name, value in {**before, **values}.items() if name not in unset}
            if after and after != before:
                self.set(key, after)
            elif not after and old is not None:
                self.unset(key)
        return after

    # Workers and leases ------------------------------------------------------------------------------------------------

    def drain(self, worker_id: UUID | str) -> bool:
        """Ask a living worker to finish its jobs and claim no more; return False if it was already asked."""
        if (there := self._where(worker_id)) is not None:
            return there.drain(worker_id)
        worker = self._worker(worker_id)
        with self._store.transaction():
            asked = self._store.drain([worker.id])
            if asked:
                before = {"name": worker.name, "state": worker.state.value}
                after = {"name": worker.name, "state": "draining"}
                self._note("worker.drained", f"worker:{worker.id}", ALL_TENANTS, before, after)
        self._tell(["change"])
        return bool(asked)

    def pause_worker(self, worker_id: UUID | str) -> bool:
        """Ask a living worker to claim nothing until it is resumed; return False if it was already asked.

        Its running jobs continue. A runner that replaces it is paused as well.
        """
        if (there := self._where(worker_id)) is not None:
            return there.pause_worker(worker_id)
        worker = self._addressed(worker_id)
        with self._store.transaction():
            asked = self._store.pause_workers([worker.id])
            if asked:
                self._note_worker("worker.paused", worker, {"paused": False}, {"paused": True})
        self._tell(["change"])
        return bool(asked)

    def resume_worker(self, worker_id: UUID | str) -> bool:
        """Let a paused worker claim jobs again; return False if it was not paused."""
        if (there := self._where(worker_id)) is not None:
            return there.resume_worker(worker_id)
        worker = self._addressed(worker_id)
        with self._store.transaction():
            asked = self._store.resume_workers([worker.id])
            if asked:
                self._note_worker("worker.resumed", worker, {"paused": True}, {"paused": False})
        self._tell(["change"])
        return bool(asked)

    def scale_worker(
        self,
        worker_id: UUID | str,
        *,
        processes: int | None = None,
        concurrency: int | None = None,
        threads: int | None = None,
        children: int | None = None,
    ) -> Scale:
        """Change the number of runner processes of a worker's supervisor, and the slots of each runner; return all numbers.

        Numbers that are not given stay. Surplus runners finish their jobs and exit. A worker inside another program has
        slots only. A supervisor that is restarted begins with the numbers of its command line.
        """
        wanted = {
            "processes": processes, "concurrency": concurrency, "threads": threads, "children": children,
        }  # fmt: skip
        if (there := self._where(worker_id)) is not None:
            return there.scale_worker(worker_id, **wanted)
        worker = self._addressed(worker_id)
        if worker.report is None:
            raise BadSettings(
                f"{worker.name} has not reported its numbers yet; try again after its next heartbeat",
                setting="processes",
            )
        before, after = scaled(worker.report, {}), scaled(worker.report, wanted)
        if before == after:
            return after
        assert worker.supervisor is not None
        with self._store.transaction():
            if not self._store.scale(worker.supervisor, after):
                raise WorkerNotFound(f"{worker.name} has stopped", id=worker.id)
            self._note_worker("worker.scaled", worker, _numbers(before), _numbers(after))
        self._tell(["change"])
        return after

    def _where(self, worker_id: UUID | str) -> Control | None:
        """Return the control of the store that has this worker, where calls address several stores."""
        for client in self._client.each_store():
            if any(str(worker.id) == str(worker_id) for worker in client.store(None).workers()):
                return Control(client)
        return None

    def _addressed(self, id: UUID | str) -> Worker:
        worker = self._worker(id)
        if worker.supervisor is None:
            raise BadSettings(
                f"{worker.name} runs a version that cannot be paused or scaled; upgrade it, or drain it",
                id=id,
            )
        return worker

    def _note_worker(
        self, action: str, worker: Worker, before: Mapping[str, object], after: Mapping[str, object]
    ) -> None:
        name = {"name": worker.name}
        self._note(action, f"worker:{worker.id}", ALL_TENANTS, {**name, **before}, {**name, **after})

    def _worker(self, id: UUID | str) -> Worker:
        now = self._now()
        match = next((worker for worker in self._store.workers() if str(worker.id) == str(id)), None)
        if match is None or not is_living(match, now):
            raise WorkerNotFound(f"no living worker has the id {str(id)!r}; see tidemill workers list", id=id)
        return match

    def release(self, lease: str) -> bool:
        """Release a lease from its holder, so that another process can acquire it; return False if it was not held."""
        for client in self._client.each_store():
            if any(
                row.name == lease and row.holder is not None for row in leases_and_locks(client.store(None))
            ):
                return Control(client).release(lease)
        held = next((row for row in leases_and_locks(self._store) if row.name == lease), None)
        if held is None:
            raise LeaseNotFound(f"there is no lease {lease!r}; see tidemill leases list", name=lease)
        if held.holder is None:
            return False
        if held.kind == Coordination.REDIS:
            return self._drop_lock(held)
        with self._store.transaction():
            if not self._store.release(lease, held.holder, held.term):
                raise LeaseLost(
                    f"lease {lease} has changed hands; check its holder and try again", name=lease
                )
            self._note_release(held)
        self._tell([lease, "change"])
        return True

    def _drop_lock(self, lock: Lease) -> bool:
        """Take a lock of the lock server from its owner. The audit entry comes first, because the two cannot commit together."""
        server = self._store.locks()
        assert server is not None
        self._note_release(lock)
        dropped = server.drop(lock.name)
        self._tell(["schedules", "change"])
        return dropped

    def _note_release(self, held: Lease) -> None:
        holder = holder_of(held, self._store.workers())
        before = {
            "holder": str(held.holder),
            "holder_name": None if holder is None else holder.name,
            "term": held.term,
        }
        self._note("lease.released", f"lease:{held.name}", ALL_TENANTS, before, None)

    def _note(
        self,
        action: str,
        subject: str,
        tenant: str,
        before: Mapping[str, object] | None,
        after: Mapping[str, object] | None,
    ) -> None:
        note(self._store, action, subject, tenant, before=before, after=after, now=self._pin)

    @in_each_store
    def set_all(self, values: Mapping[str, object]) -> None:
        """Set all of these settings or none; None removes one."""
        with self._store.transaction():
            for key, value in values.items():
                if value is None:
                    self.unset(key)
                else:
                    self.set(key, value)

    # Async twins -------------------------------------------------------------------------------------------------------

    apause = async_twin(pause)
    aresume = async_twin(resume)
    apauses = async_twin(pauses)
    asettings = async_twin(settings)
    aset = async_twin(set)  # noqa: A003  (the method above)
    aunset = async_twin(unset)
    adrain = async_twin(drain)
    apause_worker = async_twin(pause_worker)
    aresume_worker = async_twin(resume_worker)
    ascale_worker = async_twin(scale_worker)
    arelease = async_twin(release)
    aset_all = async_twin(set_all)
    atenants = async_twin(tenants)
    aset_tenant = async_twin(set_tenant)
    aset_task = async_twin(set_task)
    atask_overrides = async_twin(task_overrides)


def _target(kind: PauseKind | str, name: str) -> tuple[PauseKind, str]:
    try:
        target = PauseKind(kind)
    except ValueError:
        raise BadSettings(f"{kind!r} cannot be paused; there are {', '.join(PauseKind)}") from None
    if target is PauseKind.ALL:
        if name:
            raise BadSettings(f"a pause of all has no name, and this is {name!r}; leave it out")
        return target, ""
    check_name(target, name)
    return target, name


def _numbers(scale: Scale) -> dict[str, object]:
    return {"processes": scale.processes, **scale.slots._asdict()}


def _subject(kind: PauseKind, name: str) -> str:
    return f"{kind}:{name}" if name else kind.value


def _whose(kind: PauseKind, name: str) -> str:
    return name if kind is PauseKind.TENANT else ALL_TENANTS


def _check_setting(key: str, value: object) -> None:
    check_name("setting", key)
    definition = KNOWN_SETTINGS.get(key)
    if definition is not None and type(value) is not definition[0]:
        raise BadSettings(f"setting {key} is {value!r}; give a {definition[0].__name__}", setting=key)
    if key == INTERVAL and isinstance(value, int) and value < 1:
        raise BadSettings(f"setting {key} is {value!r}; give 1 second or more", setting=key)
    if key.startswith(TASK_SETTING):
        _check_task(key, value)
    if key.startswith(TENANT_SETTING):
        _check_tenant(key, value)
    if flaw := data_flaw(value):
        raise BadSettings(f"setting {key}: {value!r} is not a JSON value: {flaw}", setting=key)


def shown_value(setting: Setting) -> object:
    """Return a setting's value for display or audit; the value is masked if the key sounds secret."""
    return HIDDEN if looks_secret(setting.key) else masked(plain(setting.value))


def _check_tenant(key: str, value: object) -> None:
    wrong = f'setting {key} is {value!r}; give {{"weight": 2, "max_priority": 0}}, or one of them'
    if not isinstance(value, Mapping) or not value or value.keys() - {"weight", "max_priority"}:
        raise BadSettings(wrong, setting=key)
    weight = value.get("weight", 1)
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight <= _LONGEST:
        raise BadSettings(f"{wrong}; the weight is a number larger than zero", setting=key)
    if "max_priority" in value:
        check_priority(cast(int, value["max_priority"]))


def _check_task(key: str, value: object) -> None:
    """Check a task setting: ``max_attempts``, ``timeout`` (seconds, None for no limit) and ``retry_delay`` (seconds)."""
    if not isinstance(value, Mapping) or not value.keys() <= {"max_attempts", "timeout", "retry_delay"}:
        raise BadSettings(
            f"setting {key} is {value!r}; give a dictionary of max_attempts, timeout and retry_delay",
            setting=key,
        )
    attempts = value.get("max_attempts", 1)
    if type(attempts) is not int or attempts < 1:
        raise BadSettings(f"setting {key}: max_attempts is {attempts!r}; one is the least", setting=key)
    check_attempts(f"setting {key}", attempts)
    for name in ("timeout", "retry_delay"):
        span = value.get(name, 1)
        if span is None and name == "timeout":
            continue
        if type(span) not in (int, float) or not 0 < span <= _LONGEST:
            raise BadSettings(
                f"setting {key}: {name} is {span!r}; give seconds, longer than zero and {_LONGEST:,.0f} at the most",
                setting=key,
            )


def _same(one: object, other: object) -> bool:
    """Compare values as JSON, because Python considers ``True`` and ``1`` equal."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _shown(setting: Setting) -> dict[str, object]:
    return {"value": shown_value(setting), "description": setting.description}


def setting_of(task: str, settings: Iterable[Setting]) -> Mapping[str, Any]:
    """Return the ``max_attempts`` and ``timeout`` that are set for a task, without its limit."""
    value = next((setting.value for setting in settings if setting.key == TASK_SETTING + task), None)
    return value if isinstance(value, Mapping) else {}


def limit_of(task: str, rules: Iterable[Rule]) -> Rule | None:
    """Return the limit that was set for a task at run time, ignoring the limit in the code."""
    return next((rule for rule in rules if rule.name == f"task/{task}" and rule.pinned), None)
