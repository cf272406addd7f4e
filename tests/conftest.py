"""Shared fixtures: real services, and a check that every test cleans up.

A test that needs a missing service is skipped and listed in the table at the end of the run. With
TIDEMILL_TEST_ALL=1 it fails instead.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import threading
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from tests.grounds import THOROUGH, new_database, pool_of
from tests.servers.pgbouncer import find_pgbouncer, pgbouncer_version, running_pgbouncer
from tests.servers.postgres import GIVEN, RUNNING, TestPostgres, any_postgres, find_programs
from tests.servers.processes import ServiceMissing, ancestry, child_pids
from tests.servers.rabbitmq import RabbitNode, running_rabbitmq
from tests.servers.restartable import RestartableServer, running_redis_server
from tests.services import MISSING, go_without

from tidemill.clock import SystemClock

# A busy machine is slow, and slowness alone is no counterexample.
hypothesis.settings.register_profile("tidemill", deadline=None, max_examples=100 if THOROUGH else 30)
hypothesis.settings.load_profile("tidemill")

# A shell starts background commands with SIGINT ignored, and child processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REQUESTED_BY = {"nightly": "TIDEMILL_TEST_NIGHTLY", "long": "TIDEMILL_TEST_ALL"}
"""The markers of tests that a run leaves out, and the variable that requests them."""

HERE = Path(__file__).resolve().parent
GRACE_SECONDS = 20.0

_WANTED = re.compile(r"\b(?:fresh_|migrated_)?postgres(?:_url)?\b|\bpgbouncer_url\b")
_run = pytest.StashKey[contextlib.ExitStack]()
_found = pytest.StashKey[TestPostgres]()
_left_out = pytest.StashKey[dict[str, int]]()
_SERVICE_PIDS: set[int] = set()


# ------------------------------------------------------------------------------- one server for the whole run


def pytest_configure(config: pytest.Config) -> None:
    """Start PostgreSQL once, in the main process of the run, if the chosen files mention it.

    Workers of pytest-xdist inherit the environment and with it the URL. If no chosen file mentions it, a
    process that needs the server starts its own, which is slower and equally correct.
    """
    config.stash[_run] = contextlib.ExitStack()
    leads_workers = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if not leads_workers or config.getoption("collectonly") or not _speaks_of_postgres(config):
        return
    with contextlib.suppress(ServiceMissing):  # each test that needs it reports that it is missing
        server = config.stash[_run].enter_context(any_postgres())
        assert server.version  # read now, so that the table at the end does not need a running server
        config.stash[_found] = server
        os.environ[RUNNING] = server.url()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the services that this process started, however the run ended."""
    if _run in config.stash:
        if _found in config.stash:
            os.environ.pop(RUNNING, None)
        config.stash[_run].close()


def _speaks_of_postgres(config: pytest.Config) -> bool:
    for argument in config.args:
        chosen = Path(config.invocation_params.dir, argument.partition("::")[0])
        files = chosen.rglob("*.py") if chosen.is_dir() else [chosen, chosen.with_name("conftest.py")]
        for path in files:
            if (
                path != HERE / "conftest.py"
                and path.is_file()
                and _WANTED.search(path.read_text(encoding="utf-8"))
            ):
                return True
    return False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect long and nightly tests, unless an option or their names request them. The summary counts them."""
    if config.getoption("markexpr") or any("::" in word or "faults" in word for word in config.args):
        return
    for marker, variable in REQUESTED_BY.items():
        if os.environ.get(variable):
            continue
        left_out = [item for item in items if item.get_closest_marker(marker) is not None]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.get_closest_marker(marker) is None]
            config.stash.setdefault(_left_out, {})[marker] = len(left_out)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Pause garbage collection: a third of the time of collecting all tests was spent on it, and it found nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exclude the modules and tests, which live to the end of the run, from every later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the numbers of deselected tests to the main process. Each xdist worker collects all tests."""
    told: dict[str, dict[str, int]] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["left_out"] = session.config.stash.get(_left_out, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep the numbers that the xdist worker sent for the summary."""
    told = getattr(node, "workeroutput", {}).get("left_out", {})
    node.config.stash.setdefault(_left_out, {}).update(told)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print a table of the services: version and location, or why tests were skipped."""
    for marker, count in config.stash.get(_left_out, {}).items():
        option = {"long": "--all", "nightly": "--nightly"}[marker]
        terminalreporter.write_line(
            f"{count} {marker} tests were left out; {option}, or their names, run them",
            yellow=True,
            bold=True,
        )
    without: dict[str, tuple[str, int]] = {}
    for report in (*terminalreporter.stats.get("skipped", ()), *terminalreporter.stats.get("error", ())):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if match := MISSING.search(text):
            count = without.get(match[1], ("", 0))[1]
            without[match[1]] = (match[2].splitlines()[0], count + 1)
    if not without and not _speaks_of_postgres(config):
        return
    rows = [("service", "version", "how found", "skipped why"), *_services(config, without)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    terminalreporter.section("services", sep="-")
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        terminalreporter.write_line(line, yellow=row[0] in without, bold=row[0] in without)


def _services(
    config: pytest.Config, without: dict[str, tuple[str, int]]
) -> Iterator[tuple[str, str, str, str]]:
    for name in ("postgres", "pgbouncer"):
        if name in without:
            why, count = without[name]
            yield name, "-", "not found", f"{why} ({count} test{'s' if count > 1 else ''})"
        else:
            with contextlib.suppress(ServiceMissing):
                yield name, *_seen(config, name), ""
    for name in sorted(without.keys() - {"postgres", "pgbouncer"}):
        why, count = without[name]
        yield name, "-", "not found", f"{why} ({count} test{'s' if count > 1 else ''})"


def _seen(config: pytest.Config, name: str) -> tuple[str, str]:
    if name == "pgbouncer":
        program = find_pgbouncer()
        return pgbouncer_version(program), str(program)
    if _found in config.stash:
        return config.stash[_found].version, config.stash[_found].how_found
    return "-", GIVEN if os.environ.get(
        GIVEN
    ) else f"not asked for; programs in {find_programs().parents[1].name}"


# ------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Iterator[TestPostgres]:
    """The PostgreSQL server of this run. It is shared: a test that restarts a server uses running_postgres()."""
    if _found not in pytestconfig.stash:
        before = child_pids(os.getpid()).keys()
        try:
            server = pytestconfig.stash[_run].enter_context(any_postgres())
            assert server.version
        except ServiceMissing as missing:
            go_without("postgres", missing)
        # The server stays up for the whole run, so it is no leak of the test that started it.
        _SERVICE_PIDS.update(child_pids(os.getpid()).keys() - before)
        pytestconfig.stash[_found] = server
    yield pytestconfig.stash[_found]
    pool_of(pytestconfig.stash[_found]).close()


@contextlib.contextmanager
def _database(server: TestPostgres) -> Iterator[str]:
    name = f"tidemill_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{uuid.uuid4().hex[:8]}"
    url = server.create_database(name)
    try:
        yield url
    finally:
        server.drop_database(name)


@pytest.fixture(scope="session")
def postgres_url(postgres: TestPostgres) -> Iterator[str]:
    """The URL of this worker's own database, which keeps the rows of earlier tests."""
    with _database(postgres) as url:
        yield url


@pytest.fixture
def fresh_postgres_url(postgres: TestPostgres) -> Iterator[str]:
    """The URL of a new empty database, dropped after the test."""
    with _database(postgres) as url:
        yield url


@pytest.fixture
def migrated_postgres_url(postgres: TestPostgres) -> Iterator[str]:
    """The URL of a database with all tables and no rows; the next test gets it empty, or another one."""
    with new_database(postgres) as url:
        yield url


@pytest.fixture(scope="session")
def pgbouncer_url(postgres_url: str) -> Iterator[str]:
    """The URL of this worker's own database through PgBouncer in transaction mode."""
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(running_pgbouncer(postgres_url))
        except ServiceMissing as missing:
            go_without("pgbouncer", missing)
        yield url


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitNode]:
    """A RabbitMQ node. It is shared: a test uses names of its own, and starts the node again if it stops it."""
    with contextlib.ExitStack() as stack:
        try:
            node = stack.enter_context(running_rabbitmq())
        except ServiceMissing as missing:
            go_without("rabbitmq", missing)
        yield node


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RestartableServer]:
    """A Redis server of this module, which its tests may restart and halt."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running_redis_server())
        except ServiceMissing as missing:
            go_without("redis", missing)
        yield server


# ------------------------------------------------------------------------------------------------- leak check


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Fail a test that leaves a thread or a child process running after a short grace period."""
    threads, children = set(threading.enumerate()), set(child_pids(os.getpid()))
    yield
    clock = SystemClock()
    deadline = clock.monotonic() + GRACE_SECONDS
    new = [thread for thread in threading.enumerate() if thread not in threads and not thread.daemon]
    for thread in new:
        thread.join(max(0.0, deadline - clock.monotonic()))
    left = [f"thread {thread.name}" for thread in new if thread.is_alive()]
    while extra := _strangers(children | _SERVICE_PIDS):
        if clock.monotonic() > deadline:
            left += [f"process {pid}: {command}" for pid, command in extra.items()]
            break
        threading.Event().wait(0.02)
    if left:
        pytest.fail("left running: " + "; ".join(left), pytrace=False)


def _strangers(known: set[int]) -> dict[int, str]:
    """New child processes, without those that multiprocessing keeps for the life of the process."""
    own = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
    return {
        pid: command
        for pid, command in child_pids(os.getpid()).items()
        if known.isdisjoint(ancestry(pid)) and not any(word in command for word in own)
    }
