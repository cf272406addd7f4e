"""Check of ``tidemill doctor``: the wire between hubs and hands."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.configuration import value_of
from tidemill.errors import TidemillError
from tidemill.stores.hub.store import HubStore
from tidemill.stores.wire.open import open_wire

TIMEOUT = 3.0
"""Seconds to wait for the broker, and for a hub."""


def look_at_wire() -> Iterator[tuple[str, str, str]]:
    """The broker that ``TIDEMILL_WIRE`` names, and with ``TIDEMILL_KEY`` whether a hub answers: status, check and text."""
    url = value_of("TIDEMILL_WIRE")
    if not url:
        return
    key = value_of("TIDEMILL_KEY")
    try:
        wire = open_wire(url)
        try:
            wire.wait_connected(TIMEOUT)
            if key:
                HubStore(wire, key, timeout=TIMEOUT).check()
        finally:
            wire.close()
    except TidemillError as error:
        yield "fail", "wire", error.message
        return
    if key:
        yield "ok", "wire", f"a hub answers over {wire.url}, and accepts the key in TIDEMILL_KEY"
    else:
        yield (
            "ok",
            "wire",
            f"the broker at {wire.url} answers; with a key in TIDEMILL_KEY, the hubs are checked too",
        )
