"""Recorder of API responses that detects data shown to another tenant.

The data of a tenant comes from the store at the end of a test and from the responses to that tenant, so that deleted
objects count too. The check is independent of routes: it covers every recorded response.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tidemill import App
from tidemill.client.core import client_of
from tidemill.client.documents import job_document
from tidemill.domain.access import Key, read_secret, secret_hash
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.rest.api import _document

SHORTEST = 4
"""Shorter texts are too common to identify a tenant."""

LONG = 12
"""Texts of this length are matched anywhere; shorter ones only as a whole JSON string."""

MOST = 1_000

_NAMED = re.compile(r'"(?:id|secret)":\s*"([^"]{8,})"')
Tenants = frozenset[str]
_NOBODY: Tenants = frozenset()
_JOB = (
    "id", "value", "output", "correlation_id", "parent_id", "reference", "tags", "metadata", "unique_key",
    "cancel_reason",
)  # fmt: skip


class Heard(NamedTuple):
    """One exchange: the authorization header, the request, and the response with its headers."""

    authorization: str | None
    asked: str
    told: str


class Leak(NamedTuple):
    """A text of ``owner`` that a response showed to ``reader``."""

    reader: str
    owner: str
    sign: str
    heard: Heard

    def __str__(self) -> str:
        at = self.heard.told.find(self.sign)
        said = self.heard.told[max(at - 80, 0) : at + 80]
        return f"{self.reader} asked {self.heard.asked.splitlines()[0]!r} and was told {self.sign!r} of {self.owner}: …{said}…"


class Witness:
    """Records the responses of one app's API."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._heard: list[Heard] = []

    def __len__(self) -> int:
        return len(self._heard)

    def hear(self, authorization: str | None, asked: str, told: str) -> None:
        """Record a response."""
        with self._lock:
            self._heard.append(Heard(authorization, asked, told))

    def check(self) -> None:
        """Fail if a response contains data of another tenant."""
        found = [str(leak) for leak in self.leaks()]
        assert found == [], "\n".join(found[:10])

    def leaks(self) -> Iterator[Leak]:
        """Yield every text that a response showed to the wrong tenant."""
        keys = {key.id: key for key in self._keys()}
        answers: dict[Tenants, list[Heard]] = {}
        for heard in self._heard:
            reader = self._reader(heard, keys)
            if ALL_TENANTS not in reader:
                answers.setdefault(reader, []).append(heard)
        owners = {job.tenant for job in self._jobs(ALL_TENANTS)}
        owners = owners.union(*map(_tenants, keys.values()), *answers) - {ALL_TENANTS}
        if len(owners) + (_NOBODY in answers) < 2:
            return
        # An id in an answer to a reader of several tenants may belong to each of them.
        own = {owner: self._own(owner, answers.get(frozenset({owner}), ())) for owner in owners}
        for reader, listed in answers.items():
            readable = set[str]().union(*(own[tenant] for tenant in reader))
            for owner in owners - reader:
                yield from _found(", ".join(sorted(reader)), owner, own[owner] - readable, listed)

    def _reader(self, heard: Heard, keys: Mapping[str, Key]) -> Tenants:
        """The tenants of the key; the app's own tenant without a key, and ``_NOBODY`` for a wrong key."""
        if heard.authorization is None:
            return frozenset({client_of(self._app).tenant})
        text = heard.authorization.partition(" ")[2].strip()
        parts = read_secret(text)
        key = None if parts is None else keys.get(parts.id)
        if parts is None or key is None or secret_hash(parts.secret) != key.hash:
            return _NOBODY
        return _tenants(key)

    # Ownership
    # --------------------------------------------------------------------------------------------------------

    def _own(self, tenant: str, answers: Iterable[Heard]) -> set[str]:
        """Every text that belongs to this tenant alone: no task or queue names, and nothing from the OpenAPI
        document."""
        texts = {tenant} if len(tenant) >= LONG else set()
        for heard in answers:
            texts.update(_NAMED.findall(heard.told))
        texts.update(self._stored(tenant))
        registry = self._app.registry
        common = set(registry.names()) | {registry.get(name).options.queue for name in registry.names()}
        public = json.dumps(_document(""))
        return {
            text
            for text in texts
            if len(text) >= SHORTEST and text not in common and json.dumps(text) not in public
        }

    def _stored(self, tenant: str) -> Iterator[str]:
        store, now = self._app.store, self._app.clock.now()
        for job in self._jobs(tenant):
            document = job_document(job, now)
            for name in _JOB:
                yield from _texts(document[name])
            args = document["args"]
            # The task defines the argument names, so only the values belong to the tenant.
            yield from _texts(list(args.values()) if isinstance(args, Mapping) else args)
            if job.error is not None:
                yield job.error.message
            for _, line in store.logs(job.id, tenant=tenant):
                yield from _texts([line.message, line.details])
        for archived in store.search_archive(JobFilter(tenant), limit=MOST).items:
            yield str(archived.id)
            yield from _texts([archived.correlation_id])
        for schedule in store.schedules(tenant=tenant):
            yield from (str(schedule.id), schedule.key)
        for definition in store.definitions(tenant=tenant, deleted=True):
            yield from (str(definition.id), definition.key)
        for key in self._keys():
            if key.tenant == tenant:
                yield from (key.id, key.name)

    def _keys(self) -> list[Key]:
        return self._app.store.keys()

    def _jobs(self, tenant: str) -> list[Any]:
        return list(self._app.store.jobs(JobFilter(tenant), limit=MOST).items)


def _tenants(key: Key) -> Tenants:
    """The tenants in which a key has a role."""
    return frozenset({key.tenant, *(tenant for tenant, _ in key.access.roles)})


def _texts(value: Any) -> Iterator[str]:
    """Every text in a document, including keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield str(name)
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _found(reader: str, owner: str, signs: set[str], answers: list[Heard]) -> Iterator[Leak]:
    for heard in answers:
        for sign in signs:
            text = sign if len(sign) >= LONG or _is_key(sign) else json.dumps(sign)
            # A text that the request itself contains is no leak.
            if text in heard.told and sign not in heard.asked:
                yield Leak(reader, owner, sign, heard)


def _is_key(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{8}", text) is not None
