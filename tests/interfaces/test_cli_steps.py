"""``tidemill jobs show`` of a durable function."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, make_shop

DURABLE = """

@app.task
def durable(ctx: Context, pin: str) -> int:
    value = ctx.step("count", len, pin)
    try:
        ctx.step("refuse", refuse)
    except PermanentError:
        ctx.sleep("rest", "1h")
    return value


def refuse() -> None:
    raise PermanentError("no funds")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    shop = make_shop(tmp_path)
    with (tmp_path / f"{shop.name}.py").open("a", encoding="utf-8") as file:
        file.write(DURABLE)
    return shop


def test_show_lists_the_recorded_steps(shop: Shop) -> None:
    id = shop.run("jobs", "enqueue", "durable", "pin=abc").stdout.strip()
    assert "Steps" not in shop.run("jobs", "show", id).stdout
    assert shop.json("jobs", "show", id)["steps"] == []
    shop.drain()
    shown = shop.run("jobs", "show", id)
    assert shown.exit_code == 0
    table = shown.stdout.partition("Steps\n")[2]
    for words in ("count", "value", "refuse", "PermanentError: no funds", "rest", "sleep"):
        assert words in table, words
    steps = {step["name"]: step for step in shop.json("jobs", "show", id)["steps"]}
    assert (steps["count"]["kind"], steps["count"]["value"]) == ("value", 3)
    assert (steps["refuse"]["kind"], steps["refuse"]["tries"]) == ("error", 1)
    assert set(steps["rest"]["value"]) == {"at"}
