"""Enqueue after the commit of a SQLAlchemy session, for sessions on another database than the store.

If both are the same database, ``task.using(connection=session)`` is better: the job is part of the transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.errors import UsageError

__all__ = ["enqueue_after_commit"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

_KEY = "tidemill"


class _PendingEnqueue(NamedTuple):
    transaction: SessionTransaction | None
    enqueue: Callable[[], object]


def enqueue_after_commit(
    session: Session | scoped_session[Any], task: BoundTask[P, R, C], /, *args: P.args, **kwargs: P.kwargs
) -> None:
    """Enqueue a job when the session commits; a rollback, also one to a savepoint, drops it.

    The arguments are validated now. A process that dies between the commit and the enqueue loses the job, and an error
    of the store is raised from ``commit()`` although the session's own changes are stored.
    """
    plain = session() if isinstance(session, scoped_session) else session
    if not isinstance(plain, Session):
        raise UsageError(
            f"enqueue_after_commit takes a Session, not a {type(plain).__name__};"
            " with an AsyncSession use task.using(connection=session)"
        )
    task.validate(*args, **kwargs)
    if _KEY not in plain.info:
        plain.info[_KEY] = []
        event.listen(plain, "after_commit", _enqueue_pending)
        event.listen(plain, "after_soft_rollback", _drop_pending)
    if not plain.in_transaction():
        plain.begin()
    current = plain.get_nested_transaction() or plain.get_transaction()
    plain.info[_KEY].append(_PendingEnqueue(current, lambda: task.enqueue(*args, **kwargs)))


def _enqueue_pending(session: Session) -> None:
    # Releasing a savepoint commits nothing yet; its jobs now belong to the transaction around it.
    nested = session.get_nested_transaction()
    if nested is not None:
        session.info[_KEY] = [
            pending._replace(transaction=nested.parent) if pending.transaction is nested else pending
            for pending in session.info[_KEY]
        ]
        return
    waiting, session.info[_KEY] = session.info[_KEY], []
    for pending in waiting:
        pending.enqueue()


def _drop_pending(session: Session, ended: SessionTransaction) -> None:
    session.info[_KEY] = [
        pending for pending in session.info[_KEY] if not _is_within(pending.transaction, ended)
    ]


def _is_within(transaction: SessionTransaction | None, outer: SessionTransaction) -> bool:
    while transaction is not None:
        if transaction is outer:
            return True
        transaction = transaction.parent
    return False
