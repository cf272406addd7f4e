"""The shards of an app, as its code gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidemill.domain.bounds import check_name
from tidemill.errors import BadSettings
from tidemill.stores.base import Store

PlaceFor = Callable[[str], str | None]
"""A user's function from a new tenant to its shard; None leaves the choice to the weights."""

ALL_SHARDS = "*"
"""The name that stands for all shards of an app; each call goes to the shard of its tenant."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard: its URL, its share of the new tenants compared with other shards, and whether it gets any.

    A shard without a URL is the app's store of that name: ``shards={"default": None, "us": "postgresql://…"}``.

    >>> Shard("postgresql://eu1,eu2/jobs", weight=2.0).open
    True
    """

    store: str | Store | None
    weight: float = 1.0
    open: bool = True


GivenShard = str | Store | Shard | None


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """The shards of an app by name, and the function that places new tenants."""

    shards: Mapping[str, Shard]
    place: PlaceFor | None = None

    @property
    def weights(self) -> dict[str, float]:
        """The weights of the shards that get new tenants."""
        return {name: shard.weight for name, shard in self.shards.items() if shard.open}

    def added_to(self, stores: Mapping[str, str | Store]) -> dict[str, str | Store]:
        """Return the stores of an app together with those of its shards."""
        combined = dict(stores)
        for name, shard in self.shards.items():
            if shard.store is None and name not in stores:
                raise BadSettings(
                    f"shard {name!r} has no URL, and the app has no store of this name", setting="shards"
                )
            if shard.store is not None and name in stores:
                raise BadSettings(
                    f"shard {name!r} has a URL, and the app has a store of this name already; give None, or another name",
                    setting="shards",
                )
            if shard.store is not None:
                combined[name] = shard.store
        return combined


def read_shards(given: Mapping[str, GivenShard] | None, place: PlaceFor | None) -> ShardSettings | None:
    """Check the shards of an app; None for an app without shards."""
    if place is not None and not callable(place):
        raise BadSettings(
            f"place is {place!r}; give a function that takes a tenant and returns the name of a shard",
            setting="place",
        )
    if given is None:
        if place is not None:
            raise BadSettings(
                "place chooses the shard of a new tenant, and there are no shards; give shards=",
                setting="place",
            )
        return None
    if not given:
        raise BadSettings("shards is empty; give at least one, such as {'eu': 'postgresql://…'}")
    shards = {name: shard if isinstance(shard, Shard) else Shard(shard) for name, shard in given.items()}
    for name, shard in shards.items():
        check_name("shard", name)
        if shard.weight <= 0:
            raise BadSettings(
                f"shard {name!r} has the weight {shard.weight}; give a number above zero, or open=False",
                setting="shards",
            )
    return ShardSettings(shards, place)
