"""Reduction of PNG files to at most 256 colours, with the standard library only."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

MAGIC = b"\x89PNG\r\n\x1a\n"
MOST = 256
FREQUENT = 208


def smaller(png: bytes) -> bytes:
    """Convert a picture to a palette of its most frequent and its most distinct colours; others become the nearest."""
    width, height, rows, step = pixels(png)
    counts: Counter[bytes] = Counter()
    for row in rows:
        counts.update(row[at : at + 3] for at in range(0, width * step, step))
    kept = _chosen([colour for colour, _ in counts.most_common()])
    numbers = {colour: number for number, colour in enumerate(kept)}
    for colour in counts:
        if colour not in numbers:
            numbers[colour] = _nearest(colour, kept)
    lines = b"".join(
        b"\0" + bytes(numbers[row[at : at + 3]] for at in range(0, width * step, step)) for row in rows
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    colours = b"".join(kept)
    return (
        MAGIC
        + chunk(b"IHDR", head)
        + chunk(b"PLTE", colours)
        + chunk(b"IDAT", zlib.compress(lines, 9))
        + chunk(b"IEND", b"")
    )


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height."""
    width, height = struct.unpack(">II", png[16:24])
    return int(width), int(height)


def colours_of(png: bytes) -> int:
    """The number of colours in the palette; 0 without a palette."""
    return sum(len(body) // 3 for kind, body in chunks(png) if kind == b"PLTE")


def _chosen(colours: list[bytes]) -> list[bytes]:
    """Choose the colours to keep from a list ordered by frequency, so that a small dot keeps its distinct colour."""
    kept, others = colours[:FREQUENT], colours[FREQUENT:]
    apart = [min(_distance(colour, each) for each in kept) for colour in others]
    while others and len(kept) < MOST:
        farthest = max(range(len(others)), key=apart.__getitem__)
        chosen = others[farthest]
        kept.append(chosen)
        apart = [min(far, _distance(colour, chosen)) for far, colour in zip(apart, others, strict=True)]
        del others[farthest], apart[farthest]
    return kept


def _distance(one: bytes, other: bytes) -> int:
    return (one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2 + (one[2] - other[2]) ** 2


def _nearest(colour: bytes, palette: list[bytes]) -> int:
    return min(range(len(palette)), key=lambda number: _distance(palette[number], colour))


def chunk(kind: bytes, body: bytes) -> bytes:
    """Encode one chunk of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Iterate over the chunks of a PNG: type and body."""
    at = len(MAGIC)
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


def pixels(png: bytes) -> tuple[int, int, list[bytes], int]:
    """The width, the height, the rows, and the bytes per pixel."""
    parts = list(chunks(png))
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", parts[0][1])
    if (depth, interlaced) != (8, 0) or kind not in (2, 6):
        raise ValueError(f"a picture of depth {depth} and kind {kind} is not read here")
    step = 3 if kind == 2 else 4
    raw = zlib.decompress(b"".join(body for name, body in parts if name == b"IDAT"))
    rows: list[bytes] = []
    above = bytes(width * step)
    for number in range(height):
        start = number * (width * step + 1)
        line = bytearray(raw[start + 1 : start + 1 + width * step])
        _unfilter(raw[start], line, above, step)
        above = bytes(line)
        rows.append(above)
    return width, height, rows, step


def _unfilter(kind: int, line: bytearray, above: bytes, step: int) -> None:
    """Reverse the PNG filter of a row in place."""
    if kind == 0:
        return
    for at in range(len(line)):
        left = line[at - step] if at >= step else 0
        up = above[at]
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = up
        elif kind == 3:
            guess = (left + up) >> 1
        else:
            corner = above[at - step] if at >= step else 0
            whole = left + up - corner
            far = (abs(whole - left), abs(whole - up), abs(whole - corner))
            guess = (left, up, corner)[far.index(min(far))]
        line[at] = (line[at] + guess) & 255
