"""A PostgreSQL that is away, refuses us, or falls silent: one clear error, and the store goes on as soon as it is back."""

from __future__ import annotations

import socket
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from tests.services import go_without
from tests.stores.two_rooms import FAR, NEAR, Rooms, rooms_are_possible, two_rooms

from tidemill.domain.job import NewJob
from tidemill.errors import StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.testing.postgres import PrivatePostgres, running_postgres
from tidemill.testing.processes import ServiceMissing, free_port

SECRET = "hunter2"
PATIENCE = 30.0
SILENCE = 10.0
"""Seconds after which a connection without an answer must count as lost."""


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePostgres]:
    """A server of our own, which may be stopped; one of its roles needs a password."""
    try:
        with running_postgres(settings={"password_encryption": "scram-sha-256"}) as server:
            rules = server.data_dir / "pg_hba.conf"
            rules.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
            server.restart()
            with psycopg.connect(server.url(), autocommit=True) as raw:
                raw.execute(f"create role guarded login superuser password '{SECRET}'".encode())
            store = open_store(server.url())
            store.migrate()
            store.close()
            yield server
    except ServiceMissing as missing:
        go_without("postgres", missing)


@pytest.fixture
def store(server: PrivatePostgres) -> Iterator[Store]:
    store = open_store(server.url())
    yield store
    store.close()


def put(store: Store) -> None:
    store.enqueue([NewJob(new_id(), "t")])


def refusal(url: str) -> str:
    """The one sentence with which a store at this address refuses its first verb; the password is nowhere in it."""
    store = open_store(url)
    with pytest.raises(StoreUnavailable) as refused:
        store.lanes()
    store.close()
    told = str(refused.value)
    assert "\n" not in told
    assert told == refused.value.message
    assert SECRET not in "".join(traceback.format_exception(refused.value))
    return told


# ------------------------------------------------------------------------------------------------------ away, and back


def test_a_restart_between_two_calls_goes_unnoticed(server: PrivatePostgres, store: Store) -> None:
    for mode in ("fast", "immediate"):
        put(store)
        server.restart(mode)
        put(store)


def test_a_server_that_is_down_is_one_clear_error_and_back_again_all_is_well(
    server: PrivatePostgres, store: Store
) -> None:
    put(store)
    server.stop()
    try:
        for verb in (store.check, store.lanes, store.migrate, lambda: put(store)):
            with pytest.raises(
                StoreUnavailable, match=r"^cannot reach postgresql://.*Connection refused; is the server up"
            ):
                verb()
    finally:
        server.start()
    put(store)


def test_a_store_can_be_made_before_its_server_is_up(server: PrivatePostgres) -> None:
    server.stop()
    try:
        store = open_store(server.url())
        with pytest.raises(StoreUnavailable):
            store.check()
    finally:
        server.start()
    store.check()
    put(store)
    store.close()


# -------------------------------------------------------------------------------------------------------------- refused


def test_a_port_nobody_listens_on_is_said() -> None:
    told = refusal(f"postgresql://ann:{SECRET}@127.0.0.1:{free_port()}/app")
    assert told.endswith("Connection refused; is the server up, and are host and port right?")


def test_a_host_nobody_knows_is_said() -> None:
    told = refusal(f"postgresql://ann:{SECRET}@db.invalid/app")
    assert told.startswith(
        "cannot reach postgresql://ann@db.invalid/app: failed to resolve host 'db.invalid'"
    )
    assert told.endswith("are host and port right?")


def test_a_database_that_does_not_exist_is_said_with_the_command_that_makes_it(
    server: PrivatePostgres,
) -> None:
    assert refusal(server.url("nowhere")) == (
        f'{server.url("nowhere")} does not exist (database "nowhere" does not exist); create it: createdb nowhere'
    )


def test_a_wrong_password_is_said_and_not_shown(server: PrivatePostgres) -> None:
    bare = f"127.0.0.1:{server.port}/postgres"
    right = open_store(f"postgresql://guarded:{SECRET}@{bare}")
    right.check()
    right.close()
    for wrong in (f"guarded:{SECRET}x", "guarded", "nobody_here"):
        told = refusal(f"postgresql://{wrong}@{bare}")
        assert told.startswith(f"postgresql://{wrong.partition(':')[0]}@{bare} refused the login (")
        assert told.endswith("; check the user and password in the URL")


def test_a_server_without_room_is_said(server: PrivatePostgres) -> None:
    with psycopg.connect(server.url(), autocommit=True) as raw:
        raw.execute("create role crowded login connection limit 1")
        raw.execute(
            "grant usage on schema tidemill to crowded; grant select on all tables in schema tidemill to crowded"
        )
    crowded = f"postgresql://crowded@127.0.0.1:{server.port}/postgres"
    with psycopg.connect(crowded):
        told = refusal(crowded)
    assert "has no free connection (too many connections for role" in told
    assert told.endswith("raise max_connections or lower ?pool=")


def test_a_database_that_is_not_utf8_is_refused(server: PrivatePostgres) -> None:
    with psycopg.connect(server.url(), autocommit=True) as raw:
        raw.execute(
            "create database plain encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0"
        )
    told = refusal(server.url("plain"))
    assert told == f"{server.url('plain')} keeps text in SQL_ASCII; create a database with encoding UTF8"


def test_a_client_encoding_from_outside_does_not_matter(
    server: PrivatePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    store = open_store(server.url())
    put(store)
    assert all(isinstance(lane.queue, str) for lane in store.lanes())
    store.close()


def test_a_server_that_only_lets_us_read_is_refused(server: PrivatePostgres) -> None:
    with psycopg.connect(server.url(), autocommit=True) as raw:
        raw.execute("create database frozen")
        raw.execute("alter database frozen set default_transaction_read_only = on")
    for query in ("", "?target_session_attrs=any"):
        store = open_store(server.url("frozen") + query)
        with pytest.raises(
            StoreUnavailable, match=r"only lets us read .*it may be a standby: point to the primary"
        ):
            store.migrate()
        store.close()


def test_a_primary_that_became_read_only_loses_our_connections(server: PrivatePostgres, store: Store) -> None:
    put(store)
    with psycopg.connect(server.url(), autocommit=True) as raw:
        raw.execute("set default_transaction_read_only = off")
        _set_everywhere(raw, "on")
        try:
            with pytest.raises(StoreUnavailable, match="only lets us read"):
                _put_until_refused(store)
            assert not store._db._pool._idle  # type: ignore[attr-defined]
            with pytest.raises(StoreUnavailable, match="session is read-only"):
                put(store)
        finally:
            _set_everywhere(raw, "off")
        raw.execute("reset default_transaction_read_only")
        deadline = time.monotonic() + PATIENCE
        while raw.execute("show default_transaction_read_only").fetchone() == ("on",):
            assert time.monotonic() < deadline
    put(store)


def _put_until_refused(store: Store) -> None:
    """Until the running session has heard of it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        put(store)


def _set_everywhere(raw: psycopg.Connection[Any], value: str) -> None:
    raw.execute(f"alter system set default_transaction_read_only = {value}".encode())
    raw.execute("select pg_reload_conf()")


# --------------------------------------------------------------------------------------------------------------- silent


def test_a_connection_is_kept_alive_so_that_silence_is_noticed_in_time(store: Store) -> None:
    store.check()
    with store._db._pool.connection() as connection, _socket_of(connection) as line:  # type: ignore[attr-defined]
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        interval = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        count = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        unanswered = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert 0 < idle + interval * count <= SILENCE
    assert 0 < unanswered / 1000 <= SILENCE


def _socket_of(connection: psycopg.Connection[Any]) -> socket.socket:
    return socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)


@pytest.fixture
def rooms() -> Iterator[Rooms]:
    if not rooms_are_possible():
        pytest.skip("service missing: networks: making networks needs root and the program ip")
    with ExitStack() as stack:
        try:
            made = stack.enter_context(two_rooms())
        except OSError as error:
            go_without("networks", error)
        yield made


@pytest.mark.long
def test_a_server_that_falls_silent_during_a_call_is_given_up_in_time_and_found_again(rooms: Rooms) -> None:
    with ExitStack() as stack:
        server = rooms.far.do(
            lambda: stack.enter_context(running_postgres(settings={"listen_addresses": f"127.0.0.1,{FAR}"}))
        )
        stack.callback(rooms.far.do, server.close)  # by the thread that started it
        rules = server.data_dir / "pg_hba.conf"
        rules.write_text(f"{rules.read_text()}host all all {NEAR}/32 trust\n")
        rooms.far.do(server.restart)
        store = open_store(
            f"postgresql://postgres@{FAR}:{server.port}/postgres?lock_timeout=600&statement_timeout=600"
        )
        rooms.near.do(store.migrate)
        rooms.near.do(store.lanes)
        blocker = rooms.far.do(lambda: _lock_ready(server.url()))
        call = rooms.near.begin(store.lanes)
        rooms.far.do(lambda: _until_blocked(server.url()))
        rooms.cut()
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"^cannot reach postgresql://"):
            call.result(timeout=PATIENCE)
        assert time.monotonic() - begun <= SILENCE
        rooms.mend()
        blocker.close()
        assert rooms.near.do(store.lanes) == []
        rooms.near.do(store.close)


def _lock_ready(url: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(url)
    connection.execute("lock table tidemill.ready in access exclusive mode")
    return connection


def _until_blocked(url: str) -> None:
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(url, autocommit=True) as raw:
        while raw.execute("select from pg_stat_activity where wait_event_type = 'Lock'").fetchone() is None:
            assert time.monotonic() < deadline
