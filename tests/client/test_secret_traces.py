"""A thousand secrets through a real worker leave no plaintext: in files, dumps, logs, pages or the archive."""

from __future__ import annotations

import base64
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.engine.worker_kit import WorkerProcess, until
from tests.grounds import url_of
from tests.interfaces.dashboard.kit import House
from tests.servers.postgres import TestPostgres, find_programs

from tidemill import App, Secret
from tidemill.archive.file_format import _zstd
from tidemill.tasks.secret_values import KEYS, new_key

pytestmark = pytest.mark.long

COUNT = 1_000


class Traces:
    """Texts to look for: parts of the secrets in several forms, and a public text as a check of the search itself."""

    def __init__(self) -> None:
        mark = uuid4().hex
        self.canary = f"CANARY-{mark}-hünter-🦊-"
        self.public = f"public-{mark}"
        plain = f"CANARY-{mark}"
        self._forms = [
            plain.encode(),
            plain[::-1].encode(),
            plain.encode().hex().encode(),
            plain.encode("utf-16-le"),
        ]
        # Three shifts, because base64 encodes groups of three bytes.
        self._forms += [base64.b64encode(b"x" * shift + plain.encode())[4:-4] for shift in range(3)]

    def leaks(self, data: bytes) -> bool:
        return any(form in data for form in self._forms)

    def shows_public(self, data: bytes) -> bool:
        return self.public.encode() in data


def files_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The contents of every file; of compressed ones also what is inside."""
    for path in sorted(folder.rglob("*")):
        try:
            if not path.is_file():
                continue
            data = path.read_bytes()
        except FileNotFoundError:  # a server removes its temporary files
            continue
        yield str(path), data
        if path.name.endswith(".zst"):
            yield f"{path} inside", _zstd().decompress(data)


def traces_on_disk(
    kind: str, url: str, folder: Path, postgres: TestPostgres | None
) -> Iterator[tuple[str, bytes]]:
    """The files of the store; of PostgreSQL its data directory with the WAL, and a dump."""
    yield from files_below(folder)
    if kind == "postgres":
        assert postgres is not None
        # The pages reach the disk, also those that hold removed rows.
        postgres.do("checkpoint")
        yield from files_below(Path(postgres.ask("show data_directory")))
        dump = subprocess.run([find_programs() / "pg_dump", url], capture_output=True, check=True)
        yield "dump", dump.stdout


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_run_with_a_thousand_secrets_leaves_no_plaintext(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = request.getfixturevalue("postgres") if kind == "postgres" else None
    if server is not None and not server.pids:
        pytest.skip("the files of an existing server cannot be read")
    traces, url = Traces(), url_of(kind, tmp_path, request)
    monkeypatch.setenv(KEYS, new_key("k1"))
    monkeypatch.setenv("SECRET_TRACES_STORE", url)
    monkeypatch.setenv("SECRET_TRACES_ARCHIVE", f"file://{tmp_path}/archive")
    monkeypatch.delitem(sys.modules, "tests.client.secret_traces_app", raising=False)
    app: App = importlib.import_module("tests.client.secret_traces_app").app
    with app:
        pay: Any = app.bound_task("pay")
        pay.enqueue_many(
            [
                {"card": Secret(f"{traces.canary}{number}"), "public": traces.public, "number": number}
                for number in range(COUNT)
            ]
        )
        words = [sys.executable, "-m", "tidemill", "worker", "tests.client.secret_traces_app:app"]
        options = [
            "-p",
            "1",
            "-c",
            "500",
            "--log-level",
            "debug",
            *(["--log-json"] if kind == "sqlite" else []),
        ]
        worker = WorkerProcess([*words, *options], tmp_path / "worker", {**os.environ})
        try:
            until(lambda: app.jobs.count(status=["completed", "failed"]) == COUNT, "all jobs have ended", 120)
            found = list(traces_on_disk(kind, url, tmp_path, server))
        finally:
            worker.signal(signal.SIGTERM)
            assert worker.exit_code() == 0
        assert app.jobs.count(status=["failed"]) == COUNT // 5
        found += list(shown(app, traces))
        archived = app.archive.run(older_than=timedelta(0), limit=COUNT)
        assert archived.archived > COUNT // 2
        found.append(("audit", repr(app.audit.list(tenant="*", newest=True, limit=1_000)).encode()))
    found += traces_on_disk(kind, url, tmp_path, server)
    assert sorted({name for name, data in found if traces.leaks(data)}) == []
    # The search sees what is not secret: in the store, in its WAL, in a dump, in the archive and in the log.
    seen = " ".join({name for name, data in found if traces.shows_public(data)})
    places = {"sqlite": ["jobs.db", "jobs.db-wal"], "postgres": ["dump", "pg_wal", "base"]}[kind]
    for place in [*places, "archive", ".zst inside", "worker.err", "/api/jobs"]:
        assert place in seen, place


def shown(app: App, traces: Traces) -> Iterator[tuple[str, bytes]]:
    """Pages, answers, error messages and figures of a site over the store."""
    with closing(House(app)) as shop:
        person = shop.person()
        failed = app.jobs.list(status="failed", limit=3).items
        (group,) = app.stats.errors(limit=1).rows
        pages = [
            "/",
            "/jobs",
            "/jobs?status=failed",
            "/errors",
            f"/errors/{group.fingerprint}",
            "/audit",
            "/workers",
        ]
        for path in [*pages, *(f"/jobs/{job.id}" for job in failed)]:
            yield path, person.open(path).encode()
        bearer: dict[str, str] = {}
        for role in ("viewer", "super_admin"):
            bearer = {"authorization": f"Bearer {shop.key(role, '*')}"}
            paths = ["/metrics", "/api/jobs?limit=1000", "/api/stats/errors", "/api/logs", "/api/tasks"]
            for job in failed:
                paths += [
                    f"/api/jobs/{job.id}{rest}"
                    for rest in ("", "/logs", "/executions", "/steps", "/why", "/args")
                ]
            for path in paths:
                answer = person.ask("GET", path, headers=bearer)
                assert answer.status_code < 500, (path, answer.text)
                yield path, answer.content
        # A refused request does not repeat the secret.
        for card in ({"no": traces.canary}, [traces.canary]):
            body = {"task": "pay", "args": {"card": card, "public": "", "number": "many"}}
            refused = person.ask("POST", "/api/jobs", json=body, headers=bearer)
            assert refused.status_code == 422, refused.text
            yield "refused", refused.content
            assert "card" in json.dumps(refused.json())
