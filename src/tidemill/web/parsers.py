"""Reading of request bodies and of the fields of forms and query strings."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl

from starlette.requests import Request

from tidemill.web.problems import NO_NUL, Problem
from tidemill.web.text_parsers import read_number

BODY_SECONDS = 30.0
"""Maximum number of seconds for a body to arrive."""

MOST_FIELDS = 2_000


async def receive_body(request: Request, most: int) -> bytes:
    """Read the body. Reading stops as soon as it exceeds the limit."""
    length = request.scope["tidemill.headers"].get("content-length")
    if length is not None and length.isascii() and length.isdigit() and int(length[:20]) > most:
        raise _too_large(most)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            # Not the raw messages: the user's authentication may have read the body before.
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    raise _too_large(most)
                chunks.append(chunk)
    except TimeoutError:
        raise Problem(
            408, None, f"the body did not arrive within {BODY_SECONDS:.0f} s", headers={"connection": "close"}
        ) from None
    return b"".join(chunks)


def _too_large(most: int) -> Problem:
    return Problem(413, None, f"the body is larger than {most:,} bytes", headers={"connection": "close"})


class Fields:
    """Values of a query string or form by name. Empty values count as missing."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = [(name, value.strip()) for name, value in pairs if value.strip()]

    def get(self, name: str) -> str | None:
        """Return the first value with this name."""
        return next((value for field, value in self._pairs if field == name), None)

    def all(self, name: str) -> list[str]:
        """Return all values with this name."""
        return [value for field, value in self._pairs if field == name]

    def items(self) -> list[tuple[str, str]]:
        """Return all pairs in order."""
        return list(self._pairs)

    def whole_number(self, name: str, otherwise: int, *, least: int = 0, most: int = 1_000_000) -> int:
        """Parse an integer; raise a 422 problem if it is invalid or out of bounds."""
        text = self.get(name)
        if text is None:
            return otherwise
        try:
            return read_number(text, least, most)
        except ValueError as error:
            raise Problem(422, None, f"{name} is {text[:40]!r}; {error}") from None


def read_form(raw: bytes) -> Fields:
    """Decode a URL-encoded form."""
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError:
        raise Problem(422, None, "the form cannot be read") from None
    if any("\0" in name or "\0" in value for name, value in pairs):
        raise Problem(422, "bad_text", NO_NUL)
    return Fields([(name, value.replace("\r\n", "\n")) for name, value in pairs])
