"""Large results and arguments of one execution."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from tidemill.domain.job import Claim
from tidemill.domain.large_values import BlobReference, SpilledText, is_reference
from tidemill.domain.outcome import ReviewRequested, Succeeded
from tidemill.engine.completion import fitted
from tidemill.errors import StoreError
from tidemill.tasks.task import Declared

if TYPE_CHECKING:
    from tidemill.engine.runner.execution import ExecutionEnd

_log = logging.getLogger("tidemill.engine")

WAITS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each further try to store a result. The work is done, so it is worth a wait."""


class BlobOutlet(Protocol):
    """The parts of a running job that large values need."""

    @property
    def declared(self) -> Declared: ...

    @property
    def claim(self) -> Claim: ...

    @property
    def is_private(self) -> bool: ...

    def spill(self, value: SpilledText) -> str: ...

    def fetch(self, text: str) -> str: ...

    def is_cancelled(self) -> bool: ...


def stored_end(ended: ExecutionEnd, outlet: BlobOutlet) -> ExecutionEnd:
    """Store the large result of an execution. A result that cannot be stored is left out; the job completes."""
    value = ended.result
    assert isinstance(value, SpilledText)
    return _with_result(ended, _stored(value, outlet))


def stored_here(ended: ExecutionEnd, outlet: BlobOutlet) -> ExecutionEnd:
    """Store the large result of an execution in a child process that cannot reach the store itself."""
    if ended.result is None or is_reference(ended.result):
        return ended
    text = fitted(outlet.declared, ended.result, outlet.claim)
    if isinstance(text, SpilledText):
        text = _stored(text, outlet)
    return _with_result(ended, text)


def portable(claim: Claim, outlet: BlobOutlet, *, detached: bool = False) -> Claim:
    """The claim for a child process: with its large arguments if the child cannot reach the store."""
    if (outlet.is_private or detached) and is_reference(claim.args):
        return claim._replace(args=outlet.fetch(claim.args))
    return claim


def _stored(value: SpilledText, outlet: BlobOutlet) -> str:
    for wait in (*WAITS, None):
        try:
            return outlet.spill(value)
        except StoreError as error:
            _log.warning("cannot store the result of job %s yet: %s", outlet.claim.id, error)
            if wait is None or outlet.is_cancelled():
                refused = f"it could not be stored: {error}"
                return BlobReference(value.reference.size, refused=refused[:500]).text()
            threading.Event().wait(wait)
    raise AssertionError("unreachable")


def _with_result(ended: ExecutionEnd, text: str) -> ExecutionEnd:
    outcome = ended.outcome
    if isinstance(outcome, Succeeded):
        outcome = Succeeded(text)
    elif isinstance(outcome, ReviewRequested):
        outcome = replace(outcome, output=text)
    return ended._replace(outcome=outcome, result=text)
