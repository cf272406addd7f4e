"""Locks in Redis: one key for each, with an expiry, and an owner that alone may release it."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from tidemill.domain.cluster import Coordination, Lease, holder_data
from tidemill.errors import StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.lock_server import DURATION, LockServer

_log = logging.getLogger("tidemill.store")

_PATIENCE = 1.0  # seconds for an answer; a lock that saves work must not cost more
_PAGE = 500

_TAKE = """
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('pexpire', KEYS[1], ARGV[2])
"""

_RELEASE = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
"""


class RedisLocks(LockServer):
    """Locks on one Redis server. ``prefix`` reads the name of the store, ``owner`` names this process to readers."""

    def __init__(
        self,
        url: str,
        shown: str,
        prefix: Callable[[], str],
        owner: str,
        *,
        duration: timedelta = DURATION,
    ) -> None:
        self.url = shown
        self._read_prefix, self._prefix = prefix, ""
        self._duration = duration
        self._redis = Redis.from_url(
            url,
            socket_connect_timeout=_PATIENCE,
            socket_timeout=_PATIENCE,
            retry=Retry(NoBackoff(), 0),
            client_name="tidemill",
        )
        # A random id: two processes of one machine are two owners.
        self._value = json.dumps({"holder": str(new_id()), "name": owner})
        self._take = self._redis.register_script(_TAKE)
        self._release = self._redis.register_script(_RELEASE)

    def take(self, names: Collection[str]) -> frozenset[str]:
        milliseconds = round(self._duration / timedelta(milliseconds=1))
        answers = self._each(self._take, names, milliseconds)
        return frozenset(name for name, taken in zip(names, answers, strict=True) if taken)

    def release(self, names: Collection[str]) -> None:
        self._each(self._release, names)

    def _each(self, script: Any, names: Collection[str], *arguments: object) -> list[Any]:
        """Call a script for each lock, in one round trip."""
        with self._answering():
            pipeline = self._redis.pipeline(transaction=False)
            for name in names:
                script(keys=[self._key(name)], args=[self._value, *arguments], client=pipeline)
            answers: list[Any] = pipeline.execute()
            return answers

    def held(self, now: datetime) -> list[Lease]:
        with self._answering():
            start = self._key("")
            keys = [key.decode() for key in self._redis.scan_iter(f"{start}*", count=_PAGE)]
            pipeline = self._redis.pipeline(transaction=False)
            for key in keys:
                pipeline.get(key)
                pipeline.pttl(key)
            answers = pipeline.execute()
        rows = zip(keys, answers[::2], answers[1::2], strict=True)
        locks = [self._lease(key.removeprefix(start), value, left, now) for key, value, left in rows]
        return sorted((lock for lock in locks if lock is not None), key=lambda lock: lock.name)

    def _lease(self, name: str, value: bytes | None, left: int, now: datetime) -> Lease | None:
        try:
            owner = json.loads(value or b"")
            holder = UUID(owner["holder"])
        except (ValueError, TypeError, KeyError, AttributeError):
            return None  # it has just been released, or another program wrote it
        expires = now + timedelta(milliseconds=max(left, 0))
        taken = expires - self._duration
        metadata = {"holder": holder_data(str(owner.get("name")), ())}
        return Lease(name, holder, 0, taken, taken, expires, metadata, Coordination.REDIS.value)

    def drop(self, name: str) -> bool:
        with self._answering():
            return bool(self._redis.delete(self._key(name)))

    def _key(self, name: str) -> str:
        if not self._prefix:
            self._prefix = self._read_prefix()
        return f"{self._prefix}{name}"

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"the lock server {self.url} does not answer: {error}") from None

    def close(self) -> None:
        with contextlib.suppress(RedisError, OSError):
            self._redis.close()
