"""Django's database connections around synchronous jobs.

Django replaces a lost connection at the start and end of a web request. A worker has no requests, so without this
module a lost connection would fail every later job on its thread.
"""

from __future__ import annotations

import logging
import sys

_log = logging.getLogger("tidemill.engine")


def close_old_connections() -> None:
    """Close this thread's Django connections that are broken or past ``CONN_MAX_AGE``, if the program uses Django.

    Django is never imported for this. A connection inside an ``atomic`` block, as in Django's ``TestCase``, is left alone:
    Django's own ``close_old_connections`` would close it.
    """
    database, conf = sys.modules.get("django.db"), sys.modules.get("django.conf")
    if database is None or conf is None:
        return
    try:
        if conf.settings.configured:
            for connection in database.connections.all(initialized_only=True):
                if not connection.in_atomic_block:
                    connection.close_if_unusable_or_obsolete()
    except Exception:  # noqa: BLE001  (this must not fail the job)
        _log.exception("cannot close old Django connections")
