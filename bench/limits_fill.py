"""Fills the store of one case of ``bench.limits``.

TIDEMILL_STORE=URL python -m bench.limits_fill CASE JOBS
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta

from bench.limits_app import app, keyed, keyed_together, many, plain, together

from tidemill.domain.cluster import Worker
from tidemill.domain.lanes import ClaimRequest
from tidemill.ids import new_id


def _close(task: str) -> None:
    """Claim all free slots of the limits for a worker that stays alive and does nothing."""
    store = app.store
    nobody = store.register(Worker(new_id(), f"holds {task}"), lease=timedelta(hours=1))
    rules = {rule.name: rule for rule in store.rules()}
    assert store.claim(ClaimRequest(nobody.id, store.gates(), 100, rules=rules))


def _beside_limited(jobs: int) -> None:
    plain.enqueue_many({"n": n} for n in range(jobs))
    keyed.enqueue_many({"key": n % 50} for n in range(jobs // 4))


def _after_limited(jobs: int) -> None:
    keyed.enqueue_many({"key": n % 50} for n in range(jobs // 4))
    plain.enqueue_many({"n": n} for n in range(jobs))


def _beside_closed(jobs: int) -> None:
    many.enqueue(key=0)
    _close("many")
    many.enqueue_many({"key": 0} for _ in range(10 * jobs))
    plain.enqueue_many({"n": n} for n in range(jobs))


def _among_closed(jobs: int) -> None:
    keyed.enqueue_many({"key": 0} for _ in range(3))
    _close("keyed")
    keyed.enqueue_many({"key": 0} for _ in range(9 * jobs))
    keyed.enqueue_many({"key": 1 + n % 49} for n in range(jobs))


CASES: dict[str, Callable[[int], object]] = {
    "plain": lambda jobs: plain.enqueue_many({"n": n} for n in range(jobs)),
    "keyed": lambda jobs: keyed.enqueue_many({"key": n % 50} for n in range(jobs)),
    "together": lambda jobs: together.enqueue_many({"n": n} for n in range(jobs)),
    "both": lambda jobs: keyed_together.enqueue_many({"key": n % 50} for n in range(jobs)),
    "many": lambda jobs: many.enqueue_many({"key": n % 10_000} for n in range(jobs)),
    "beside-limited": _beside_limited,
    "after-limited": _after_limited,
    "beside-closed": _beside_closed,
    "among-closed": _among_closed,
}

if __name__ == "__main__":
    app.store.migrate()
    CASES[sys.argv[1]](int(sys.argv[2]))
    app.close()
