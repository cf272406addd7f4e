"""Reduction of screenshots to a palette."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from random import Random

import pytest
from tests.interfaces.dashboard.palette import MAGIC, chunk, chunks, colours_of, pixels, size_of, smaller

ROOT = Path(__file__).resolve().parents[3]


def picture(rows: list[list[tuple[int, int, int]]], kinds: list[int]) -> bytes:
    """A PNG whose rows use these filters."""
    width, above, lines = len(rows[0]), bytes(len(rows[0]) * 3), b""
    for row, kind in zip(rows, kinds, strict=True):
        line = bytes(part for colour in row for part in colour)
        lines += bytes([kind]) + bytes(_filtered(kind, line, above, at) for at in range(len(line)))
        above = line
    head = struct.pack(">IIBBBBB", width, len(rows), 8, 2, 0, 0, 0)
    return MAGIC + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def _filtered(kind: int, line: bytes, above: bytes, at: int) -> int:
    left, up, corner = (line[at - 3], above[at], above[at - 3]) if at >= 3 else (0, above[at], 0)
    whole = left + up - corner
    nearest = min((left, up, corner), key=lambda each: abs(whole - each))
    return (line[at] - (0, left, up, (left + up) // 2, nearest)[kind]) & 255


def test_a_picture_of_few_colours_is_unchanged_for_every_row_filter() -> None:
    dice = Random(1)
    colours = [(dice.randrange(256), dice.randrange(256), dice.randrange(256)) for _ in range(40)]
    rows = [[dice.choice(colours) for _ in range(31)] for _ in range(25)]
    made = smaller(picture(rows, [number % 5 for number in range(25)]))
    assert size_of(made) == (31, 25)
    assert colours_of(made) == 40
    parts = dict(chunks(made))
    palette, raw = parts[b"PLTE"], zlib.decompress(parts[b"IDAT"])
    seen = [[tuple(palette[3 * raw[y * 32 + 1 + x] :][:3]) for x in range(31)] for y in range(25)]
    assert seen == rows


def test_a_picture_of_many_colours_keeps_the_frequent_ones() -> None:
    rows = [[(x, y, 0) for x in range(40)] for y in range(20)] + [[(255, 255, 255)] * 40 for _ in range(20)]
    made = smaller(picture(rows, [0] * 40))
    assert colours_of(made) == 256
    parts = dict(chunks(made))
    assert parts[b"PLTE"][:3] == b"\xff\xff\xff"


def test_a_small_dot_keeps_its_distinct_colour() -> None:
    rows = [[(x // 2, y, 0) for x in range(40)] for y in range(40)]
    rows[7][7] = (0, 0, 255)
    made = smaller(picture(rows, [0] * 40))
    palette = dict(chunks(made))[b"PLTE"]
    assert (0, 0, 255) in [tuple(palette[at : at + 3]) for at in range(0, len(palette), 3)]


def test_another_kind_of_picture_is_rejected() -> None:
    head = struct.pack(">IIBBBBB", 1, 1, 16, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="depth 16"):
        pixels(MAGIC + chunk(b"IHDR", head))
