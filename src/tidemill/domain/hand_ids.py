"""Ids of hands: a UUID version 7 that only the owner of a key can create.

A hub keeps no state about hands, and any hub may answer any of them. So the id of a hand contains a code that its key authenticates:
48 of the random bits are an HMAC of the others, made with the hash of the key's secret. A hub accepts a claim or a write only for
the ids of the key that came with it.
"""

from __future__ import annotations

import hashlib
import hmac
from uuid import UUID

DICE_BYTES = 4
_CODE_BITS = 48
_CODE = (1 << _CODE_BITS) - 1
_VERSION = 0x7 << 76
_VARIANT = 0x2 << 62


def hand_id(key_hash: str, millis: int, dice: bytes) -> UUID:
    """A new id of a hand with this key, from the time and ``DICE_BYTES`` random bytes.

    >>> id = hand_id("ab" * 32, 1_700_000_000_000, bytes(4))
    >>> id.version, is_hand_of(id, "ab" * 32), is_hand_of(id, "cd" * 32)
    (7, True, False)
    """
    chosen = int.from_bytes(dice[:DICE_BYTES], "big")
    number = (millis & _CODE) << 80 | _VARIANT | _VERSION
    number |= (chosen >> 20 & 0xFFF) << 64 | (chosen & 0x3FFF) << _CODE_BITS
    return UUID(int=number | _code(key_hash, number >> _CODE_BITS))


def is_hand_of(id: UUID, key_hash: str) -> bool:
    """Whether the owner of this key has created the id."""
    number = id.int
    code = _code(key_hash, number >> _CODE_BITS)
    return hmac.compare_digest((number & _CODE).to_bytes(6, "big"), code.to_bytes(6, "big"))


def _code(key_hash: str, rest: int) -> int:
    digest = hmac.digest(key_hash.encode(), b"tidemill hand" + rest.to_bytes(10, "big"), hashlib.sha256)
    return int.from_bytes(digest[:6], "big")
