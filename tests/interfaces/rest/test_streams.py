"""Streams of jobs over HTTP and in the command line."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.interfaces.cli_kit import make_shop
from tests.interfaces.rest.served import PATIENCE, place

from tidemill import Context


def test_a_client_that_reconnects_gets_every_item_once_and_in_order() -> None:
    with place() as where:
        halfway = threading.Event()

        @where.app.task(name="speak")
        def talk(ctx: Context) -> None:
            for n in range(300):
                ctx.stream("tokens").write(f"token {n}")
                if n == 150:
                    halfway.wait(PATIENCE)

        with where.app.worker():
            path = f"/api/jobs/{talk.enqueue().id}/streams/tokens"
            first = where.follow(path)
            assert first.answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            seen = []
            for event in first.events():
                seen.append(event)
                if len(seen) == 100:
                    break
            first.close()
            halfway.set()
            again = where.follow(path, **{"last-event-id": seen[-1].id})
            seen += again.events()  # the stream ends with the job
        assert [event.name for event in seen] == ["item"] * 300 + ["end"]
        assert [event.data["value"] for event in seen[:-1]] == [f"token {n}" for n in range(300)]
        assert [event.id for event in seen[:-1]] == [f"1-{n}" for n in range(1, 301)]
        assert where.follow(path, **{"last-event-id": seen[-1].id}).answer.status == 204
        late = list(where.follow(path).events())
        assert [event.data for event in late] == [event.data for event in seen]
        status, document = where.request("GET", path.removesuffix("/tokens"))
        assert (status, document["items"]) == (200, [{"name": "tokens", "items": 300}])
        assert where.follow(path, **{"last-event-id": "seven"}).answer.status == 422


def test_the_command_line_prints_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    shop = make_shop(tmp_path)
    with shop.app() as app:

        @app.task(name="talk")
        def talk(ctx: Context) -> None:
            ctx.stream("tokens").write("Hello", ",\n", "world", {"n": 1})

        id = str(talk.enqueue().id)
        app.testing().drain()
    assert shop.run("jobs", "stream", id, "tokens").stdout == 'Hello,\nworld{"n": 1}\n'
    assert shop.json("jobs", "stream", id, "tokens", "--after", "1-3") == {
        "id": "1-4",
        "execution": 1,
        "index": 4,
        "value": {"n": 1},
    }
    assert shop.json("jobs", "stream", id) == [{"name": "tokens", "items": 4}]
    assert "tokens" in shop.run("jobs", "stream", id).stdout
