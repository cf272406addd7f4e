"""Frames of the wire between hands and hubs: a header, and a message or a part of one."""

from __future__ import annotations

import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from tidemill.errors import PayloadTooLarge

VERSION = 1
LARGEST_MESSAGE = 128 * 1024 * 1024
"""Bytes of the largest message. Values of more than 1 MiB travel in parts, so a larger message is a mistake."""

_HEAD = struct.Struct(">BBBxHH16sQ")  # version, kind, flags, part, parts, sender, number
_COMPRESSED = 1
_WORTH = 8 * 1024  # bytes from which a message is compressed
_MOST_OPEN = 256  # messages whose parts have not all arrived


class MessageKind(IntEnum):
    """The purpose of a message."""

    REQUEST = 1  #: of a hand
    ANSWER = 2  #: to the request with the same number
    NOTICE = 3  #: of a hub, without a request
    WHERE = 4  #: a hand asks any hub for its address; the parts of a large request follow to that address


class WireMessage(NamedTuple):
    """A complete message."""

    kind: MessageKind
    sender: UUID
    number: int
    body: bytes


def frames_of(message: WireMessage, largest: int) -> list[bytes]:
    """The message in frames of at most ``largest`` bytes."""
    body, flags = message.body, 0
    if len(body) > LARGEST_MESSAGE:
        raise PayloadTooLarge(
            f"a message of {len(body)} bytes is over the limit of {LARGEST_MESSAGE}; store the data elsewhere and pass a reference",
            size=len(body),
            limit=LARGEST_MESSAGE,
        )
    if len(body) >= _WORTH:
        body, flags = zlib.compress(body, 1), _COMPRESSED
    size = largest - _HEAD.size
    parts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    return [
        _HEAD.pack(VERSION, message.kind, flags, place, len(parts), message.sender.bytes, message.number)
        + part
        for place, part in enumerate(parts)
    ]


class _OpenMessage(NamedTuple):
    """A message of several frames, as far as they have arrived."""

    parts: dict[int, bytes]
    expected: int


class Assembler:
    """Puts frames together to messages. Frames that are not valid are dropped: anyone may send to a broker."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[int, bytes, int], _OpenMessage] = OrderedDict()

    def add(self, frame: bytes) -> WireMessage | None:
        """The message that this frame completes, if it does."""
        if len(frame) < _HEAD.size:
            return None
        version, kind, flags, place, parts, sender, number = _HEAD.unpack_from(frame)
        body = frame[_HEAD.size :]
        if version != VERSION or kind not in _KINDS or place >= parts:
            return None
        if parts > 1:
            joined = self._joined((kind, sender, number), place, parts, body)
            if joined is None:
                return None
            body = joined
        if flags & _COMPRESSED:
            inflater = zlib.decompressobj()
            try:
                body = inflater.decompress(body, LARGEST_MESSAGE)
            except zlib.error:
                return None
            if inflater.unconsumed_tail:
                return None
        return WireMessage(MessageKind(kind), UUID(bytes=sender), number, body)

    def _joined(self, key: tuple[int, bytes, int], place: int, parts: int, part: bytes) -> bytes | None:
        message = self._open.setdefault(key, _OpenMessage({}, parts))
        message.parts[place] = part
        if len(message.parts) == message.expected:
            del self._open[key]
            return b"".join(message.parts[at] for at in sorted(message.parts))
        if len(self._open) > _MOST_OPEN or sum(map(len, message.parts.values())) > LARGEST_MESSAGE:
            self._open.popitem(last=False)
        return None


_KINDS = frozenset(MessageKind)


def numbers() -> Iterator[int]:
    """Numbers for the messages of one process."""
    number = 0
    while True:
        number += 1
        yield number
