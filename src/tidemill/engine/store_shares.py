"""Division of a worker's processes and slots among the stores that it serves.

Every store gets a part of its own, so that a store with much work cannot delay another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tidemill.engine.worker_settings import WorkerSettings
from tidemill.errors import BadSettings

Wanted = Mapping[str, int | None]
"""The stores that a worker serves, each with its number of processes if one was given."""


def read_stores(given: str | Sequence[str] | None) -> dict[str, int | None]:
    """Read the stores to serve; none are given as None or an empty mapping.

    >>> read_stores("jobs=3, reports")
    {'jobs': 3, 'reports': None}
    """
    if given is None:
        return {}
    parts = [part.strip() for part in (given.split(",") if isinstance(given, str) else given)]
    shares: dict[str, int | None] = {}
    for part in parts:
        name, equals, number = part.partition("=")
        if not name or (equals and (not number.isdecimal() or int(number) < 1)):
            raise BadSettings(
                f"{part!r} is not a store to serve; give its name, or its name and a number of processes: jobs=3",
                setting="stores",
            )
        if name in shares:
            raise BadSettings(f"the store {name!r} is listed twice", setting="stores")
        shares[name] = int(number) if equals else None
    if not shares:
        raise BadSettings("a worker without a store has no jobs; leave stores out to serve all of them")
    return shares


def read_shard_choice(given: str | None) -> dict[str, int | None]:
    """Read the shards to serve; ``all`` and None stand for every store.

    >>> read_shard_choice("all"), read_shard_choice("eu=2,us")
    ({}, {'eu': 2, 'us': None})
    """
    return {} if given == "all" else read_stores(given)


def chosen_stores(stores: Wanted, shards: Wanted) -> Wanted:
    """Return the stores that a worker serves: shards are stores, and only one of the two options is given."""
    if stores and shards:
        raise BadSettings(
            "give --stores or --shards, not both: a shard is a store with tenants", setting="shards"
        )
    return stores or shards


def read_embedded_stores(given: str | Sequence[str] | None) -> dict[str, int | None]:
    """Read the stores of a worker inside the user's process, which has no processes to divide."""
    wanted = read_stores(given)
    for name, number in wanted.items():
        if number is not None:
            raise BadSettings(
                f"stores: {name}={number} is a number of processes; a worker inside your process has one,"
                " run several with: tidemill worker APP --stores",
                setting="stores",
            )
    return wanted


def served_stores(live: Sequence[str], names: Collection[str], wanted: Wanted) -> tuple[str, ...]:
    """Return the stores to serve: those that were named, else every live one."""
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise BadSettings(
            f"the app has no store named {unknown[0]!r}; there are {', '.join(sorted(names))}",
            setting="stores",
        )
    return tuple(wanted) or tuple(live)


def divide(total: int, stores: Sequence[str], wanted: Wanted) -> dict[str, int]:
    """Divide runner processes among stores.

    A store with a number of its own gets that many. The others share the rest of the total evenly, earlier ones first,
    and each gets at least one.

    >>> divide(5, ["jobs", "eu", "us"], {})
    {'jobs': 2, 'eu': 2, 'us': 1}
    >>> divide(4, ["jobs", "eu", "us"], {"eu": 4})
    {'jobs': 1, 'eu': 4, 'us': 1}
    """
    open_ended = [name for name in stores if wanted.get(name) is None]
    left = total - sum(wanted.get(name) or 0 for name in stores)
    shares = dict(zip(open_ended, portions(left, len(open_ended)), strict=True))
    return {name: wanted.get(name) or shares[name] for name in stores}


def portions(total: int, parts: int) -> list[int]:
    """Divide a number evenly; each part is at least one.

    >>> portions(5, 2), portions(1, 3), portions(-2, 2)
    ([3, 2], [1, 1, 1], [1, 1])
    """
    if not parts:
        return []
    portion, rest = divmod(max(total, 0), parts)
    return [max(1, portion + (number < rest)) for number in range(parts)]


def divided(settings: WorkerSettings, parts: int) -> list[WorkerSettings]:
    """Divide the slots of one process among stores; a kind with any slot has at least one in each part."""

    def share(slots: int) -> list[int]:
        return portions(slots, parts) if slots else [0] * parts

    kinds = zip(share(settings.concurrency), share(settings.threads), share(settings.children), strict=True)
    return [
        replace(settings, concurrency=concurrency, threads=threads, children=children)
        for concurrency, threads, children in kinds
    ]
