"""URLs that signal the running job, signed by the worker."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from tidemill.configuration import value_of
from tidemill.domain.callbacks import SIGNED_BY
from tidemill.domain.job import Claim
from tidemill.domain.signal_links import PATH, new_link, sign_link
from tidemill.errors import UsageError


def signal_url(site: str | None, claim: Claim, name: str, ttl: timedelta, now: datetime) -> str:
    """A URL of the HTTP API that sends a signal of this name to the job, until the time is over."""
    if site is None:
        raise UsageError(
            "ctx.callback_url needs the address of the HTTP API; give the app one: App(dashboard_url='https://…')"
        )
    secret = value_of(SIGNED_BY)
    if not secret:
        raise UsageError(
            f"ctx.callback_url needs {SIGNED_BY}; set it to whsec_ and a base64 secret, on workers and servers alike"
        )
    link = new_link(claim.id, claim.tenant, name, ttl, now, secrets.token_urlsafe(9))
    return f"{site}{PATH}{sign_link(secret, link)}"
