"""Tests of wake-ups over real Redis and NATS servers that restart, halt and repeat messages."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

import psycopg
import pytest
from tests.engine.cluster_kit import eventually
from tests.interfaces.cli_kit import call
from tests.servers.processes import ServiceMissing
from tests.servers.restartable import RestartableServer, running_nats_server, running_redis_server
from tests.services import go_without

from tidemill import App, ManualClock
from tidemill.engine.listener import TICK, WakeupListener
from tidemill.engine.summons import Summons
from tidemill.errors import BadSettings
from tidemill.ids import new_id
from tidemill.stores.base import Listener, Store
from tidemill.stores.bus.address import open_bus
from tidemill.stores.bus.connection import PATIENCE, PROBE
from tidemill.stores.open import open_store
from tidemill.stores.sql.postgres.settings import read_settings

RUN = {"redis": running_redis_server, "nats": running_nats_server}
WITHIN = 20.0


@pytest.fixture(scope="module", params=sorted(RUN))
def server(request: pytest.FixtureRequest) -> Iterator[RestartableServer]:
    try:
        with RUN[request.param]() as server:
            yield server
    except ServiceMissing as missing:
        go_without(request.param, missing)


def address(url: str, server: RestartableServer, *options: str) -> str:
    return f"{url}?" + "&".join([f"wake={server.url}", *options])


@pytest.fixture
def url(migrated_postgres_url: str, server: RestartableServer) -> str:
    return address(migrated_postgres_url, server)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with closing(open_store(url)) as store:
        yield store


def heard(listener: Listener, topic: str, within: float = WITHIN) -> frozenset[str]:
    """All topics up to this one."""
    topics: set[str] = set()

    def receive() -> bool:
        topics.update(listener.wait(0.2))
        return topic in topics

    eventually(receive, within)
    return frozenset(topics)


def publish(server: RestartableServer, channel: str, message: bytes, times: int = 1) -> None:
    """Send a message with the servers' own protocols, as any other program could."""
    import socket

    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=WITHIN) as link,
        link.makefile("rb") as replies,
    ):
        if server.url.startswith("nats"):
            replies.readline()
            line = b"PUB %b %d\r\n%b\r\n" % (channel.encode(), len(message), message)
            link.sendall(b'CONNECT {"verbose":false}\r\n' + line * times + b"PING\r\n")
            assert replies.readline().strip() == b"PONG"
            return
        words = [b"PUBLISH", channel.encode(), message]
        packed = b"*3\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        link.sendall(packed * times)
        for _ in range(times):
            assert replies.readline().startswith(b":")


def channel_of(url: str) -> str:
    with psycopg.connect(url.partition("?")[0]) as connection:
        row = connection.execute("select value from tidemill.meta where key = 'installation'").fetchone()
    assert row is not None
    return f"tidemill.{row[0]}.wake"


def test_a_wake_up_reaches_the_listeners_of_other_processes_and_not_the_database(
    url: str, store: Store
) -> None:
    with closing(open_store(url)) as other, closing(store.listen()) as listener:
        heard(listener, "change")  # subscribed
        with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
            connection.execute("listen tidemill_wake")
            other.notify(["ready:mail"])
            assert "ready:mail" in heard(listener, "ready:mail")
            assert list(connection.notifies(timeout=0.2)) == []


def test_wake_ups_arrive_behind_a_pooler_in_transaction_mode(
    pgbouncer_url: str, server: RestartableServer
) -> None:
    with closing(open_store(address(pgbouncer_url, server), migrate=True)) as store:
        store.migrate()
        with closing(store.listen()) as listener:
            heard(listener, "change")
            store.notify(["ready:mail"])
            heard(listener, "ready:mail")


def test_wake_ups_of_two_installations_on_one_server_are_kept_apart(
    store: Store, fresh_postgres_url: str, server: RestartableServer
) -> None:
    with closing(open_store(address(fresh_postgres_url, server), migrate=True)) as other:
        other.migrate()
        with closing(store.listen()) as listener:
            heard(listener, "change")
            other.notify(["ready:theirs"])
            store.notify(["ready:ours"])
            assert "ready:theirs" not in heard(listener, "ready:ours")


def test_a_restart_is_reported_once_and_listeners_then_look_at_everything(
    store: Store, server: RestartableServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidemill.store")
    with closing(store.listen()) as listener:
        heard(listener, "change")
        server.kill()
        assert "change" in heard(listener, "disconnected")
        store.notify(["ready:lost"])  # hints are not kept
        server.start()
        assert "ready:lost" not in heard(listener, "change")
        store.notify(["ready:mail"])
        heard(listener, "ready:mail")
    words = [record.getMessage() for record in caplog.records]
    assert [("is away" in line, "answers" in line) for line in words] == [(True, False), (False, True)], words


def test_a_halted_server_is_noticed(store: Store, server: RestartableServer) -> None:
    with closing(store.listen()) as listener:
        heard(listener, "change")
        with server.halted():
            heard(listener, "disconnected", PROBE + 3 * PATIENCE + WITHIN)
        heard(listener, "change")


FORGED = [
    b"",
    b"{",
    b"null",
    b"7",
    b"[[1]]",
    b"\xff\xfe",
    b"[" * 100_000,
    b'["reconnected","disconnected","x"]',
    b'["tick"]' * 9,
]


def test_forged_messages_cause_at_most_a_look(store: Store, url: str, server: RestartableServer) -> None:
    channel = channel_of(url)
    with closing(store.listen()) as listener:
        heard(listener, "change")
        for message in FORGED:
            publish(server, channel, message)
        publish(server, channel, b'["end"]')
        assert heard(listener, "end") <= {"change", "x", "end"}


def test_every_job_runs_once_while_messages_are_repeated_and_the_server_restarts(
    url: str, server: RestartableServer
) -> None:
    runs: list[int] = []
    channel, message = channel_of(url), json.dumps(["ready:default", "change"]).encode()
    with App(url) as app:

        @app.task
        def note(number: int) -> None:
            runs.append(number)

        with app.worker(poll=1.0):
            for round_ in range(4):
                for number in range(25):
                    note.enqueue(number=25 * round_ + number)
                publish(server, channel, message, times=200)
                server.restart()
            eventually(lambda: len(runs) >= 100)
            eventually(lambda: app.jobs.count(status="completed") == 100)
    assert sorted(runs) == list(range(100))


def test_jobs_run_by_polling_while_the_server_is_away(url: str, server: RestartableServer) -> None:
    done = threading.Event()
    with App(url) as app:

        @app.task
        def note() -> None:
            done.set()

        with app.worker(poll=1.0):
            note.enqueue().result(timeout=WITHIN)
            done.clear()
            server.kill()
            try:
                note.enqueue()
                assert done.wait(WITHIN)
            finally:
                server.start()


def test_a_pause_reaches_workers_over_the_bus_before_their_cache_expires(url: str) -> None:
    with App(url) as app, App(url) as operator:

        @app.task
        def note() -> None: ...

        with app.worker(poll=120.0), closing(app.store.listen()) as listener:
            note.enqueue().result(timeout=WITHIN)  # the worker has read pauses, settings and rules
            while listener.wait(0.2):
                pass
            operator.control.pause("queue", "default")
            heard(listener, "change", 4.0)  # sooner than the cache of 5 seconds expires
            job = note.enqueue()
            note.using(queue="other").enqueue().result(timeout=WITHIN)
            assert job.refresh().status == "pending"
            operator.control.resume("queue", "default")
            job.result(timeout=WITHIN)


def test_a_worker_that_has_lost_the_bus_no_longer_relies_on_ticks() -> None:
    clock = ManualClock()
    with App("memory://", clock=clock) as app:
        listener = WakeupListener(app.store, clock)
        listener.tell(frozenset({TICK}))
        assert listener.heard_at(TICK) == clock.monotonic()
        listener.tell(frozenset({"change", "disconnected"}))
        assert listener.heard_at(TICK) == float("-inf")
    summons = Summons(new_id(), None, "here", clock)
    summons.answers(frozenset({TICK, "fleet:100000"}))
    summons.answers(frozenset({"disconnected", "change"}))
    assert summons.answers(frozenset({"ready:default", "call:1:1"}))


SCRIPT = """
import sys
from tidemill.stores.open import open_store
store = open_store(sys.argv[1])
store.now()
store.notify(["ready:script"])
"""


def test_a_script_that_ends_right_after_its_wake_up_still_sends_it(
    store: Store, url: str, server: RestartableServer
) -> None:
    with closing(store.listen()) as listener:
        heard(listener, "change")
        named = url.replace(server.url, server.url.replace("127.0.0.1", "localhost"))
        subprocess.run([sys.executable, "-c", SCRIPT, named], check=True, timeout=60)
        heard(listener, "ready:script")


def test_a_forked_process_sends_and_receives_on_a_connection_of_its_own(store: Store) -> None:
    with closing(store.listen()) as listener:
        heard(listener, "change")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with closing(store.listen()) as own:
                    heard(own, "change")
                    store.notify(["ready:child"])
                    heard(own, "ready:child")
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        heard(listener, "ready:child")


def test_an_enqueue_in_the_users_transaction_wakes_workers_soon_after_its_commit(url: str) -> None:
    with App(url) as app, closing(app.store.listen()) as listener:

        @app.task
        def note() -> None: ...

        heard(listener, "change")
        with psycopg.connect(url.partition("?")[0]) as connection:
            note.using(connection=connection).enqueue()
        heard(listener, "ready:default", 5.0)


def test_doctor_names_the_bus_and_warns_when_it_is_away(url: str, server: RestartableServer) -> None:
    def wake_ups() -> dict[str, str]:
        checks: list[dict[str, str]] = json.loads(call("doctor", "--store", url, "--json").stdout)["checks"]
        (found,) = [check for check in checks if check["check"] == "wake-ups"]
        return found

    found = wake_ups()
    assert found["status"] == "ok"
    assert f"at {server.url}" in found["text"]
    server.kill()
    try:
        found = wake_ups()
    finally:
        server.start()
    assert found["status"] == "warn"
    assert f"{server.url} does not answer" in found["text"]


# Settings, which need no server ------------------------------------------------------------------------------------------


def test_passwords_of_a_bus_are_never_shown() -> None:
    bus = quote("redis://ann:hunter2@cache:6379/0", safe="")
    settings = read_settings(f"postgresql://ann:secret@db/jobs?wake={bus}&pool=3")
    assert settings.wake == "redis://ann:hunter2@cache:6379/0"
    assert settings.shown == "postgresql://ann@db/jobs?wake=redis://cache:6379/0&pool=3"
    for text in (repr(settings), settings.conninfo):
        assert "hunter2" not in text
    settings = read_settings("postgresql://db/jobs?wake=nats://token@one,two")
    assert settings.shown == "postgresql://db/jobs?wake=nats://one,two"
    assert read_settings(settings.shown).wake == "nats://one,two"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("wake=http://user:hunter2@cache", "wake=http://cache: give redis://host:port/0 or nats://host:port"),
        ("wake=redis", "give redis://host:port/0"),
        ("wake=redis://[", "give redis://host:port/0"),
        ("wake=redis://cache&notify=0", "notify=0 turns wake-ups off"),
    ],
)
def test_a_wrong_bus_is_refused(options: str, message: str) -> None:
    with pytest.raises(BadSettings, match=message.replace("?", r"\?")) as refused:
        read_settings(f"postgresql://db/jobs?{options}")
    assert "hunter2" not in str(refused.value)


def test_a_missing_client_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadSettings, match=r"pip install 'tidemill\[nats\]'"):
        read_settings("postgresql://db/jobs?wake=nats://cache")


def test_a_bus_that_was_never_used_closes_and_refuses_later_calls() -> None:
    bus = open_bus("redis://127.0.0.1:1/0", lambda: "channel")
    bus.close()
    bus.close()
    bus.send(["ready:mail"])
    assert bus.status().error
