"""Tests of health reports: HTTP probes, the service manager and the log."""

from __future__ import annotations

import json
import logging
import socket
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from http.client import HTTPConnection
from io import StringIO
from typing import Any

import pytest
from tests.engine.worker_kit import own_address

from tidemill.clock import ManualClock
from tidemill.engine.deathwatch import end_in_words
from tidemill.engine.health import HealthVerdict, default_host
from tidemill.engine.health_server import HealthServer
from tidemill.engine.log_formats import JsonLines, PlainLines, write_logs
from tidemill.engine.supervisor.runner_process import Backoff
from tidemill.engine.supervisor.systemd import Notifier
from tidemill.errors import BadSettings


class Patient:
    """A health source with a fixed verdict."""

    verdict = HealthVerdict(alive=True, ready=True)

    def judge(self) -> HealthVerdict:
        return self.verdict


@pytest.fixture
def patient() -> Patient:
    return Patient()


@pytest.fixture
def health(patient: Patient) -> Iterator[HealthServer]:
    health = HealthServer(patient.judge, port=0)
    health.start()
    yield health
    health.close()
    health.close()


def ask(health: HealthServer, path: str, method: str = "GET", host: str | None = None) -> tuple[int, Any]:
    line = HTTPConnection(host or health.host, health.port, timeout=5)
    line.request(method, path)
    answer = line.getresponse()
    body = answer.read()
    line.close()
    return answer.status, json.loads(body) if body else None


# Probes ------------------------------------------------------------------------------------------------------------------


def test_a_working_worker_is_alive_and_ready(health: HealthServer) -> None:
    assert ask(health, "/livez") == (200, {"alive": True})
    assert ask(health, "/readyz") == (200, {"ready": True, "reasons": []})
    assert ask(health, "/readyz?verbose") == (200, {"ready": True, "reasons": []})
    assert ask(health, "/readyz", "HEAD") == (200, None)


def test_the_metrics_of_a_worker_are_in_prometheus_text_format(
    health: HealthServer, patient: Patient
) -> None:
    runners = [{"pid": 7, "done": 5, "running": 2, "free": 1, "phase": "working", "stuck": None}, {"pid": 8}]
    patient.verdict = HealthVerdict(alive=True, ready=False, details={"runners": runners, "leading": True})
    line = HTTPConnection(health.host, health.port, timeout=5)
    line.request("GET", "/metrics")
    answer = line.getresponse()
    told = answer.read().decode().splitlines()
    line.close()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert [row for row in told if not row.startswith("#")] == [
        "tidemill_worker_up 1",
        "tidemill_worker_ready 0",
        "tidemill_worker_leading 1",
        "tidemill_worker_fires_without_hooks_total 0",
        'tidemill_runner_jobs_total{runner="7"} 5',
        'tidemill_runner_running{runner="7"} 2',
        'tidemill_runner_free_slots{runner="7"} 1',
        'tidemill_worker_claims_total{result="full"} 0',
        'tidemill_worker_claims_total{result="some"} 0',
        'tidemill_worker_claims_total{result="empty"} 0',
        'tidemill_worker_claims_total{result="failed"} 0',
        "tidemill_worker_claimed_jobs_total 0",
        'tidemill_worker_contention_total{kind="busy"} 0',
        'tidemill_worker_contention_total{kind="lost"} 0',
        "tidemill_steps_total 0",
        "tidemill_suspensions_total 0",
    ]


def test_a_worker_that_cannot_take_jobs_reports_why_and_stays_alive(
    health: HealthServer, patient: Patient
) -> None:
    patient.verdict = HealthVerdict(
        alive=True, ready=False, reasons=("the store does not answer",), details={"runners": []}
    )
    assert ask(health, "/livez") == (200, {"alive": True})
    said = {"ready": False, "reasons": ["the store does not answer"], "runners": []}
    assert ask(health, "/readyz") == (503, said)


def test_a_hanging_worker_is_neither_alive_nor_ready(health: HealthServer, patient: Patient) -> None:
    patient.verdict = HealthVerdict(alive=False, ready=True)
    assert ask(health, "/livez")[0] == 503
    assert ask(health, "/readyz")[0] == 503


def test_other_paths_are_not_found(health: HealthServer) -> None:
    assert ask(health, "/")[0] == 404
    assert ask(health, "/livez/../etc")[0] == 404


def test_it_listens_on_loopback_by_default(health: HealthServer) -> None:
    assert health.host == "127.0.0.1"


@pytest.mark.parametrize("host", ["::", "0.0.0.0"])
def test_a_wildcard_address_answers_on_all_addresses_of_this_machine(patient: Patient, host: str) -> None:
    health = HealthServer(patient.judge, port=0, host=host)
    try:
        health.start()
        for address in ("127.0.0.1", own_address()):
            assert ask(health, "/livez", host=address) == (200, {"alive": True})
    finally:
        health.close()


def test_the_default_is_every_address_in_a_pod_and_loopback_elsewhere() -> None:
    assert default_host({}) == "127.0.0.1"
    assert default_host({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}) in ("::", "0.0.0.0")


def test_a_port_in_use_raises_a_clear_error(health: HealthServer, patient: Patient) -> None:
    with pytest.raises(BadSettings, match="choose another --health-port"):
        HealthServer(patient.judge, port=health.port)


def test_a_client_that_sends_no_request_blocks_no_other(health: HealthServer) -> None:
    with socket.create_connection((health.host, health.port)):
        assert ask(health, "/livez")[0] == 200
        health.close()


# The service manager -----------------------------------------------------------------------------------------------------


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
    ):
        listener.bind(f"{folder}/notify")
        listener.settimeout(5)
        yield listener


def heard(manager: socket.socket) -> str:
    return manager.recv(1000).decode()


def test_the_service_manager_is_notified_of_each_change_once(manager: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()}, ManualClock(), pid=1)
    notifier.ready()
    notifier.status("2 runners")
    notifier.status("2 runners")
    notifier.ping()  # no watchdog was requested
    notifier.stopping()
    assert [heard(manager) for _ in range(3)] == ["READY=1", "STATUS=2 runners", "STOPPING=1"]


def test_an_abstract_socket_address_works() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("")  # the system chooses an abstract name
        listener.settimeout(5)
        name = listener.getsockname()
        assert isinstance(name, bytes)
        Notifier({"NOTIFY_SOCKET": "@" + name[1:].decode()}, ManualClock(), pid=1).ready()
        assert listener.recv(100) == b"READY=1"


def test_the_watchdog_is_pinged_twice_per_interval(manager: socket.socket) -> None:
    clock = ManualClock()
    given = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "7"}
    notifier = Notifier(given, clock, pid=7)
    assert notifier.watched
    assert not Notifier(given, clock, pid=8).watched
    for _ in range(20):
        notifier.ping()
        clock.advance(timedelta(seconds=0.25))
    notifier.stopping()
    said: list[str] = []
    while not said or said[-1] != "STOPPING=1":
        said.append(heard(manager))
    assert said == ["WATCHDOG=1"] * 5 + ["STOPPING=1"]


@pytest.mark.parametrize("address", ["", "relative/path", "/nowhere/at/all"])
def test_without_a_service_manager_no_message_is_sent_and_no_call_fails(address: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "not a number"}, ManualClock(), pid=1)
    notifier.ready()
    notifier.ping()
    assert not notifier.watched


# The log -----------------------------------------------------------------------------------------------------------------


def test_a_log_line_is_one_json_object() -> None:
    try:
        raise ValueError("no\nluck")
    except ValueError as error:
        record = logging.makeLogRecord(
            {"msg": "job %s", "args": ("7",), "exc_info": (ValueError, error, None)}
        )
    record.tenant = "acme"
    line = JsonLines().format(record)
    assert "\n" not in line
    facts = json.loads(line)
    assert facts["message"] == "job 7"
    assert facts["tenant"] == "acme"
    assert "no\nluck" in facts["traceback"]


def test_messages_of_the_http_server_do_not_have_error_in_their_logger_name() -> None:
    record = logging.makeLogRecord({"name": "uvicorn.error", "levelname": "INFO", "msg": "started"})
    assert json.loads(JsonLines().format(record))["logger"] == "uvicorn"
    line = PlainLines().format(record)
    assert " uvicorn [" in line
    assert "error" not in line
    assert record.name == "uvicorn.error"


def test_a_program_that_configured_logging_keeps_its_configuration() -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    own = logging.StreamHandler(StringIO())
    try:
        root.handlers[:] = [own]
        write_logs("debug")
        assert root.handlers == [own]
        root.handlers[:] = []
        stream = StringIO()
        write_logs("debug", as_json=True, stream=stream)
        logging.getLogger("tidemill.worker").debug("hello")
        assert json.loads(stream.getvalue())["message"] == "hello"
    finally:
        root.handlers[:], root.level = before, level


# Restarts ----------------------------------------------------------------------------------------------------------------


def test_short_runs_are_followed_by_growing_pauses_up_to_a_bound() -> None:
    backoff = Backoff()
    pauses = [backoff.after(lived=1.0) for _ in range(2000)]
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert max(pauses) == pauses[-1] == 30.0


def test_after_a_long_run_the_next_restart_is_quick_again() -> None:
    backoff = Backoff()
    for _ in range(10):
        backoff.after(lived=1.0)
    assert backoff.after(lived=60.0) == 0.1
    assert backoff.after(lived=59.0) == 0.2


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "exited with code 0"), (-9, "was killed by SIGKILL"), (-63, "was killed by signal 63")],
)
def test_an_exit_code_is_described_in_words(code: int, words: str) -> None:
    assert end_in_words(code) == words
