"""The files in ``deploy/``: they render, their commands exist, and their probes answer."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
import yaml  # type: ignore[import-untyped]
from starlette.testclient import TestClient
from tests.docs.test_commands import parse
from tests.engine.worker_kit import own_address, until

from tidemill import App
from tidemill.rest import create_api

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
JOBS = """
import time
from tidemill import App, Context
app = App()

@app.task
def slow(ctx: Context, seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)
    return "finished"
"""


def rendered() -> list[dict[str, Any]]:
    """The objects of the kustomize base."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / "kubernetes")], capture_output=True, text=True, check=True
    )
    return list(yaml.safe_load_all(done.stdout))


def containers() -> dict[str, dict[str, Any]]:
    """The containers of the base by name."""
    return {
        container["name"]: {**container, "pod": found["spec"]["template"]["spec"]}
        for found in rendered()
        if found["kind"] in ("Deployment", "Job")
        for container in found["spec"]["template"]["spec"]["containers"]
    }


def test_the_base_renders_with_its_image_and_its_configuration() -> None:
    found = rendered()
    assert sorted(item["kind"] for item in found) == [
        "ConfigMap", "Deployment", "Deployment", "Job", "PodDisruptionBudget", "Service",
    ]  # fmt: skip
    (config,) = (item["metadata"]["name"] for item in found if item["kind"] == "ConfigMap")
    for container in containers().values():
        assert container["image"].startswith("registry.example/shop:")
        assert {"configMapRef": {"name": config}} in container["envFrom"]
        parse(shlex.join(container["command"]))


def test_probes_ask_the_health_port_and_the_pod_outlives_the_grace_period() -> None:
    worker = containers()["worker"]
    options = dict(word.split("=", 1) for word in worker["command"] if "=" in word)
    (port,) = worker["ports"]
    assert int(options["--health-port"]) == port["containerPort"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert worker[probe]["httpGet"]["port"] == port["name"]
    assert worker["pod"]["terminationGracePeriodSeconds"] > float(options["--grace"])


def status(url: str) -> int:
    try:
        with urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code
    except (URLError, OSError):
        return 0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


def test_the_worker_of_the_base_answers_its_probes_on_the_address_of_the_pod_and_drains(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "jobs.py").write_text(JOBS)
    url = f"sqlite:///{tmp_path}/jobs.db"
    with App(url, migrate=True):
        pass
    worker, port = containers()["worker"], free_port()
    words = [re.sub(r"^--health-port=.*", f"--health-port={port}", word) for word in worker["command"][1:]]
    environment = {**os.environ, "TIDEMILL_STORE": url, "PYTHONPATH": str(tmp_path)}
    with (tmp_path / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidemill", *words], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
    base = f"http://{own_address()}:{port}"
    assert not base.startswith("http://127.0.0.1")
    try:
        until(lambda: status(base + worker["readinessProbe"]["httpGet"]["path"]) == 200, "it is ready")
        assert status(base + worker["livenessProbe"]["httpGet"]["path"]) == 200
        with App(url) as app:
            job = app.enqueue("slow", seconds=2.0)
            until(lambda: job.refresh().status in ("claimed", "running"), "the job has begun")
            process.send_signal(signal.SIGTERM)
            until(lambda: status(base + "/readyz") == 503, "it is not ready while it drains")
            assert process.wait(40) == 0
            assert job.refresh().result() == "finished"
            assert job.attempt == 1
    finally:
        process.kill()
        process.wait(10)


def test_the_dashboard_of_the_base_answers_its_probes_on_the_address_of_the_pod(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "jobs.py").write_text(JOBS)
    url = f"sqlite:///{tmp_path}/jobs.db"
    with App(url, migrate=True) as app:
        app.keys.create("ops", role="admin")
    dashboard, port = containers()["dashboard"], free_port()
    words = [re.sub(r"^--port=.*", f"--port={port}", word) for word in dashboard["command"][1:]]
    environment = {**os.environ, "TIDEMILL_STORE": url, "PYTHONPATH": str(tmp_path)}
    with (tmp_path / "dashboard.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidemill", *words], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
    base = f"http://{own_address()}:{port}"
    assert not base.startswith("http://127.0.0.1")
    try:
        # Probes of the kubelet have no key.
        until(lambda: status(base + dashboard["readinessProbe"]["httpGet"]["path"]) == 200, "it is ready")
        assert status(base + dashboard["livenessProbe"]["httpGet"]["path"]) == 200
        assert status(base + "/api/jobs") == 401
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0
    finally:
        process.kill()
        process.wait(10)


def test_the_scaler_reads_metrics_that_exist() -> None:
    _, scaler = yaml.safe_load_all((DEPLOY / "kubernetes" / "keda.yaml").read_text())
    triggers = {trigger["name"]: trigger["metadata"] for trigger in scaler["spec"]["triggers"]}
    formula = scaler["spec"]["advanced"]["scalingModifiers"]["formula"]
    assert sorted(triggers) == sorted(formula.split(" + "))
    with App("memory://") as app:
        key: Any = app.keys.create("keda", role="viewer")
        client = TestClient(create_api(app))
        text = client.get("/metrics", headers={"Authorization": f"Bearer {key.secret}"}).text
    names = {line.rpartition(" ")[0] for line in text.splitlines()}
    assert {metadata["valueLocation"] for metadata in triggers.values()} <= names


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda path: path.name)
def test_systemd_accepts_a_unit(unit: Path, tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("tidemill")
    text = (
        unit.read_text()
        .replace("/srv/shop/.venv/bin/tidemill", str(command))
        .replace("User=shop", "User=root")
    )
    (start,) = re.findall(r"^ExecStart=\S*/(tidemill .*)$", text, re.MULTILINE)
    parse(start)
    copy = tmp_path / unit.name
    copy.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    own = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
    assert (done.returncode, own) == (0, [])


def test_the_commands_of_the_other_files_exist() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    commands = [
        shlex.join(service["command"]) for service in compose["services"].values() if "command" in service
    ]
    commands += re.findall(r"^\w+: (tidemill .*)$", (DEPLOY / "Procfile").read_text(), re.MULTILINE)
    (image,) = re.findall(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    commands.append(shlex.join(yaml.safe_load(image)))
    assert len(commands) == 7
    for command in commands:
        parse(command.replace("${PORT:-8080}", "8080"))
    grace = compose["services"]["worker"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) > 25


@pytest.mark.skipif(shutil.which("docker") is None, reason="docker is not installed")
def test_compose_accepts_its_file() -> None:
    words = ["docker", "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "is not a docker command" in done.stderr or "unknown shorthand flag" in done.stderr:
        pytest.skip("docker compose is not installed")
    assert done.returncode == 0, done.stderr
