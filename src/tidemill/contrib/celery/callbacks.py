"""Callbacks of calls: signatures that run after a success or a failure. Also the built-in tasks of ``map`` and ``starmap``."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidemill.contrib.celery import states
from tidemill.contrib.celery.canvas import CanvasPart, CelerySignature, part_from_data
from tidemill.contrib.celery.request import CeleryRequest
from tidemill.engine.context import Context

if TYPE_CHECKING:
    from tidemill.contrib.celery.application import Celery
    from tidemill.contrib.celery.task import CeleryEnd

_log = logging.getLogger("tidemill.contrib.celery")

MAP, STARMAP = "celery.map", "celery.starmap"
"""The names of the built-in tasks."""


def call_links(app: Celery, links: Sequence[Mapping[str, Any]], context: Context, value: Any) -> None:
    """Enqueue the callbacks of a success. Single calls are written in the transaction that completes the job."""
    for data in links:
        part = part_from_data(app, data)
        if isinstance(part, CelerySignature):
            with context.transaction():
                part.apply_async((value,))
        else:
            part.apply_async((value,))


def call_errbacks(
    app: Celery, links: Sequence[Mapping[str, Any]], request: CeleryRequest, ended: CeleryEnd
) -> None:
    """Run the callbacks of a failure."""
    _run_errbacks([part_from_data(app, data) for data in links], request, ended, eager=False)


def call_eagerly(
    request: CeleryRequest,
    ended: CeleryEnd,
    links: Sequence[CanvasPart],
    errbacks: Sequence[CanvasPart],
) -> None:
    """Run the callbacks of a call that ran in this process."""
    if ended.state == states.SUCCESS:
        for part in links:
            part.apply((ended.value,))
    elif ended.state == states.FAILURE:
        _run_errbacks(errbacks, request, ended, eager=True)


def _run_errbacks(
    errbacks: Sequence[CanvasPart], request: CeleryRequest, ended: CeleryEnd, *, eager: bool
) -> None:
    """Call errbacks that take the request and the exception here; give others the id of the failed call, in a job."""
    for part in errbacks:
        if isinstance(part, CelerySignature) and takes_the_request(part):
            try:
                part(request, ended.value, ended.traceback)
            except Exception:  # noqa: BLE001  (the failure of a callback must not replace that of its call)
                _log.exception("errback %s of call %s failed", part.task, request.id)
        elif eager:
            part.apply((request.id,))
        else:
            part.apply_async((request.id,))


def takes_the_request(part: CelerySignature) -> bool:
    """Whether the function has more than one positional parameter. As in Celery, a bound task only gets the id."""
    static = inspect.getattr_static(type(part.type), "run")
    if not isinstance(static, staticmethod):
        return False
    kinds = [parameter.kind for parameter in inspect.signature(part.type.run).parameters.values()]
    named = sum(kind in (kind.POSITIONAL_ONLY, kind.POSITIONAL_OR_KEYWORD) for kind in kinds)
    return named > 1 or any(kind is kind.VAR_POSITIONAL for kind in kinds)
