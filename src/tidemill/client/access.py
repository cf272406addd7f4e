"""Identity, API keys and the audit log: ``app.keys`` and ``app.audit``."""

from __future__ import annotations

import getpass
import os
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from tidemill.client._base import StoreApi, async_twin
from tidemill.domain.access import (
    ID_BYTES,
    SECRET_BYTES,
    Identity,
    Key,
    Role,
    identify,
    identity_of,
    key_id,
    read_secret,
    secret_hash,
    secret_text,
)
from tidemill.domain.audit_export import LEAST_KEY, CheckedExport, checked_export, export_line, signature_line
from tidemill.domain.bounds import check_name
from tidemill.domain.durations import Duration, read_when
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Enqueued, NewJob
from tidemill.domain.masks import HIDDEN
from tidemill.domain.permissions import Access, Grant, read_grants
from tidemill.domain.records import GENESIS, AuditEntry, AuditRecord, first_break
from tidemill.errors import BadSettings, KeyNotFound, StoreCorrupt
from tidemill.stores.base import Store
from tidemill.stores.standby_reads import WRITERS
from tidemill.tasks.ambient import JOB, STORE, current_tenant, tenant_scope
from tidemill.tasks.options import check_priority

if TYPE_CHECKING:
    from tidemill.client.core import Client

P = ParamSpec("P")
R = TypeVar("R")
AuditData = Mapping[str, object]

NAMED = 100
"""Maximum number of ids listed in an entry about many objects."""

_who: ContextVar[str | None] = ContextVar("tidemill_who", default=None)


@contextmanager
def acting(who: str) -> Iterator[None]:
    """Attribute all actions in the block to this person or program in the audit."""
    if not who or len(who) > 400 or not who.isprintable():
        raise BadSettings(f"{who!r} is not a valid actor; give 1 to 400 printable characters")
    token = _who.set(who)
    try:
        yield
    finally:
        _who.reset(token)


def named() -> str | None:
    """Return the identity of the enclosing ``acting`` block; None outside of one."""
    return _who.get()


def who() -> str:
    """Return the acting identity, by default the user of the operating system.

    >>> with acting("ann"):
    ...     who()
    'ann'
    """
    return _who.get() or f"python:{os_user()}"


def os_user() -> str:
    """Return the operating system user that runs this program."""
    for name in ("USER", "USERNAME", "LOGNAME"):
        if user := os.environ.get(name, "").strip():
            return user if user.isprintable() else "unknown"
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user id without a name, as in containers
        return "unknown"


def carried(act: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function for another thread, so that it runs there with the caller's identity, tenant, store and job."""
    by, tenant, scope, job = _who.get(), current_tenant(), STORE.get(), JOB.get()
    if by is None and tenant is None and scope is None and job is None:
        return act

    def there(*args: P.args, **kwargs: P.kwargs) -> R:
        with ExitStack() as around:
            if by is not None:
                around.enter_context(acting(by))
            # The job first: a scope belongs to the job in which it is opened.
            around.callback(JOB.reset, JOB.set(job))
            if tenant is not None:
                around.enter_context(tenant_scope(tenant))
            around.callback(STORE.reset, STORE.set(scope))
            return act(*args, **kwargs)

    return there


def note(
    store: Store,
    action: str,
    subject: str,
    tenant: str,
    *,
    before: AuditData | None = None,
    after: AuditData | None = None,
    by: str | None = None,
    now: datetime | None = None,
) -> None:
    """Add one audit record, in the open transaction."""
    WRITERS.add(by or who())
    store.record([AuditEntry(by or who(), action, subject, tenant, before, after)], now=now)


class TenantApi(StoreApi):
    """Base class of client APIs whose methods take a tenant."""

    def _tenant(self, given: str | None) -> str:
        return given or current_tenant() or self._client.tenant

    def _note(
        self,
        action: str,
        subject: str,
        tenant: str,
        before: Mapping[str, object] | None = None,
        after: Mapping[str, object] | None = None,
    ) -> None:
        """Add an audit record, in the transaction of the action itself."""
        note(self._store, action, subject, tenant, before=before, after=after, now=self._pin)


def difference(
    before: AuditData | None, after: AuditData | None, hidden: Sequence[str] = ()
) -> tuple[AuditData | None, AuditData | None]:
    """Return the changed values before and after an action: the same names with old and new values.

    >>> difference({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5, "c": 4}, hidden=["c"])
    ({'b': 2, 'c': '***'}, {'b': 5, 'c': '***'})
    """
    old, new = before or {}, after or {}
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]

    def side(data: AuditData | None) -> AuditData | None:
        if data is None:
            return None
        return {
            name: HIDDEN if name in hidden and data.get(name) is not None else data.get(name)
            for name in names
        }

    return side(before), side(after)


def plain(value: object) -> object:
    """Convert a value of a filter or a setting to plain JSON data."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return str(value)
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case set() | frozenset():
            return sorted(str(item) for item in value)
        case datetime():
            return value.isoformat()
        case _:
            return str(getattr(value, "name", value))


def enqueued_entries(jobs: Sequence[NewJob], written: Sequence[Enqueued], by: str) -> list[AuditEntry]:
    """Return the audit entries of enqueued jobs; jobs that were not created are left out."""
    made = [job for job, answer in zip(jobs, written, strict=True) if answer.created]
    if not made:
        return []
    first = made[0]
    data: dict[str, object] = {"task": first.task, "queue": first.queue, "priority": first.priority}
    if len(made) == 1:
        return [AuditEntry(by, "job.enqueued", f"job:{first.id}", first.tenant, None, data)]
    data |= {"done": len(made), "ids": [str(job.id) for job in made[:NAMED]]}
    return [AuditEntry(by, "jobs.enqueued", "jobs", first.tenant, None, data)]


BATCH = 1_000


class Verified(NamedTuple):
    """Result of a verification: the number of intact entries, and the number of the first broken one.

    ``head`` is the hash of the last intact entry. A copy kept elsewhere is the chain's anchor: ``verify(expect_head=…)`` later
    shows whether entries were cut off or the whole chain was replaced. ``has_expected_head`` is None without it.
    """

    ok: bool
    entries: int
    broken_at: int | None
    head: str = GENESIS
    has_expected_head: bool | None = None


class Audit(TenantApi):
    """The audit log of an app's store.

    Each method uses the current tenant unless it is called with another tenant, or with ``"*"`` for all tenants.
    """

    def list(
        self,
        *,
        tenant: str | None = None,
        after: int = 0,
        before: int | None = None,
        who: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        newest: bool = False,
        limit: int = 100,
    ) -> Sequence[AuditRecord]:
        """Return entries by number, or ``newest`` first; continue from the last number with ``after`` or ``before``."""
        return self._store.audit(
            tenant=self._tenant(tenant),
            after=after,
            before=before,
            who=who,
            action=action,
            subject=subject,
            newest=newest,
            limit=limit,
        )

    def verify(self, expect_head: str | None = None) -> Verified:
        """Verify the whole chain, of all tenants, and return where it breaks.

        With ``expect_head``, the ``head`` of an earlier verification, the chain must also contain that entry.
        """
        number, head = 0, GENESIS
        if expect_head is not None and re.fullmatch(r"[0-9a-f]{64}", expect_head) is None:
            raise BadSettings(
                f"{expect_head!r} is not a hash of an audit entry; give the 64 digits that an earlier verification printed",
                option="expect_head",
            )
        is_seen = None if expect_head is None else expect_head == GENESIS
        while True:
            page: Sequence[AuditRecord]
            try:
                page = self._store.audit(tenant=ALL_TENANTS, after=number, limit=BATCH)
                broken = first_break(page, head, number)
            except (ValueError, OverflowError):  # the entry was tampered with so that it cannot be parsed
                page = self._readable(number)
                broken = first_break(page, head, number) or number + len(page) + 1
            intact = page if broken is None else page[: broken - number - 1]
            if intact:
                number, head = intact[-1].number, intact[-1].hash
                is_seen = is_seen or (None if is_seen is None else any(r.hash == expect_head for r in intact))
            if broken is not None:
                return Verified(False, number, broken, head, is_seen)
            if not page:
                return Verified(is_seen is not False, number, None, head, is_seen)

    def export(self, key: str | None = None) -> Sequence[str]:
        """Return the whole log, of all tenants, as lines of JSON with a signature in the last one.

        The key is ``TIDEMILL_AUDIT_KEY`` of the environment unless it is given. ``check_export`` checks the lines later.
        """
        secret = audit_key(key)
        lines: list[str] = []
        head = GENESIS
        while page := self._store.audit(tenant=ALL_TENANTS, after=len(lines), limit=BATCH):
            if (broken := first_break(page, head, len(lines))) is not None:
                raise StoreCorrupt(
                    f"audit entry {broken} was changed, removed or inserted; run tidemill audit verify"
                )
            lines += map(export_line, page)
            head = page[-1].hash
        return [*lines, signature_line(secret, len(lines), head, self._client.clock.now())]

    def check_export(self, lines: Iterable[str], key: str | None = None) -> CheckedExport:
        """Check lines of an export: the chain of their entries, and the signature. It reads no store."""
        return checked_export(lines, audit_key(key))

    def _readable(self, after: int) -> Sequence[AuditRecord]:
        """Return the entries from there on, up to the first that cannot be parsed."""
        records: list[AuditRecord] = []
        try:
            while page := self._store.audit(tenant=ALL_TENANTS, after=after + len(records), limit=1):
                records += page
        except (ValueError, OverflowError):
            pass
        return records

    # Async twins -------------------------------------------------------------------------------------------------------

    alist = async_twin(list)  # noqa: A003  (the method above)
    averify = async_twin(verify)
    aexport = async_twin(export)
    acheck_export = async_twin(check_export)


AUDIT_KEY = "TIDEMILL_AUDIT_KEY"
"""Environment variable with the key that signs exports of the audit log."""


def audit_key(given: str | None = None) -> str:
    """Return the key that signs exports, or raise ``BadSettings``."""
    key = os.environ.get(AUDIT_KEY, "") if given is None else given
    if len(key) < LEAST_KEY:
        raise BadSettings(
            f"the key that signs the audit log has {len(key)} characters; set {AUDIT_KEY} to {LEAST_KEY} random ones or more",
            setting=AUDIT_KEY,
        )
    return key


FRESH = 5.0
"""Seconds for which a lookup is cached."""

CACHE_SIZE = 1_000
"""Maximum number of cached keys, and of cached unknown ids."""

_ATTEMPTS = 20


def client_of_keys(client: Client) -> Client:
    """Return the client of the default store: keys and sessions belong to the whole app, whatever store a job chooses."""
    placement = client.placement
    return client if placement.is_single else client.at(placement.default)


class NewKey(NamedTuple):
    """A new key and its secret, which cannot be shown again."""

    key: Key
    secret: str


class Keys(StoreApi):
    """The keys of an app's store."""

    def __init__(self, client: Client, dice: Callable[[int], bytes] = secrets.token_bytes) -> None:
        super().__init__(client)
        self._dice = dice
        self._lock = threading.Lock()
        # Separate caches, so that an attacker who tries many ids cannot evict real keys.
        self._keys_by_id: OrderedDict[str, tuple[Key, float]] = OrderedDict()
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self._any: tuple[bool, float] | None = None

    def create(
        self,
        name: str,
        *,
        role: Role | str = Role.VIEWER,
        tenant: str | None = None,
        expires: datetime | Duration | None = None,
        max_priority: int | None = None,
        grants: Sequence[Grant | str] = (),
        roles: Mapping[str, Role | str] | None = None,
        environment: str | None = None,
    ) -> NewKey:
        """Create a key for one tenant, or for all tenants; only this result contains the secret.

        Jobs that are enqueued with the key over HTTP or in the dashboard may not have a priority above
        ``max_priority``. ``grants`` restrict the role to some acts, tasks, queues or definitions. ``roles`` gives a role in each
        of several tenants, instead of ``role`` and ``tenant``. A key with an ``environment`` is refused by apps of other
        environments.
        """
        if max_priority is not None:
            check_priority(max_priority)
        check_name("key", name)
        if tenant not in (None, ALL_TENANTS):
            check_name("tenant", tenant)
        access = read_access(grants, roles, environment)
        if access.roles:
            if tenant is not None:
                raise BadSettings("roles already names the tenants; omit tenant", option="tenant")
            tenant, role = access.roles[0]
        wanted = Key(
            "",
            name,
            _role(role),
            tenant or ALL_TENANTS,
            created_by=who(),
            expires_at=self._expiry(expires),
            max_priority=max_priority,
            access=access,
        )
        for _ in range(_ATTEMPTS):
            id = key_id(self._dice(ID_BYTES))
            text = secret_text(id, self._dice(SECRET_BYTES))
            parts = read_secret(text)
            assert parts is not None
            key = replace(wanted, id=id, hash=secret_hash(parts.secret))
            with self._store.transaction():
                if self._store.put_keys([key], now=self._pin):
                    continue  # the id is taken
                self._note("created", key, None, _data(key))
            self._forget(id)
            self._tell(["change"])
            (stored,) = self._store.keys([id])
            return NewKey(stored, text)
        raise BadSettings(
            f"no free id for a key was found in {_ATTEMPTS} attempts; the random source is broken"
        )

    def list(self) -> Sequence[Key]:
        """Return all keys in order of creation, including revoked and expired ones."""
        return self._store.keys()

    def get(self, id: str) -> Key:
        """Return the key with that id, or raise ``KeyNotFound``."""
        keys = self._store.keys([id])
        if not keys:
            raise KeyNotFound(f"there is no key {id!r}; see tidemill keys list", id=id)
        return keys[0]

    def revoke(self, id: str) -> Key:
        """Revoke a key: immediately in this process, within five seconds in others. Return the stored key."""
        key = self.get(id)
        with self._store.transaction():
            if self._store.revoke_keys([id], now=self._pin):
                self._note("revoked", key, {"revoked": False}, {"revoked": True})
        self._forget(id)
        self._tell(["change"])
        return self.get(id)

    def identify(self, text: str) -> Identity | None:
        """Return the identity that this secret belongs to; None if it is not valid, for any reason."""
        parts = read_secret(text)
        key = None if parts is None else self._remembered(parts.id)
        return identify(key, text, self._client.clock.now())

    def identity(self, id: str) -> Identity | None:
        """Return the identity of a key that was presented before, by its id; None if the key is not valid now."""
        key = self._remembered(id)
        return None if key is None or not key.lives(self._client.clock.now()) else identity_of(key)

    def any(self) -> bool:
        """Whether there is a valid key."""
        at = self._client.clock.monotonic()
        with self._lock:
            cached = self._any
        if cached is not None and at - cached[1] < FRESH:
            return cached[0]
        now = self._client.clock.now()
        keys = self._store.keys()
        has_keys = any(key.lives(now) for key in keys)
        with self._lock:
            self._any = (has_keys, at)
        return has_keys

    # Cache -------------------------------------------------------------------------------------------------------------

    def _remembered(self, id: str) -> Key | None:
        """Return the key with this id, at most ``FRESH`` seconds old."""
        is_cached, key = self._cached(id)
        if is_cached:
            return key
        at = self._client.clock.monotonic()
        keys = self._store.keys([id])
        with self._lock:  # timestamped before the read, because the result may be that old
            self._keys_by_id.pop(id, None)
            self._unknown.pop(id, None)
            if keys:
                self._keys_by_id[id] = (keys[0], at)
            else:
                self._unknown[id] = at
            for memory in (self._keys_by_id, self._unknown):
                while len(memory) > CACHE_SIZE:
                    memory.popitem(last=False)
        return keys[0] if keys else None

    def _cached(self, id: str) -> tuple[bool, Key | None]:
        """Return whether the cache has an answer for this id, and the key; None if there is no such key."""
        at = self._client.clock.monotonic()
        with self._lock:
            cached, missing = self._keys_by_id.get(id), self._unknown.get(id)
        if cached is not None and at - cached[1] < FRESH:
            return True, cached[0]
        return missing is not None and at - missing < FRESH, None

    def _forget(self, id: str) -> None:
        with self._lock:
            self._keys_by_id.pop(id, None)
            self._unknown.pop(id, None)
            self._any = None

    # Helpers -----------------------------------------------------------------------------------------------------------

    def _expiry(self, expires: object) -> datetime | None:
        when = read_when("expires", expires)
        if when is None:
            return None
        now = self._client.clock.now()
        at = now + when if isinstance(when, timedelta) else when
        if at <= now:
            raise BadSettings(f"expires is {at.isoformat()}, which has passed", option="expires")
        return at

    def _note(
        self, verb: str, key: Key, before: dict[str, object] | None, after: dict[str, object] | None
    ) -> None:
        subject, pin = f"key:{key.id}", self._pin
        note(self._store, f"key.{verb}", subject, key.tenant, before=before, after=after, now=pin)

    # Async twins -------------------------------------------------------------------------------------------------------

    acreate = async_twin(create)
    alist = async_twin(list)  # noqa: A003  (the method above)
    aget = async_twin(get)
    arevoke = async_twin(revoke)

    async def aidentify(self, text: str) -> Identity | None:
        """Async version of ``identify``; a key that is still cached is identified without a thread."""
        parts = read_secret(text)
        is_cached, key = (True, None) if parts is None else self._cached(parts.id)
        if is_cached:
            return identify(key, text, self._client.clock.now())
        identity: Identity | None = await self._client.in_thread(self.identify, text)
        return identity

    aidentity = async_twin(identity)
    aany = async_twin(any)  # noqa: A003  (the method above)


def _role(given: Role | str) -> Role:
    try:
        return Role(given)
    except ValueError:
        raise BadSettings(f"there is no role {given!r}; there are {', '.join(Role)}", option="role") from None


def read_access(
    grants: Sequence[Grant | str], roles: Mapping[str, Role | str] | None, environment: str | None
) -> Access:
    """Return validated permissions beyond one role and one tenant."""
    for tenant in roles or ():
        check_name("tenant", tenant)
    if environment is not None:
        check_name("environment", environment)
    return Access(
        read_grants(grants),
        tuple((tenant, _role(role)) for tenant, role in (roles or {}).items()),
        environment,
    )


def _data(key: Key) -> dict[str, object]:
    data: dict[str, object] = {
        "name": key.name,
        "role": key.role.value,
        "tenant": key.tenant,
        "expires_at": None if key.expires_at is None else key.expires_at.isoformat(),
    }
    if key.max_priority is not None:
        data["max_priority"] = key.max_priority
    return data | key.access.data()
