"""A private Prometheus server that scrapes targets of a test."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml  # type: ignore[import-untyped]
from tests.servers.processes import ProcessGuard, ServiceMissing, end, free_port, listening

_PATIENCE = 60.0


class Target(NamedTuple):
    """A page of metrics: the name of its job, its port on this machine, and the key it asks for."""

    job: str
    port: int
    key: str | None = None


class Prometheus:
    """A running server, as its HTTP API shows it."""

    def __init__(self, port: int) -> None:
        self._server = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        """Whether it answers queries: it listens before that."""
        try:
            with urlopen(f"{self._server}/-/ready", timeout=30):
                return True
        except HTTPError:
            return False

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Evaluate an expression now; return the labels and the value of each series."""
        data = self._ask(f"query?{urlencode({'query': expression})}")
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(series["metric"], float(series["value"][1])) for series in data["result"]]

    def targets(self) -> dict[str, tuple[str, str]]:
        """The health and the last error of each target, by the name of its job."""
        active = self._ask("targets")["activeTargets"]
        return {target["labels"]["job"]: (target["health"], target["lastError"]) for target in active}

    def _ask(self, path: str) -> Any:
        with urlopen(f"{self._server}/api/v1/{path}", timeout=30) as answer:
            return json.load(answer)["data"]


def find_prometheus() -> str:
    """Return the server program, or raise ``ServiceMissing``."""
    if program := shutil.which("prometheus"):
        return program
    raise ServiceMissing("prometheus was not found; on Debian, run: apt install prometheus")


@contextlib.contextmanager
def running_prometheus(targets: Sequence[Target], *, every: str = "1s") -> Iterator[Prometheus]:
    """Run a private server for a ``with`` block, which scrapes the targets."""
    program = find_prometheus()
    home = Path(tempfile.mkdtemp(prefix="tm-prometheus-"))
    scrapes = [
        {
            "job_name": target.job,
            "static_configs": [{"targets": [f"127.0.0.1:{target.port}"]}],
            **({} if target.key is None else {"authorization": {"credentials": target.key}}),
        }
        for target in targets
    ]
    config = {"global": {"scrape_interval": every, "scrape_timeout": every}, "scrape_configs": scrapes}
    (home / "prometheus.yml").write_text(yaml.safe_dump(config))
    port, log = free_port(), home / "log"
    words = [
        program,
        f"--config.file={home / 'prometheus.yml'}",
        f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=home, start_new_session=True
        )
    (home / "pid").write_text(str(process.pid))
    guard = ProcessGuard("prometheus", home / "pid", [home])
    try:
        if not listening(port, process, _PATIENCE):
            raise ServiceMissing(
                f"Prometheus did not start: {log.read_text(errors='replace').strip()[-300:]}"
            )
        prometheus = Prometheus(port)
        while not prometheus.is_ready():
            if process.poll() is not None:
                raise ServiceMissing(f"Prometheus ended: {log.read_text(errors='replace').strip()[-300:]}")
            threading.Event().wait(0.05)
        yield prometheus
    finally:
        end(process, signal.SIGTERM)
        guard.release()
        shutil.rmtree(home, ignore_errors=True)
