"""Sign-in sessions and explanations of permissions: ``app.sessions`` and ``app.access``."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.client._base import StoreApi, async_twin
from tidemill.client.access import CACHE_SIZE, FRESH, Keys, acting, client_of_keys, note
from tidemill.domain.access import Identity, identity_of
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.permissions import ACTS, AccessVerdict, Act, ActTarget, decide
from tidemill.domain.sessions import SHORT_SESSION, StoredSession, session_id, single_use_digest
from tidemill.errors import BadSettings, KeyNotFound

if TYPE_CHECKING:
    from tidemill.client.core import Client

COOKIE_BYTES = 32
SHORT = SHORT_SESSION


class SessionApi(StoreApi):
    """The sign-in sessions of an app. They belong to the app's default store, as its keys do."""

    def __init__(self, client: Client) -> None:
        super().__init__(client_of_keys(client))
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, tuple[StoredSession, float]] = OrderedDict()

    def begin(
        self,
        who: str,
        lifetime: timedelta,
        *,
        key_id: str | None = None,
        grant_json: str | None = None,
        issuer: str | None = None,
        subject: str | None = None,
        provider_session: str | None = None,
        single_use: str | None = None,
    ) -> str | None:
        """Store a new session and return its cookie, or None if the single-use code opened one before."""
        cookie = secrets.token_urlsafe(COOKIE_BYTES)
        used = None if single_use is None else single_use_digest(single_use)
        expires_at = self._now() + lifetime
        stored = StoredSession(
            session_id(cookie), who, expires_at, key_id, grant_json, issuer, subject, provider_session, used
        )
        with self._store.transaction():
            if self._store.put_sessions([stored], now=self._pin):
                return None
            by = {} if stored.issuer is None else {"issuer": stored.issuer}
            self._note("began", stored, after={"who": stored.who, **by})
        return cookie

    def get(self, cookie: str) -> StoredSession | None:
        """Return the living session of a cookie. Its end in another process shows within five seconds."""
        id = session_id(cookie)
        if (cached := self._cached(id)) is not None:
            return self._living(cached)
        at = self._client.clock.monotonic()
        stored = self._store.sessions([id])
        if not stored:
            return None
        with self._lock:
            self._cache.pop(id, None)
            self._cache[id] = (stored[0], at)
            while len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
        return self._living(stored[0])

    async def aget(self, cookie: str) -> StoredSession | None:
        """Async version of ``get``; a session that is still cached is found without a thread."""
        if (cached := self._cached(session_id(cookie))) is not None:
            return self._living(cached)
        session: StoredSession | None = await self._client.in_thread(self.get, cookie)
        return session

    def list(self) -> Sequence[StoredSession]:
        """Return the living sessions in the order of their sign-in."""
        now = self._now()
        return [session for session in self._store.sessions() if session.lives(now)]

    def sign_out(self, cookie: str) -> None:
        """End the session of a cookie: immediately in this process, within five seconds in others."""
        id = session_id(cookie)
        with self._store.transaction():
            ended = self._store.end_sessions([id], now=self._pin)
            for session in self._store.sessions(ended) if ended else ():
                self._note("signed_out", session)
        self._forget([id])

    def end_of(self, who: str) -> Sequence[StoredSession]:
        """End all sessions of one user, by the name that ``list`` shows; return them."""
        return self.end([session.id for session in self.list() if session.who == who])

    def end_of_provider(
        self, issuer: str, subject: str | None, provider_session: str | None
    ) -> Sequence[StoredSession]:
        """End the sessions that a provider names by its session, or else by the user; return them."""
        if provider_session is None and subject is None:
            return []
        named = [
            session
            for session in self.list()
            if session.issuer == issuer
            and (subject is None or session.subject == subject)
            and (provider_session is None or session.provider_session == provider_session)
        ]
        with acting(f"issuer:{issuer}"):
            return self.end([session.id for session in named])

    def end(self, ids: Collection[str]) -> Sequence[StoredSession]:
        """End sessions of other people, by the id or its first digits; return those that had not ended before."""
        stored = self._store.sessions()
        chosen: dict[str, StoredSession] = {}
        for id in ids:
            matches = [session for session in stored if id and session.id.startswith(id)]
            if len(matches) != 1:
                what = "several sessions begin with" if matches else "there is no session"
                raise KeyNotFound(f"{what} {id!r}; see tidemill sessions list", id=id)
            chosen[matches[0].id] = matches[0]
        with self._store.transaction():
            ended = self._store.end_sessions([*chosen], now=self._pin)
            for id in sorted(ended):
                note(self._store, "session.ended", f"session:{id[:SHORT]}", ALL_TENANTS,
                     before={"who": chosen[id].who}, now=self._pin)  # fmt: skip
        self._forget(ended)
        return [session for id, session in chosen.items() if id in ended]

    def _note(self, verb: str, session: StoredSession, after: dict[str, object] | None = None) -> None:
        """Record what a user did with their own session."""
        subject = f"session:{session.id[:SHORT]}"
        note(self._store, f"session.{verb}", subject, ALL_TENANTS, after=after, by=session.who, now=self._pin)

    def _cached(self, id: str) -> StoredSession | None:
        at = self._client.clock.monotonic()
        with self._lock:
            entry = self._cache.get(id)
        return entry[0] if entry is not None and at - entry[1] < FRESH else None

    def _living(self, session: StoredSession) -> StoredSession | None:
        return session if session.lives(self._client.clock.now()) else None

    def _forget(self, ids: Collection[str]) -> None:
        with self._lock:
            for id in ids:
                self._cache.pop(id, None)

    # Async twins -------------------------------------------------------------------------------------------------------

    abegin = async_twin(begin)
    alist = async_twin(list)  # noqa: A003  (the method above)
    aend = async_twin(end)
    aend_of = async_twin(end_of)
    asign_out = async_twin(sign_out)


class AccessApi(StoreApi):
    """Explanations of permissions. They come from the decision that the HTTP API and the dashboard use."""

    def acts(self) -> Mapping[str, Act]:
        """Return every act with its requirements."""
        return ACTS

    def explain(
        self,
        who: str | Identity,
        act: str,
        *,
        task: str | None = None,
        queue: str | None = None,
        definition: str | None = None,
        tenant: str | None = None,
    ) -> AccessVerdict:
        """Return whether a key, given by its id, or an identity may do an act, and why in words.

        Without a task, queue or definition the answer is about the act on some object. ``queue`` is by default that of the task.
        """
        if act not in ACTS:
            raise BadSettings(f"there is no act {act!r}; see tidemill access acts", option="act")
        identity = self._identity(who) if isinstance(who, str) else who
        if tenant is not None:
            identity = identity.within(tenant)
            if not identity.sees(tenant):
                return AccessVerdict(
                    False, f"this identity is for tenant {identity.tenant}, not for {tenant}", "wrong_tenant"
                )
        registry = self._client.registry
        if queue is None and task is not None and task in registry:
            queue = registry.get(task).options.queue
        target = ActTarget(task, queue, definition)
        return decide(identity, act, target if any(target) else None, registry.environment)

    def note_refusal(self, identity: Identity, act: str, reason: str) -> None:
        """Record in the audit log that an identity was refused an act."""
        after = {"act": act, "reason": reason}
        note(
            self._store,
            "access.refused",
            f"act:{act}",
            identity.tenant,
            after=after,
            by=identity.who,
            now=self._pin,
        )

    def note_sign_in_refused(self, address: str, reason: str) -> None:
        """Record in the audit log that a sign-in from this address failed."""
        note(
            self._store,
            "session.refused",
            "sign-in",
            ALL_TENANTS,
            after={"reason": reason},
            by=f"address {address}",
            now=self._pin,
        )

    def _identity(self, id: str) -> Identity:
        keys = self._store.keys([id.removeprefix("tm_").partition(".")[0]])
        if not keys:
            raise KeyNotFound(f"there is no key {id[:20]!r}; see tidemill keys list", id=id[:20])
        if not keys[0].lives(self._now()):
            raise KeyNotFound(
                f"key {keys[0].id} has expired or was revoked, so it may do nothing", id=keys[0].id
            )
        return identity_of(keys[0])

    aacts = async_twin(acts)
    aexplain = async_twin(explain)


def access_apis(client: Client) -> tuple[Keys, AccessApi, SessionApi]:
    """Return the APIs about keys, permissions and sessions of an app."""
    own = client_of_keys(client)
    return Keys(own), AccessApi(own), SessionApi(own)
