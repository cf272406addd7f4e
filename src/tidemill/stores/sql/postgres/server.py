"""Facts about the PostgreSQL server of a connection."""

from __future__ import annotations

from datetime import timedelta

from tidemill.stores.server import ServerStatus
from tidemill.stores.sql.postgres.prepared_connection import Connection

# A standby that has replayed everything it received is as new as its primary, whenever that last wrote.
_STATUS = """
select current_setting('server_version'),
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
    (select count(*) from pg_stat_activity where backend_type = 'client backend'),
    pg_is_in_recovery(),
    current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'),
    (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum') and state = 'streaming'),
    case
        when not pg_is_in_recovery() then null
        when pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn()
            and exists (select from pg_stat_wal_receiver where status = 'streaming') then interval '0'
        else clock_timestamp() - pg_last_xact_replay_timestamp()
    end
"""


def read_server(connection: Connection) -> ServerStatus:
    """Read the status of this connection's server."""
    row = connection.execute(_STATUS).fetchone()
    assert row is not None
    status = ServerStatus(*row)
    age = status.replay_age
    return status if age is None else status._replace(replay_age=max(age, timedelta(0)))
