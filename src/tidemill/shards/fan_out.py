"""One question to several shards at the same time, with a deadline."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextvars import copy_context
from typing import Any

from tidemill.errors import StoreError, StoreUnavailable

_log = logging.getLogger("tidemill.client")

DEADLINE = 2.0
"""Seconds after which a shard is left out of an answer about all tenants."""

_AWAY = 5.0  # seconds for which a shard that did not answer in time is not asked again
_THREADS = 4  # questions to one shard at the same time, so that a slow shard delays no other


class FanOut:
    """Asks several shards at the same time, and skips for a while those that did not answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._away: dict[str, float] = {}  # until when a shard is not asked
        self._is_closed = False

    def ask(
        self, questions: Mapping[str, Callable[[], Any]], *, here: str | None = None
    ) -> tuple[list[Any], list[str]]:
        """Return the answers in the order of the questions, and the names of the shards that did not answer.

        The question to ``here`` is asked on this thread. Raises ``StoreUnavailable`` if no shard answers.
        """
        if len(questions) == 1:
            return [question() for question in questions.values()], []
        until = time.monotonic() + DEADLINE
        asked = {
            name: self._begin(name, question)
            for name, question in questions.items()
            if name != here and not self._is_away(name)
        }
        answers: list[Any] = []
        failures: dict[str, StoreError] = {}
        for name, question in questions.items():
            try:
                if name == here:
                    answers.append(question())
                elif name in asked:
                    answers.append(self._answer(name, asked[name], until))
                else:
                    raise StoreUnavailable(f"shard {name!r} did not answer a moment ago")
            except StoreError as error:
                failures[name] = error
        if failures and not answers:
            raise next(iter(failures.values()))
        return answers, list(failures)

    @property
    def missing(self) -> tuple[str, ...]:
        """The shards that did not answer the last question."""
        with self._lock:
            return tuple(sorted(self._away))

    def _begin(self, name: str, question: Callable[[], Any]) -> Future[Any]:
        with self._lock:
            if self._is_closed:
                raise StoreUnavailable("this app was closed")
            pool = self._pools.get(name)
            if pool is None:
                pool = self._pools[name] = ThreadPoolExecutor(
                    _THREADS, thread_name_prefix=f"tidemill-shard-{name}"
                )
            return pool.submit(copy_context().run, question)

    def _answer(self, name: str, asked: Future[Any], until: float) -> Any:
        try:
            answer = asked.result(max(until - time.monotonic(), 0.0))
        except FutureTimeout:
            asked.cancel()
            error = StoreUnavailable(f"shard {name!r} did not answer within {DEADLINE:g} seconds")
            self._set_away(name, error)
            raise error from None
        except StoreError as error:
            self._set_away(name, error)
            raise
        if name in self._away:
            with self._lock:
                self._away.pop(name, None)
            _log.info("the shard %r answers again", name)
        return answer

    def _is_away(self, name: str) -> bool:
        return time.monotonic() < self._away.get(name, float("-inf"))

    def _set_away(self, name: str, error: StoreError) -> None:
        with self._lock:
            is_new = name not in self._away
            self._away[name] = time.monotonic() + _AWAY
        if is_new:
            _log.warning("lists and statistics leave out the shard %r: %s", name, error)

    def close(self) -> None:
        """Wait for the questions that are under way; no further one is asked."""
        with self._lock:
            self._is_closed = True
            pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
