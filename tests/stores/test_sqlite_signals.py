"""Tests of wake-ups on an SQLite file, by sockets and by polling."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stores.sqlite_kit import open_file, put

from tidemill.stores.sql.sqlite import wakeups
from tidemill.stores.sql.sqlite.wakeups import LARGEST, broadcast, folder_of, payloads
from tidemill.stores.sql.store import SqlStore
from tidemill.stores.wakeup_messages import CHANGE

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0

sockets = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    store = open_file(path)
    yield store
    store.close()


def in_another_process(program: str, *arguments: str) -> subprocess.Popen[str]:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    command = [
        sys.executable,
        "-c",
        "from tests.stores.sqlite_kit import *\nimport sys\n" + program,
        *arguments,
    ]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


@sockets
def test_a_notification_wakes_another_process_at_once(store: SqlStore, path: Path) -> None:
    store.check()
    program = (
        "store = open_file(sys.argv[1])\nlistener = store.listen()\nprint('ready', flush=True)\n"
        "print(sorted(listener.wait(30)), flush=True)\nlistener.close()\nstore.close()\n"
    )
    with in_another_process(program, str(path)) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        time.sleep(0.05)
        began = time.monotonic()
        store.notify(["queue:mail", "jobs"])
        assert other.stdout.readline() == "['jobs', 'queue:mail']\n"
        # Much earlier than it would have polled.
        assert time.monotonic() - began < 0.4
    assert other.returncode == 0


@sockets
def test_the_socket_directory_is_private_and_removed_with_the_last_socket(
    store: SqlStore, path: Path
) -> None:
    first, second = store.listen(), store.listen()
    folder = folder_of(str(path))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(list(folder.iterdir())) == 2
    first.close()
    assert len(list(folder.iterdir())) == 1
    second.close()
    assert not folder.exists()


@sockets
def test_two_paths_of_one_file_share_wake_ups(tmp_path: Path, path: Path, store: SqlStore) -> None:
    store.check()
    link = tmp_path / "link.db"
    link.symlink_to(path)
    assert folder_of(str(link)) == folder_of(str(path))
    assert folder_of(str(tmp_path / "other.db")) != folder_of(str(path))


@sockets
def test_the_socket_of_a_dead_listener_is_removed(store: SqlStore, path: Path) -> None:
    listener = store.listen()
    dead = folder_of(str(path)) / "dead"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(str(dead))
    store.notify(["jobs"])
    assert listener.wait(PATIENCE) == {"jobs"}
    # Close sends to every listener first.
    store.close()
    assert not dead.exists()


@sockets
def test_a_listener_with_a_full_socket_buffer_reports_a_change(store: SqlStore, path: Path) -> None:
    listener = store.listen()
    room = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) if sys.platform == "linux" else 10
    for n in range(room + 50):
        broadcast(str(path), [f"topic-{n}"])
    topics = listener.wait(PATIENCE)
    assert f"topic-{room + 49}" not in topics
    assert CHANGE in topics
    broadcast(str(path), ["one"])
    assert listener.wait(PATIENCE) == {"one"}
    listener.close()


@sockets
def test_a_listener_that_does_not_read_blocks_no_sender(store: SqlStore, path: Path) -> None:
    deaf, listener = store.listen(), store.listen()
    for n in range(2000):
        broadcast(str(path), [f"topic-{n}"])
        if n % 50 == 0:
            listener.wait(0)
    listener.wait(0)
    broadcast(str(path), ["last"])
    assert "last" in listener.wait(PATIENCE)
    deaf.close()
    listener.close()


@sockets
def test_a_socket_directory_that_is_not_private_is_not_used(path: Path, store: SqlStore) -> None:
    folder = folder_of(str(path))
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    try:
        listener = store.listen()
        assert list(folder.iterdir()) == []
        store.notify(["jobs"])
        other = open_file(path)
        put(other)
        other.close()
        assert listener.wait(PATIENCE) == {CHANGE}
        listener.close()
    finally:
        folder.rmdir()


def test_topics_of_a_transaction_are_sent_after_its_commit(store: SqlStore) -> None:
    listener = store.listen()
    with store.transaction():
        put(store)
        store.notify(["jobs"])
        assert listener.wait(0) == frozenset()
    assert listener.wait(PATIENCE) == {"jobs"}

    def work() -> None:
        with store.transaction():
            store.notify(["never"])
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert listener.wait(0) == frozenset()
    listener.close()


def test_a_change_without_a_notification_is_found_by_polling(
    store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = store.listen()
    other = open_file(path)
    put(other)
    assert listener.wait(PATIENCE) == {CHANGE}
    assert listener.wait(0.01) == frozenset()
    listener.close()
    other.close()


def test_without_sockets_the_file_is_polled(
    store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "_AF_UNIX", None)
    listener, other = store.listen(), open_file(path)
    # No listener receives this.
    store.notify(["jobs"])
    put(other)
    assert listener.wait(PATIENCE) == {CHANGE}
    listener.close()
    other.close()


@pytest.mark.parametrize("closed", ["listener", "store"])
def test_close_wakes_a_waiting_listener(store: SqlStore, closed: str) -> None:
    listener = store.listen()
    topics: list[frozenset[str]] = []
    thread = threading.Thread(target=lambda: topics.append(listener.wait(PATIENCE)))
    thread.start()
    time.sleep(0.02)
    (listener if closed == "listener" else store).close()
    thread.join(PATIENCE / 2)
    assert topics == [frozenset()]
    listener.close()
    assert listener.wait(PATIENCE) == frozenset()


def test_a_closed_store_leaves_no_thread(store: SqlStore) -> None:
    before = set(threading.enumerate())
    listener = store.listen()
    for n in range(20):
        store.notify([f"topic-{n}"])
    assert listener.wait(PATIENCE)
    store.close()
    assert set(threading.enumerate()) <= before


def test_messages_are_small_and_contain_every_topic() -> None:
    topics = {f"queue:{'ü' * 40}{n}" for n in range(200)}
    sent = list(payloads(topics))
    assert len(sent) > 1
    assert all(len(message) <= LARGEST for message in sent)
    assert {topic for message in sent for topic in json.loads(message)} == topics
    assert [json.loads(message) for message in payloads({"x" * LARGEST})] == [[CHANGE]]
    assert list(payloads(())) == []
