"""Tests of the store while PostgreSQL is down, refuses it, or does not answer."""

from __future__ import annotations

import socket
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from tests.servers.postgres import PrivatePostgres, running_postgres
from tests.servers.processes import ServiceMissing, free_port
from tests.services import go_without
from tests.stores.two_networks import (
    CLIENT_ADDRESS,
    SERVER_ADDRESS,
    Networks,
    networks_are_possible,
    two_networks,
)

from tidemill.domain.job import NewJob
from tidemill.errors import StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

SECRET = "hunter2"
PATIENCE = 30.0
SILENCE = 10.0
"""Seconds after which an unresponsive connection must count as lost."""


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePostgres]:
    """Start a private server that tests may stop; one of its roles needs a password."""
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
    """Return the error of the first verb of a store at this URL, which must not contain the password."""
    store = open_store(url)
    with pytest.raises(StoreUnavailable) as refused:
        store.lanes()
    store.close()
    message = str(refused.value)
    assert "\n" not in message
    assert message == refused.value.message
    assert SECRET not in "".join(traceback.format_exception(refused.value))
    return message


# ------------------------------------------------------------------------------------------------ down, and up again


def test_a_restart_between_two_calls_causes_no_error(server: PrivatePostgres, store: Store) -> None:
    for mode in ("fast", "immediate"):
        put(store)
        server.restart(mode)
        put(store)


def test_a_stopped_server_is_unavailable_until_it_restarts(server: PrivatePostgres, store: Store) -> None:
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


def test_a_store_can_be_opened_before_its_server_is_up(server: PrivatePostgres) -> None:
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


def test_a_refused_connection_error() -> None:
    message = refusal(f"postgresql://ann:{SECRET}@127.0.0.1:{free_port()}/app")
    assert message.endswith("Connection refused; is the server up, and are host and port right?")


def test_an_unknown_host_error() -> None:
    message = refusal(f"postgresql://ann:{SECRET}@db.invalid/app")
    assert message.startswith(
        "cannot reach postgresql://ann@db.invalid/app: failed to resolve host 'db.invalid'"
    )
    assert message.endswith("are host and port right?")


def test_a_missing_database_error_includes_the_createdb_command(
    server: PrivatePostgres,
) -> None:
    assert refusal(server.url("nowhere")) == (
        f'{server.url("nowhere")} does not exist (database "nowhere" does not exist); create it: createdb nowhere'
    )


def test_a_wrong_password_error_does_not_show_the_password(server: PrivatePostgres) -> None:
    bare = f"127.0.0.1:{server.port}/postgres"
    right = open_store(f"postgresql://guarded:{SECRET}@{bare}")
    right.check()
    right.close()
    for wrong in (f"guarded:{SECRET}x", "guarded", "nobody_here"):
        message = refusal(f"postgresql://{wrong}@{bare}")
        assert message.startswith(f"postgresql://{wrong.partition(':')[0]}@{bare} refused the login (")
        assert message.endswith("; check the user and password in the URL")


def test_an_error_about_too_many_connections(server: PrivatePostgres) -> None:
    with psycopg.connect(server.url(), autocommit=True) as raw:
        raw.execute("create role crowded login connection limit 1")
        raw.execute(
            "grant usage on schema tidemill to crowded; grant select on all tables in schema tidemill to crowded"
        )
    crowded = f"postgresql://crowded@127.0.0.1:{server.port}/postgres"
    with psycopg.connect(crowded):
        message = refusal(crowded)
    assert "has no free connection (too many connections for role" in message
    assert message.endswith("raise max_connections or lower ?pool=")


def test_a_database_that_is_not_utf8_is_refused(server: PrivatePostgres) -> None:
    with psycopg.connect(server.url(), autocommit=True) as raw:
        raw.execute(
            "create database plain encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0"
        )
    message = refusal(server.url("plain"))
    assert message == f"{server.url('plain')} stores text as SQL_ASCII; create a database with encoding UTF8"


def test_a_client_encoding_in_the_environment_is_ignored(
    server: PrivatePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    store = open_store(server.url())
    put(store)
    assert all(isinstance(lane.queue, str) for lane in store.lanes())
    store.close()


def test_a_read_only_database_is_refused(server: PrivatePostgres) -> None:
    with psycopg.connect(server.url(), autocommit=True) as raw:
        raw.execute("create database frozen")
        raw.execute("alter database frozen set default_transaction_read_only = on")
    for query in ("", "?target_session_attrs=any"):
        store = open_store(server.url("frozen") + query)
        with pytest.raises(
            StoreUnavailable, match=r"is read-only .*it may be a standby: point to the primary"
        ):
            store.migrate()
        store.close()


def test_connections_to_a_server_that_became_read_only_are_dropped(
    server: PrivatePostgres, store: Store
) -> None:
    put(store)
    with psycopg.connect(server.url(), autocommit=True) as raw:
        raw.execute("set default_transaction_read_only = off")
        _set_everywhere(raw, "on")
        try:
            with pytest.raises(StoreUnavailable, match="is read-only"):
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
    """Enqueue until the open session sees the setting."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        put(store)


def _set_everywhere(raw: psycopg.Connection[Any], value: str) -> None:
    raw.execute(f"alter system set default_transaction_read_only = {value}".encode())
    raw.execute("select pg_reload_conf()")


# ---------------------------------------------------------------------------------------------------------- unresponsive


def test_connections_use_tcp_keepalives(store: Store) -> None:
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
def networks() -> Iterator[Networks]:
    if not networks_are_possible():
        pytest.skip("service missing: networks: creating networks needs root and the program ip")
    with ExitStack() as stack:
        try:
            made = stack.enter_context(two_networks())
        except OSError as error:
            go_without("networks", error)
        yield made


@pytest.mark.long
def test_a_call_to_an_unresponsive_server_fails_in_time_and_recovers(networks: Networks) -> None:
    with ExitStack() as stack:
        server = networks.server.run(
            lambda: stack.enter_context(
                running_postgres(settings={"listen_addresses": f"127.0.0.1,{SERVER_ADDRESS}"})
            )
        )
        # The thread that started the server must close it.
        stack.callback(networks.server.run, server.close)
        rules = server.data_dir / "pg_hba.conf"
        rules.write_text(f"{rules.read_text()}host all all {CLIENT_ADDRESS}/32 trust\n")
        networks.server.run(server.restart)
        store = open_store(
            f"postgresql://postgres@{SERVER_ADDRESS}:{server.port}/postgres?lock_timeout=600&statement_timeout=600"
        )
        networks.client.run(store.migrate)
        networks.client.run(store.lanes)
        blocker = networks.server.run(lambda: _lock_ready(server.url()))
        call = networks.client.submit(store.lanes)
        networks.server.run(lambda: _until_blocked(server.url()))
        networks.disconnect()
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"^cannot reach postgresql://"):
            call.result(timeout=PATIENCE)
        assert time.monotonic() - begun <= SILENCE
        networks.reconnect()
        blocker.close()
        assert networks.client.run(store.lanes) == []
        networks.client.run(store.close)


def _lock_ready(url: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(url)
    connection.execute("lock table tidemill.ready in access exclusive mode")
    return connection


def _until_blocked(url: str) -> None:
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(url, autocommit=True) as raw:
        while raw.execute("select from pg_stat_activity where wait_event_type = 'Lock'").fetchone() is None:
            assert time.monotonic() < deadline
