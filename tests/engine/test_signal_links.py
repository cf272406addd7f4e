"""Callback URLs of jobs in threads, coroutines and child processes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.worker_kit import until
from tests.grounds import url_of

from tidemill import App, Context, ManualClock, NoRetry
from tidemill.domain.signal_links import PATH, read_link

SECRET = "whsec_c2VjcmV0"
SITE = "https://jobs.example.com"


@pytest.fixture(params=["sqlite", "postgres"])
def kit(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The app of ``durable_app``, with a store that its child processes reach, too."""
    monkeypatch.setenv("DURABLE_STORE", url_of(request.param, tmp_path, request))
    monkeypatch.setenv("TIDEMILL_CALLBACK_SECRET", SECRET)
    sys.modules.pop("tests.engine.durable_app", None)
    module = importlib.import_module("tests.engine.durable_app")
    with module.app:
        yield module
    sys.modules.pop("tests.engine.durable_app", None)


@pytest.mark.parametrize("kind", ["thread", "loop", "process", "process loop"])
def test_every_kind_of_job_makes_a_url_that_signals_it(kit: Any, kind: str, tmp_path: Path) -> None:
    job = kit.GATES[kind].enqueue(folder=str(tmp_path))
    with kit.app.worker(threads=1, children=1, queues=["default"]):
        until((tmp_path / "url").exists, "the job has made its URL")
        until(lambda: (tmp_path / "url").read_text().endswith("\n"), "the URL is complete")
        url = (tmp_path / "url").read_text().strip()
        assert url.startswith(SITE + PATH)
        link = read_link(SECRET, url.removeprefix(SITE + PATH))
        assert (link.job_id, link.tenant, link.name) == (job.id, "default", "approved")
        assert kit.app.signals.send(link.job_id, link.name, "yes", key=link.key)
        assert not kit.app.signals.send(link.job_id, link.name, "no", key=link.key)
        assert job.result(timeout=60) == "yes"


def url_problem(app: App, monkeypatch: pytest.MonkeyPatch, **how: Any) -> str:
    @app.task(retry=NoRetry())
    def gate(ctx: Context) -> str:
        return ctx.callback_url(how.get("name", "approved"), ttl=how.get("ttl", "1h"))

    job = gate.enqueue()
    app.testing().drain()
    return str(job.refresh().row.error)


def test_a_url_needs_an_address_and_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMILL_CALLBACK_SECRET", raising=False)
    with App("memory://") as app:
        assert "give the app one: App(dashboard_url='https://…')" in url_problem(app, monkeypatch)
    with App("memory://", dashboard_url=SITE) as app:
        assert "ctx.callback_url needs TIDEMILL_CALLBACK_SECRET" in url_problem(app, monkeypatch)


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"name": ""}, "is not a name of a signal"),
        ({"name": "ask/x"}, "are answers"),
        ({"ttl": timedelta(0)}, "give more than 0"),
        ({"ttl": timedelta(days=400)}, "at most 366 days"),
    ],
)
def test_a_url_for_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], problem: str
) -> None:
    monkeypatch.setenv("TIDEMILL_CALLBACK_SECRET", SECRET)
    with App("memory://", dashboard_url=SITE) as app:
        assert problem in url_problem(app, monkeypatch, **how)


def test_a_url_in_a_step_stays_the_same_when_the_job_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_CALLBACK_SECRET", SECRET)
    urls: list[str] = []
    with App("memory://", dashboard_url=f"{SITE}/", clock=ManualClock()) as app:

        @app.task
        def gate(ctx: Context) -> str:
            urls.append(ctx.step("url", ctx.callback_url, "approved"))
            ctx.sleep("rest", "1h")
            return "done"

        gate.enqueue()
        testing = app.testing()
        testing.drain()
        testing.advance("2h")
        testing.drain()
    assert len(urls) == 2
    assert urls[0] == urls[1]
    assert "//api" not in urls[0]
