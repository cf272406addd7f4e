"""Answers of the asynchronous methods of ``app.shards``, in an app with two shards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from tests.client.shards_kit import SHARDS, sharded_app, unsettled

from tidemill.domain.tenant_placement import PlacementState


def _with_shards(name: str, *args: str) -> Callable[[Any], Awaitable[Any]]:
    """Return a story that places a tenant, calls both versions of a method and returns both results."""

    async def story(_: Any) -> Any:
        with sharded_app(dict.fromkeys(("home", *SHARDS), "memory://")) as app:
            app.shards.place("eu-acme")
            answer = await getattr(app.shards, f"a{name}")(*args)
            return answer, getattr(app.shards, name)(*args)

    return story


async def _moved(_: Any) -> Any:
    with sharded_app(dict.fromkeys(("home", *SHARDS), "memory://")) as app, unsettled():
        app.shards.place("eu-acme")
        return await app.shards.amove("eu-acme", "us")


async def _cancelled(_: Any) -> Any:
    with sharded_app(dict.fromkeys(("home", *SHARDS), "memory://")) as app:
        row = app.shards.place("eu-acme")
        app.stores["default"].replace([replace(row, state=PlacementState.MOVING, target="us")])
        return await app.shards.acancel_move("eu-acme")


def _both(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda answers: answers[0] == answers[1] and check(answers[0])


def shard_stories() -> dict[str, tuple[Callable[[Any], Awaitable[Any]], Any]]:
    """The stories by the name of the method, each with a check of the results."""
    return {
        "Shards.alist": (
            _with_shards("list"),
            _both(lambda shards: {shard.name: shard.tenants for shard in shards}["eu"] == 1),
        ),
        "Shards.aplacements": (
            _with_shards("placements"),
            _both(lambda rows: [(row.tenant, row.shard) for row in rows] == [("eu-acme", "eu")]),
        ),
        "Shards.aof": (_with_shards("of", "eu-acme"), _both(lambda row: row.shard == "eu")),
        "Shards.aplace": (
            _with_shards("place", "us-acme", "us"),
            _both(lambda row: (row.tenant, row.shard) == ("us-acme", "us")),
        ),
        "Shards.amove": (_moved, lambda row: (row.shard, row.state.value) == ("us", "placed")),
        "Shards.acancel_move": (_cancelled, lambda row: (row.shard, row.state.value) == ("eu", "placed")),
    }
