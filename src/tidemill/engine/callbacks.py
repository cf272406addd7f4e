"""The built-in task that tells a URL about the end of a flow or batch, as a signed webhook."""

from __future__ import annotations

import os
from uuid import UUID

from tidemill.domain.callbacks import ATTEMPTS, CALLBACK, SIGNED_BY, TIMEOUT, callback_body
from tidemill.domain.outgoing_addresses import read_networks, read_url
from tidemill.domain.retry import Exponential
from tidemill.domain.webhooks import signed_headers
from tidemill.engine.context import Context
from tidemill.errors import AddressRefused, BadSettings, PermanentError
from tidemill.tasks.options import TaskOptions
from tidemill.tasks.registry import BUILT_IN
from tidemill.tasks.task import declare

NETWORKS = "TIDEMILL_OUTGOING_NETWORKS"
"""The environment variable of the worker with private networks that may be reached."""

_GONE = 410


def send_callback(ctx: Context, url: str, group: UUID) -> int:
    """Send the end of a flow or batch to its ``callback_url``, and return the status of the answer."""
    # Imported late, because few workers send callbacks.
    from tidemill.delivery.outgoing_http import send

    store = ctx.outlet.flow_store
    rows = store.flow([group], tenant=ctx.tenant)
    if not rows:
        raise PermanentError(f"the flow or batch {group} is gone, so its callback has nothing to tell")
    (counts,) = store.group_counts([group])
    secret = os.environ.get(SIGNED_BY)
    if not secret:
        raise PermanentError(f"{SIGNED_BY} is not set on this worker; set it to whsec_ and a base64 secret")
    try:
        host = read_url(url, what="callback_url").host
        allowed = read_networks(
            text.strip() for text in os.environ.get(NETWORKS, "").split(",") if text.strip()
        )
        now = ctx.outlet.now()
        body = callback_body(rows[0], counts, now)
        # The id stays the same at every try, so that the receiver can tell a repetition.
        headers = signed_headers(secret, str(ctx.job.id), now, body)
        status = send("POST", url, body, headers, allowed=allowed).status
    except (AddressRefused, BadSettings) as refused:
        raise PermanentError(str(refused)) from None
    if status == _GONE:
        raise PermanentError(f"{host} answered {status}: it wants no more callbacks")
    if not 200 <= status < 300:
        raise OSError(f"{host} answered {status}; the callback is sent again later")
    return status


BUILT_IN[CALLBACK] = declare(
    send_callback,
    TaskOptions(name=CALLBACK, retry=Exponential(max_attempts=ATTEMPTS), timeout=TIMEOUT),
)
