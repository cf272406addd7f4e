"""Loads for the HTTP benchmark: wrk if it is installed, else a built-in loader.

    python -m bench.http_load HOST PORT SECONDS CONNECTIONS FILE     (the loader; FILE contains requests as JSON)

Every connection is kept alive and has one open request at a time.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Load:
    """Requests of one kind, used in turn."""

    name: str
    method: str
    paths: list[str]
    body: str | None = None


@dataclass(frozen=True)
class Speed:
    """The result of a load; latencies in milliseconds."""

    rate: float
    p50: float
    p99: float
    errors: int
    requests: int


def drive(load: Load, url: str, key: str, seconds: float, connections: int, *, wrk: bool = True) -> Speed:
    """Run a load against a server, and measure it."""
    with tempfile.TemporaryDirectory(prefix="tidemill-load-") as folder:
        program = shutil.which("wrk") if wrk else None
        if program is not None:
            return _wrk(program, load, url, key, seconds, connections, Path(folder))
        return _own(load, url, key, seconds, connections, Path(folder))


# wrk ---------------------------------------------------------------------------------------------------------------------

_SCRIPT = """
local paths = {{ {paths} }}
local headers = {{ ["Authorization"] = "Bearer {key}", ["Content-Type"] = "application/json" }}
local body = {body}
local n = 0
request = function()
  n = n + 1
  return wrk.format("{method}", paths[n % #paths + 1], headers, body)
end
done = function(summary, latency, requests)
  local errors = summary.errors.status + summary.errors.read + summary.errors.connect + summary.errors.timeout
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), errors))
end
"""


def _wrk(
    program: str, load: Load, url: str, key: str, seconds: float, connections: int, folder: Path
) -> Speed:
    script = folder / "load.lua"
    script.write_text(
        _SCRIPT.format(
            paths=", ".join(json.dumps(path) for path in load.paths),
            key=key,
            method=load.method,
            body="nil" if load.body is None else json.dumps(load.body),
        )
    )
    words = [
        program,
        "-t1",
        f"-c{connections}",
        f"-d{max(1, round(seconds))}s",
        "--latency",
        "-s",
        str(script),
    ]
    done = subprocess.run([*words, url], capture_output=True, text=True, check=True)
    match = re.search(r"^RESULT (\d+) (\d+) (\d+) (\d+) (\d+)$", done.stdout, re.MULTILINE)
    if match is None:
        raise RuntimeError(f"cannot parse the output of wrk:\n{done.stdout}{done.stderr}")
    requests, took, p50, p99, errors = map(int, match.groups())
    return Speed(requests / (took / 1e6), p50 / 1000, p99 / 1000, errors, requests)


# The built-in loader -----------------------------------------------------------------------------------------------------


def _own(load: Load, url: str, key: str, seconds: float, connections: int, folder: Path) -> Speed:
    where = urlsplit(url)
    body = (load.body or "").encode()
    file = folder / "requests.json"
    head = f"Host: {where.netloc}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n" if body else ""
    file.write_text(
        json.dumps([f"{load.method} {path} HTTP/1.1\r\n{head}\r\n{body.decode()}" for path in load.paths])
    )
    words = [str(where.hostname), str(where.port), str(seconds), str(connections), str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.http_load", *words], capture_output=True, text=True, check=True
    )
    return Speed(**json.loads(done.stdout))


async def _connection(host: str, port: int, requests: list[bytes], until: float, took: list[float]) -> int:
    reader, writer = await asyncio.open_connection(host, port)
    errors = number = 0
    while time.perf_counter() < until:
        began = time.perf_counter()
        writer.write(requests[number % len(requests)])
        number += 1
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        await reader.readexactly(int(length[1]) if length else 0)
        took.append(time.perf_counter() - began)
        errors += head[9:10] != b"2"
    writer.close()
    return errors


async def _all(host: str, port: int, seconds: float, connections: int, requests: list[bytes]) -> Speed:
    took: list[float] = []
    began = time.perf_counter()
    turned = [requests[n % len(requests) :] + requests[: n % len(requests)] for n in range(connections)]
    errors = await asyncio.gather(
        *(_connection(host, port, share, began + seconds, took) for share in turned)
    )
    spent = time.perf_counter() - began
    took.sort()
    p50, p99 = (1000 * took[int(len(took) * share)] for share in (0.5, 0.99))
    return Speed(len(took) / spent, p50, p99, sum(errors), len(took))


if __name__ == "__main__":
    host_, port_, seconds_, connections_, file_ = sys.argv[1:]
    texts = [text.encode() for text in json.loads(Path(file_).read_text())]
    found_ = asyncio.run(_all(host_, int(port_), float(seconds_), int(connections_), texts))
    print(json.dumps(vars(found_)))
