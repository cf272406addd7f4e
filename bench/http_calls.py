"""Count the Python calls of one HTTP request, without a server.

    python3 dev.py bench http_calls [--list]

Calls the ASGI application directly with a store in memory, and counts the calls of Python functions in Tidemill and Starlette on
the thread of the event loop. The count does not depend on the speed or the load of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import starlette

import tidemill
from tidemill.app import App
from tidemill.rest import create_api

ROOTS = {
    str(Path(package.__path__[0]).parent) + "/": package.__path__[0] for package in (starlette, tidemill)
}
BODY = json.dumps({"task": "send_email", "args": {"user_id": 123, "email": "a@example.com"}}).encode()


def request(method: str, path: str, key: str, body: bytes = b"") -> dict[str, Any]:
    """Return the ASGI scope of a request, with the headers that a program sends."""
    headers = [(b"host", b"127.0.0.1:8080"), (b"authorization", f"Bearer {key}".encode())]
    if body:
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8080),
        "state": {},
    }


async def send(api: Any, scope: dict[str, Any], body: bytes = b"") -> tuple[int, bytes]:
    """Send a request, and return the status and the body of the response."""
    parts: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def collect(message: dict[str, Any]) -> None:
        parts.append(message)

    await api(scope, receive, collect)
    return parts[0]["status"], parts[1]["body"]


class Calls:
    """Counts the calls of functions in Tidemill and Starlette while it is entered."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Calls:
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        for base, root in ROOTS.items():
            if frame.f_code.co_filename.startswith(root):
                self.counts[f"{frame.f_code.co_filename.removeprefix(base)}:{frame.f_code.co_qualname}"] += 1

    @property
    def total(self) -> int:
        return sum(self.counts.values())


async def count() -> dict[str, Calls]:
    """Count the calls of each request; the first of its kind fills the caches and is not counted."""
    app = App("memory://")

    @app.task(name="send_email")
    def send_email(user_id: int, email: str) -> None: ...

    with app:
        key = app.keys.create("bench", role="super_admin").secret
        api = create_api(app)
        status, content = await send(api, request("POST", "/api/jobs", key, BODY), BODY)
        assert status == 201, content
        path = f"/api/jobs/{json.loads(content)['id']}"
        found = {}
        for name, scope, body in (
            ("POST /api/jobs", request("POST", "/api/jobs", key, BODY), BODY),
            ("GET /api/jobs/{id}", request("GET", path, key), b""),
        ):
            await send(api, dict(scope), body)
            with Calls() as calls:
                status, content = await send(api, dict(scope), body)
            assert status in (200, 201), content
            found[name] = calls
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the functions with their numbers of calls")
    options = parser.parse_args()
    for name, calls in asyncio.run(count()).items():
        print(f"{name:<22}{calls.total:>6} calls")
        if options.list:
            for function, number in calls.counts.most_common():
                print(f"{number:>6}  {function}")


if __name__ == "__main__":
    main()
