"""Release records in the SQL store."""

from __future__ import annotations

from datetime import datetime

from tidemill.domain.releases import Deployment, ReleaseRecord
from tidemill.stores.releases import ReleaseStore
from tidemill.stores.sql.base import SqlPart


class SqlReleases(SqlPart, ReleaseStore):
    """release_of, put_release."""

    def release_of(self, app: str) -> ReleaseRecord | None:
        rows = self._db.run("release_of", {"app": app})
        if not rows:
            return None
        revision, release, deployed_at, seen_at, forced_at = rows[0]
        return ReleaseRecord(app, Deployment(deployed_at, release), revision, seen_at, forced_at)

    def put_release(self, record: ReleaseRecord, *, now: datetime | None = None) -> bool:
        takes = {
            "now": now,
            "app": record.app,
            "revision": record.revision,
            "release": record.deployment.release,
            "deployed_at": record.deployment.deployed_at,
            "forced_at": record.forced_at,
        }
        return bool(self._db.run("put_release", takes))
