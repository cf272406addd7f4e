"""An OTLP endpoint over HTTP that decodes the spans and metrics it receives."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

PRODUCER, CONSUMER = Span.SPAN_KIND_PRODUCER, Span.SPAN_KIND_CONSUMER


class Collected:
    """The requests that the endpoint has received."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.lock = threading.Lock()

    def add(self, path: str, body: bytes) -> None:
        with self.lock:
            if path == "/v1/traces":
                asked = ExportTraceServiceRequest.FromString(body)
                self.spans += [
                    span for part in asked.resource_spans for scope in part.scope_spans for span in scope.spans
                    if scope.scope.name == "tidemill"
                ]  # fmt: skip
            else:
                measured = ExportMetricsServiceRequest.FromString(body)
                for part in measured.resource_metrics:
                    for scope in part.scope_metrics:
                        self.metrics |= {metric.name: metric for metric in scope.metrics}

    def of_kind(self, kind: int) -> list[Any]:
        with self.lock:
            return [span for span in self.spans if span.kind == kind]


def attributes(span: Any) -> dict[str, Any]:
    """The attributes of a decoded span as plain values."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}


@contextmanager
def endpoint() -> Iterator[Collected]:
    """Serve an endpoint on a free port until the end of the block."""
    collected = Collected()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collected.add(self.path, body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collected.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collected
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
