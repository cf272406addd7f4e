"""A web server and a mail server that keep what they receive."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller


class HookReceiver:
    """Answers every POST with the next of its statuses, and then always with the last one."""

    def __init__(self, *answers: tuple[int, dict[str, str]]) -> None:
        self._answers = list(answers) or [(200, {})]
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self._received = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with receiver._received:
                    receiver.requests.append((self.path, headers, body))
                    receiver._received.notify_all()
                answers = receiver._answers
                status, more = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def wait(self, requests: int) -> None:
        """Wait until it has received this many requests."""
        with self._received:
            assert self._received.wait_for(lambda: len(self.requests) >= requests, 120)

    def __enter__(self) -> HookReceiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class MailBox:
    """Mails that a server accepted."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        parsed = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        self.mails.append(parsed)
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 accepted"


@contextmanager
def mail_server() -> Iterator[tuple[str, MailBox]]:
    """A mail server on a free port; its URL for ``App(smtp=…)`` and its mails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    box = MailBox()
    server = Controller(box, hostname="127.0.0.1", port=port)
    server.start()
    try:
        yield f"smtp://127.0.0.1:{port}?from=jobs@example.com", box
    finally:
        server.stop()
