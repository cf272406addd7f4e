"""Test services are real, isolated for each user, and removed afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.servers import processes
from tests.servers.postgres import (
    GIVEN,
    RUNNING,
    PrivatePostgres,
    TestPostgres,
    any_postgres,
    running_postgres,
)
from tests.servers.processes import ServiceMissing, child_pids

TREE = Path(__file__).resolve().parents[2]


def ask(url: str, question: str) -> object:
    with psycopg.connect(url, connect_timeout=5) as connection:
        row = connection.execute(question.encode()).fetchone()
    return row[0] if row is not None else None


@pytest.fixture(scope="module")
def private() -> Iterator[PrivatePostgres]:
    with running_postgres(settings={"work_mem": "5MB"}) as server:
        yield server


def test_the_server_answers(postgres: TestPostgres, postgres_url: str) -> None:
    assert ask(postgres_url, "SELECT 1") == 1
    assert str(ask(postgres_url, "SHOW server_version")).startswith(postgres.version)


def test_two_databases_are_separate(fresh_postgres_url: str, postgres_url: str) -> None:
    with psycopg.connect(fresh_postgres_url) as connection:
        connection.execute("CREATE TABLE only_here ()")
    assert ask(fresh_postgres_url, "SELECT to_regclass('only_here')::text") == "only_here"
    assert ask(postgres_url, "SELECT to_regclass('only_here')::text") is None


def test_a_database_can_be_copied_and_dropped_while_a_client_is_connected(postgres: TestPostgres) -> None:
    original = postgres.create_database(f"original_{os.getpid()}")
    with psycopg.connect(original) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    copy = postgres.create_database(f"copy_{os.getpid()}", template=f"original_{os.getpid()}")
    assert ask(copy, "SELECT number FROM kept") == 7
    with psycopg.connect(copy):
        postgres.drop_database(f"copy_{os.getpid()}")
    postgres.drop_database(f"original_{os.getpid()}")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        ask(copy, "SELECT 1")


def test_pgbouncer_leads_to_the_same_database(pgbouncer_url: str, postgres_url: str) -> None:
    assert ask(pgbouncer_url, "SELECT current_database()") == ask(postgres_url, "SELECT current_database()")


def test_a_shared_server_is_not_restarted(monkeypatch: pytest.MonkeyPatch, postgres: TestPostgres) -> None:
    monkeypatch.setenv(RUNNING, postgres.url())
    with any_postgres() as server:
        assert ask(server.url(), "SELECT 1") == 1
        with pytest.raises(ServiceMissing, match="cannot be restarted"):
            server.restart()


def test_a_configured_server_is_used_instead_of_a_private_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUNNING, raising=False)
    monkeypatch.setenv(GIVEN, "postgresql://someone:secret@db.example:5433/postgres?sslmode=require")
    with any_postgres() as server:
        assert server.url("mine") == "postgresql://someone:secret@db.example:5433/mine?sslmode=require"
        assert server.pids == ()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_private_server_keeps_its_address_after_a_restart(private: PrivatePostgres, mode: str) -> None:
    address, before = private.url(), private.pids[0]
    with psycopg.connect(address) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS survivors (n int)")
    private.restart("fast" if mode == "fast" else "immediate")
    assert private.url() == address
    assert private.pids[0] != before
    assert ask(address, "SELECT to_regclass('survivors')::text") == "survivors"


def test_a_private_server_has_the_requested_settings(private: PrivatePostgres) -> None:
    assert ask(private.socket_url(), "SHOW work_mem") == "5MB"
    assert ask(private.socket_url(), "SHOW fsync") == "off"
    assert ask(private.socket_url(), "SHOW server_encoding") == "UTF8"


def test_a_stopped_server_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    data = tmp_path / "cluster"
    with running_postgres(data, major=16) as server:
        pids, home = server.pids, server.log.parent
        assert server.version.startswith("16.")
        assert len(pids) > 1
        assert server.data_dir == data
        server.stop()
        assert server.pids == ()
    assert [pid for pid in pids if _alive(pid)] == []
    assert not data.exists()
    assert not home.exists()


def test_a_killed_run_stops_its_server() -> None:
    program = (
        "import time\nfrom tests.servers.postgres import running_postgres\nwith running_postgres() as server:\n"
        "    print(server.pids[0], server.log.parent, flush=True)\n    time.sleep(60)\n"
    )
    environment = dict(os.environ, PYTHONPATH=str(TREE / "src"))
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as run:
        assert run.stdout is not None
        pid, home = run.stdout.readline().split()
        assert _alive(int(pid))
        guards = child_pids(run.pid)
        run.send_signal(signal.SIGKILL)
    assert guards
    for _ in range(500):
        if not _alive(int(pid)) and not Path(home).exists():
            break
        time.sleep(0.02)
    assert not _alive(int(pid))
    assert not Path(home).exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become nobody")
def test_root_without_user_namespaces_runs_the_server_as_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "namespaces_work", lambda: False)
    with running_postgres() as server:
        assert ask(server.url(), "SELECT 1") == 1
        assert Path(f"/proc/{server.pids[0]}").stat().st_uid != 0


def test_an_unknown_version_is_rejected() -> None:
    with pytest.raises(ServiceMissing, match="PostgreSQL 9 is not available"), running_postgres(major=9):
        pass


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat")
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
