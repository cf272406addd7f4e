"""Tests of the MCP server, in memory and over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from tests.interfaces.cli_kit import make_shop

from tidemill import App, Every, PermanentError, Review, __version__
from tidemill.contrib.mcp import READING, WRITING, create_server
from tidemill.errors import UsageError

LISTS = {"alerts", "errors", "list_jobs", "logs", "why"}


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://") as app:

        @app.task
        def send(to: str, password: str = "") -> str:
            if to == "nobody":
                raise PermanentError("there is nobody")
            if to == "review":
                raise Review("look at it")
            return to

        app.schedules.add("send", Every("1d"), "daily", args={"to": "ada"})
        yield app


def call(server: Any, tool: str, **arguments: Any) -> Any:
    """The answer of a tool, or its error text."""

    async def main() -> Any:
        async with Client(server) as client:
            result = await client.call_tool(tool, arguments)
            texts = [getattr(part, "text", "") for part in result.content]
            if result.is_error:
                return "".join(texts)
            values = [json.loads(text) for text in texts]
            # Each item of a list is a part of its own.
            return values if tool in LISTS else values[0]

    return asyncio.run(main())


def tools_of(server: Any) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        async with Client(server) as client:
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    return asyncio.run(main())


def test_without_a_key_a_server_only_reads_and_masks_secrets(app: App) -> None:
    job = app.enqueue("send", to="nobody", password="hunter2")
    app.testing().drain()
    server = create_server(app)
    tools = tools_of(server)
    assert sorted(tools) == sorted(READING)
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools.values())
    found = call(server, "job", id=str(job.id))
    assert found["status"] == "failed"
    assert found["args"] == {"to": "nobody", "password": "***"}
    assert "there is nobody" in json.dumps(call(server, "errors"))
    assert [item["id"] for item in call(server, "list_jobs", status="failed")] == [str(job.id)]
    assert call(server, "list_jobs", status="completed") == []
    assert call(server, "why", id=str(job.id))[0]["text"]
    assert call(server, "overview")["ended"] == 1
    assert call(server, "logs", id=str(job.id)) == []
    assert isinstance(call(server, "alerts"), list)


def test_an_error_has_its_code(app: App) -> None:
    answer = call(create_server(app), "job", id="0197a000-0000-7000-8000-00000000000a")
    assert "job_not_found" in answer


def test_an_operator_acts_and_the_audit_names_the_key(app: App) -> None:
    key: Any = app.keys.create("assistant", role="operator")
    server = create_server(app, key=key.secret, act=True)
    assert sorted(tools_of(server)) == sorted(READING + WRITING)
    failed, review, waiting = (app.enqueue("send", to=to) for to in ("nobody", "review", "later"))
    app.testing().drain(limit=2)
    assert call(server, "retry", id=str(failed.id))["status"] == "pending"
    assert call(server, "approve", id=str(review.id), comment="fine")["status"] == "completed"
    assert call(server, "cancel", id=str(waiting.id), reason="not needed")["status"] == "cancelled"
    assert call(server, "trigger", schedule="daily")["task"] == "send"
    assert call(server, "pause", kind="queue", name="default")["name"] == "default"
    assert call(server, "resume", kind="queue", name="default") is True
    actors = {record.entry.who for record in app.audit.list()}
    assert [actor for actor in actors if actor.startswith("mcp:") and "assistant" in actor]
    # An operator sees what viewers do not.
    secret = app.enqueue("send", to="ada", password="hunter2")
    assert call(server, "job", id=str(secret.id))["args"]["password"] == "hunter2"


def test_acting_needs_the_key_of_an_operator(app: App) -> None:
    with pytest.raises(UsageError, match="need an API key; set TIDEMILL_KEY"):
        create_server(app, act=True)
    viewer: Any = app.keys.create("viewer", role="viewer")
    with pytest.raises(UsageError, match="the role viewer; tools that change jobs need operator"):
        create_server(app, key=viewer.secret, act=True)
    with pytest.raises(UsageError, match="unknown, expired or revoked"):
        create_server(app, key="tm_wrong")


@pytest.mark.parametrize(
    ("options", "restriction"),
    [
        ({"role": "operator", "grants": ["jobs.read task=send"]}, "grants"),
        ({"roles": {"acme": "viewer", "bolt": "operator"}}, "roles by tenant"),
        ({"role": "viewer", "environment": "staging"}, "an environment"),
        ({"role": "viewer", "grants": ["jobs.read"], "environment": "staging"}, "grants and an environment"),
    ],
)
def test_a_key_with_restrictions_that_tools_do_not_apply_is_refused(
    app: App, options: dict[str, Any], restriction: str
) -> None:
    key: Any = app.keys.create("restricted", **options)
    with pytest.raises(UsageError, match=f"has {restriction}, which MCP tools do not apply") as refusal:
        create_server(app, key=key.secret)
    assert "restricted" in str(refusal.value)


def test_a_key_of_one_tenant_sees_only_its_jobs_and_pauses_nothing(app: App) -> None:
    key: Any = app.keys.create("acme", role="operator", tenant="acme")
    server = create_server(app, key=key.secret, act=True)
    own = app.enqueue("send", to="ada")
    with app.tenant("acme"):
        theirs = app.enqueue("send", to="bob")
    assert [item["id"] for item in call(server, "list_jobs")] == [str(theirs.id)]
    assert "job_not_found" in call(server, "job", id=str(own.id))
    for tool in ("pause", "resume"):
        assert "requires a key of all tenants" in call(server, tool, kind="queue", name="default")


def test_a_key_of_one_tenant_sees_no_alerts_of_the_installation(app: App) -> None:
    """As in the HTTP API: alerts name workers, leaders and queues of all tenants."""
    key: Any = app.keys.create("acme", role="viewer", tenant="acme")
    assert "metrics.read is refused" in call(create_server(app, key=key.secret), "alerts")


@pytest.mark.parametrize("kind", ["tenant", "all", "global"])
def test_an_operator_pauses_only_queues_and_tasks(app: App, kind: str) -> None:
    key: Any = app.keys.create("assistant", role="operator")
    server = create_server(app, key=key.secret, act=True)
    assert "give queue or task" in call(server, "pause", kind=kind, name="default")
    assert "give queue or task" in call(server, "resume", kind=kind, name="default")
    assert app.control.pauses() == []


def test_the_command_serves_standard_input_and_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    shop = make_shop(tmp_path)
    with shop.app() as app:
        job = app.enqueue("send", to="ada")
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tidemill", "mcp", shop.where],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert [item["id"] for item in call(server, "list_jobs")] == [str(job.id)]


def test_a_server_introduces_itself_with_its_version_and_describes_its_tools(app: App) -> None:
    key = app.keys.create("ops", role="operator")

    async def introduction() -> tuple[str, str]:
        async with Client(create_server(app, key=key.secret, act=True)) as client:
            assert client.server_info is not None
            return client.server_info.name, client.server_info.version

    assert asyncio.run(introduction()) == ("tidemill", __version__)
    tools = tools_of(create_server(app, key=key.secret, act=True))
    assert set(tools) == {*READING, *WRITING}
    assert [name for name, tool in tools.items() if not tool.description] == []
