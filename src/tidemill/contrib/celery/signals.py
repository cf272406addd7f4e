"""Celery's signals: receivers that are called around tasks and workers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("tidemill.contrib.celery")

Receiver = Callable[..., Any]


class CelerySignal:
    """A list of receivers. An exception of a receiver is logged, and the others are still called."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._receivers: dict[Any, tuple[Any, Receiver]] = {}

    def connect(
        self, receiver: Any = None, sender: Any = None, weak: bool = False, dispatch_uid: Any = None
    ) -> Any:
        """Call the receiver when the signal is sent: ``@task_failure.connect``. With ``sender``, only for that task."""
        if receiver is None:
            return lambda given: self.connect(given, sender, weak, dispatch_uid)
        if not callable(receiver):
            raise TypeError("Signal receivers must be callable")
        # Receivers are kept: one that disappeared with its function would be a trap.
        key = dispatch_uid if dispatch_uid is not None else (id(receiver), getattr(sender, "name", sender))
        self._receivers[key] = (sender, receiver)
        return receiver

    def disconnect(self, receiver: Any = None, sender: Any = None, dispatch_uid: Any = None) -> bool:
        """Remove a receiver; return whether there was one."""
        key = dispatch_uid if dispatch_uid is not None else (id(receiver), getattr(sender, "name", sender))
        return self._receivers.pop(key, None) is not None

    def send(self, sender: Any, **named: Any) -> list[tuple[Receiver, Any]]:
        """Call the receivers, and return their answers or exceptions."""
        answers: list[tuple[Receiver, Any]] = []
        for wanted, receiver in list(self._receivers.values()):
            if wanted is not None and wanted is not sender and wanted != getattr(sender, "name", sender):
                continue
            try:
                answers.append((receiver, receiver(signal=self, sender=sender, **named)))
            except Exception as error:  # noqa: BLE001  (a receiver may raise anything)
                _log.exception("receiver %r of signal %s raised an exception", receiver, self.name)
                answers.append((receiver, error))
        return answers

    def __repr__(self) -> str:
        return f"<Signal: {self.name}>"


before_task_publish = CelerySignal("before_task_publish")
after_task_publish = CelerySignal("after_task_publish")
task_prerun = CelerySignal("task_prerun")
task_postrun = CelerySignal("task_postrun")
task_success = CelerySignal("task_success")
task_retry = CelerySignal("task_retry")
task_failure = CelerySignal("task_failure")
worker_init = CelerySignal("worker_init")
worker_process_init = CelerySignal("worker_process_init")
worker_ready = CelerySignal("worker_ready")
worker_process_shutdown = CelerySignal("worker_process_shutdown")
worker_shutdown = CelerySignal("worker_shutdown")
