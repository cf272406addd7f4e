"""Hostile texts in every table of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, make_shop, terminal

from tidemill import Every

HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202evil"
_FORBIDDEN = set("\x07\r\x9b\u202e")

TABLES = [
    ("jobs", "list"),
    ("queues", "list"),
    ("schedules", "list"),
    ("definitions", "list"),
    ("limits", "list"),
    ("workers", "list"),
    ("tenants", "list"),
    ("keys", "list"),
    ("config", "list"),
    ("audit", "list"),
    ("logs", "search"),
    ("tasks", "list"),
    ("stats",),
    ("leases", "list"),
    ("alerts",),
    ("doctor",),
    ("keys", "status"),
    ("errors", "list"),
    ("batches", "list"),
    ("events", "list"),
    ("sessions", "list"),
    ("alerts", "history"),
    ("archive", "search"),
    ("stats", "errors"),
]


@pytest.fixture(scope="module")
def hostile_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        shop = make_shop(folder)
        with shop.app() as app:
            send = app.bound_task("send")
            using = send.using(tags=["a" + HOSTILE], metadata={"note": HOSTILE}, correlation_id=HOSTILE)
            using.enqueue(to=HOSTILE)
            app.bound_task("fail").enqueue(words=HOSTILE)
            with app.batch("letters", description=HOSTILE):
                app.bound_task("fail").enqueue(words=HOSTILE)
            app.testing().drain()
            app.signals.emit("letter", HOSTILE, match=HOSTILE)
            using.enqueue(to=HOSTILE)
            app.definitions.save("letters", send, args={"to": HOSTILE}, name="n" + HOSTILE, owner=HOSTILE)
            app.schedules.add(send, Every("1h"), "hourly", args={"to": HOSTILE})
            app.control.pause("queue", "mail", reason=HOSTILE)
            app.control.set("colour", HOSTILE)
        yield shop


@pytest.mark.parametrize("words", TABLES, ids=" ".join)
def test_no_command_prints_control_characters(hostile_shop: Shop, words: tuple[str, ...]) -> None:
    for env in ({}, terminal(200)):
        done = hostile_shop.run(*words, env=env)
        assert done.exit_code in (0, 1), done.output
        assert not set(done.output) & _FORBIDDEN
        # Only sequences that set a style remain.
        for part in done.output.split("\x1b")[1:]:
            assert part.startswith("["), part[:20]
            assert part.lstrip("[0123456789;")[:1] == "m", part[:20]


def test_the_hostile_texts_are_really_there(hostile_shop: Shop) -> None:
    (definition,) = hostile_shop.json("definitions", "list")
    assert definition["args"] == {"to": HOSTILE}
