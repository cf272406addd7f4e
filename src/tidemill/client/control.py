"""``app.control``: what operators turn that belongs to no job: pauses, settings, workers, leases. Every turn is audited."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from uuid import UUID

from tidemill.client.acting import HIDDEN, note, plain, who
from tidemill.client.stats import liveness
from tidemill.client.tellers import Teller
from tidemill.domain.bounds import check_attempts, check_text, data_flaw
from tidemill.domain.cluster import Worker
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.ledger import Pause, PauseKind, Setting
from tidemill.errors import BadSettings, LeaseLost, LeaseNotFound, WorkerNotFound
from tidemill.tasks.options import check_name

KNOWN_SETTINGS: dict[str, tuple[type, str]] = {
    "worker_enabled": (bool, "Whether workers claim anything at all."),
    "priority_ageing": (int, "Seconds after which what waits rises by one priority; 0 for never."),
}
"""Settings whose values are checked, and what they are."""

TASK_SETTING = "task/"
"""What the keys of settings begin with that change how one task's jobs are run."""

TENANT_SETTING = "tenant/"
"""What the keys of settings begin with that change how much one tenant gets beside others."""

_LONGEST = 1e9  # seconds

_SECRETIVE = re.compile(r"secret|passw|token|credential|api_?key|private", re.IGNORECASE)


class Control(Teller):
    """The switches of an app's store."""

    # Pauses ------------------------------------------------------------------------------------------------------------

    def pause(self, kind: PauseKind | str, name: str = "", *, reason: str | None = None) -> Pause:
        """Start nothing more of a queue, a task, a tenant, or of ``all``; what runs goes on. The pause that stands then.

        What is paused already keeps its first reason.
        """
        target = _target(kind, name)
        check_text("reason", reason)
        with self._store.transaction():
            new = self._store.pause([Pause(*target, reason, who())], now=self._pin)
            if new:
                self._note(
                    f"{target[0]}.paused", _subject(*target), _whose(*target), None, {"reason": reason}
                )
            standing = new or [each for each in self._store.pauses() if (each.kind, each.name) == target]
        if not standing:
            return self.pause(kind, name, reason=reason)  # the one that stood was ended meanwhile
        self._tell(["change"])
        return standing[0]

    def resume(self, kind: PauseKind | str, name: str = "") -> Pause | None:
        """End a pause; the one that stood, if any."""
        target = _target(kind, name)
        with self._store.transaction():
            ended = self._store.resume([target])
            for pause in ended:
                before = {"reason": pause.reason, "paused_by": pause.paused_by}
                self._note(f"{target[0]}.resumed", _subject(*target), _whose(*target), before, None)
        self._tell(["change"])
        return ended[0] if ended else None

    def pauses(self) -> Sequence[Pause]:
        """All pauses by kind and name."""
        return self._store.pauses()

    # Settings ----------------------------------------------------------------------------------------------------------

    def settings(self) -> Sequence[Setting]:
        """All settings by key."""
        return self._store.settings()

    def set(self, key: str, value: object, *, description: str | None = None) -> Setting:
        """Write a setting, a value that JSON knows, over what was there; a description of None keeps the old one."""
        _check_setting(key, value)
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

    def unset(self, key: str) -> bool:
        """Remove a setting, so that its default holds again; whether it was there."""
        with self._store.transaction():
            old = self._setting(key)
            dropped = self._store.drop_settings([key])
            if dropped and old is not None:
                self._note("setting.removed", f"setting:{key}", ALL_TENANTS, _shown(old), None)
        self._tell(["change"])
        return bool(dropped)

    def _setting(self, key: str) -> Setting | None:
        return next((found for found in self._store.settings() if found.key == key), None)

    # Workers and leases ------------------------------------------------------------------------------------------------

    def drain(self, worker_id: UUID | str) -> bool:
        """Ask a living worker to finish what it holds and claim nothing more; False where it was asked before."""
        worker = self._worker(worker_id)
        with self._store.transaction():
            asked = self._store.drain([worker.id])
            if asked:
                before = {"name": worker.name, "state": worker.state.value}
                after = {"name": worker.name, "state": "draining"}
                self._note("worker.drained", f"worker:{worker.id}", ALL_TENANTS, before, after)
        self._tell(["change"])
        return bool(asked)

    def _worker(self, id: UUID | str) -> Worker:
        now = self._now()
        found = next((each for each in self._store.workers() if str(each.id) == str(id)), None)
        if found is None or liveness(found, now) == "gone":
            raise WorkerNotFound(f"no living worker has the id {str(id)!r}; see tidemill workers list", id=id)
        return found

    def release(self, lease: str) -> bool:
        """Take a lease from its holder, so that another can have it; False where nobody held it."""
        found = next((each for each in self._store.leases() if each.name == lease), None)
        if found is None:
            raise LeaseNotFound(f"there is no lease {lease!r}; see tidemill leases list", name=lease)
        if found.holder is None:
            return False
        with self._store.transaction():
            if not self._store.release(lease, found.holder, found.term):
                raise LeaseLost(
                    f"lease {lease} changed hands meanwhile; look again and try again", name=lease
                )
            before = {"holder": str(found.holder), "term": found.term}
            self._note("lease.released", f"lease:{lease}", ALL_TENANTS, before, None)
        self._tell([lease, "change"])
        return True

    def _note(
        self,
        action: str,
        subject: str,
        tenant: str,
        before: Mapping[str, object] | None,
        after: Mapping[str, object] | None,
    ) -> None:
        note(self._store, action, subject, tenant, before=before, after=after, now=self._pin)

    # Twins -------------------------------------------------------------------------------------------------------------

    async def apause(self, kind: PauseKind | str, name: str = "", *, reason: str | None = None) -> Pause:
        return await self._await(self.pause, kind, name, reason=reason)

    async def aresume(self, kind: PauseKind | str, name: str = "") -> Pause | None:
        return await self._await(self.resume, kind, name)

    async def apauses(self) -> Sequence[Pause]:
        return await self._await(self.pauses)

    async def asettings(self) -> Sequence[Setting]:
        return await self._await(self.settings)

    async def aset(self, key: str, value: object, *, description: str | None = None) -> Setting:
        return await self._await(self.set, key, value, description=description)

    async def aunset(self, key: str) -> bool:
        return await self._await(self.unset, key)

    async def adrain(self, worker_id: UUID | str) -> bool:
        return await self._await(self.drain, worker_id)

    async def arelease(self, lease: str) -> bool:
        return await self._await(self.release, lease)


def _target(kind: PauseKind | str, name: str) -> tuple[PauseKind, str]:
    try:
        known = PauseKind(kind)
    except ValueError:
        raise BadSettings(f"{kind!r} cannot be paused; there are {', '.join(PauseKind)}") from None
    if known is PauseKind.ALL:
        if name:
            raise BadSettings(f"a pause of all has no name, and this is {name!r}; leave it out")
        return known, ""
    check_name(known, name)
    return known, name


def _subject(kind: PauseKind, name: str) -> str:
    return f"{kind}:{name}" if name else kind.value


def _whose(kind: PauseKind, name: str) -> str:
    return name if kind is PauseKind.TENANT else ALL_TENANTS


def _check_setting(key: str, value: object) -> None:
    check_name("setting", key)
    known = KNOWN_SETTINGS.get(key)
    if known is not None and type(value) is not known[0]:
        raise BadSettings(f"setting {key} is {value!r}; give a {known[0].__name__}", setting=key)
    if key.startswith(TASK_SETTING):
        _check_task(key, value)
    if key.startswith(TENANT_SETTING):
        _check_tenant(key, value)
    if flaw := data_flaw(value):
        raise BadSettings(f"setting {key}: {value!r} is no value that JSON knows: {flaw}", setting=key)


def shown_value(setting: Setting) -> object:
    """A setting's value for a screen or the audit; one that sounds secret is not told."""
    return HIDDEN if _SECRETIVE.search(setting.key) else plain(setting.value)


def _check_tenant(key: str, value: object) -> None:
    weight = value.get("weight") if isinstance(value, Mapping) and value.keys() == {"weight"} else None
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight <= _LONGEST:
        raise BadSettings(f'setting {key} is {value!r}; give {{"weight": 2}}, larger than zero', setting=key)


def _check_task(key: str, value: object) -> None:
    """What may be set for a task: a dictionary of ``max_attempts`` and ``timeout`` (in seconds, None for no limit)."""
    if not isinstance(value, Mapping) or not value.keys() <= {"max_attempts", "timeout"}:
        raise BadSettings(
            f"setting {key} is {value!r}; give a dictionary of max_attempts and timeout", setting=key
        )
    attempts, timeout = value.get("max_attempts", 1), value.get("timeout")
    if type(attempts) is not int or attempts < 1:
        raise BadSettings(f"setting {key}: max_attempts is {attempts!r}; one is the least", setting=key)
    check_attempts(f"setting {key}", attempts)
    if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout <= _LONGEST):
        raise BadSettings(
            f"setting {key}: timeout is {timeout!r}; give seconds, longer than zero and {_LONGEST:,.0f} at the most",
            setting=key,
        )


def _same(one: object, other: object) -> bool:
    """As JSON sees it: for Python ``True`` is ``1``."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _shown(setting: Setting) -> dict[str, object]:
    return {"value": shown_value(setting), "description": setting.description}
