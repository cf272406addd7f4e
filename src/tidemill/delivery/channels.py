"""Channels of notifications: webhooks, mail, and the services that apprise supports."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import importlib.util
import json
import smtplib
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any, ClassVar, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from tidemill.delivery.outgoing_http import send
from tidemill.domain.outgoing_addresses import Network, read_url, refuse_private
from tidemill.errors import AddressRefused, BadSettings, PermanentError, Retry

_SMTP_TIMEOUT = 20.0
_LONGEST_WAIT = timedelta(hours=1)
_LATER = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Message:
    """A notification, ready to be sent. ``id`` stays the same when it is sent again."""

    id: str
    at: datetime
    kind: str
    title: str
    text: str
    link: str | None
    to: str | None  #: overrides the recipient of a mail channel
    data: Mapping[str, Any]

    @property
    def body(self) -> str:
        """The text with its link."""
        return f"{self.text}\n\n{self.link}" if self.link else self.text


class NotificationChannel(Protocol):
    """A way to send messages. ``kind`` is shown in lists, because an address may contain a secret."""

    kind: ClassVar[str]

    def send(self, message: Message) -> str:
        """Send a message and return what the receiver answered. Raises ``Retry`` or an exception if it must be repeated."""
        ...


@dataclass(frozen=True, slots=True)
class WebhookChannel:
    """An HTTP address that receives signed JSON, as Standard Webhooks specifies."""

    kind: ClassVar[str] = "webhook"
    url: str
    secret: bytes
    networks: Sequence[Network]

    def send(self, message: Message) -> str:
        """POST the message."""
        payload = {
            "type": f"notification.{message.kind}",
            "timestamp": message.at.isoformat(),
            "data": message.data,
        }
        body = json.dumps(payload, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", **sign(self.secret, message.id, message.at, body)}
        try:
            answer = send("POST", self.url, body, headers, allowed=self.networks)
        except AddressRefused as error:
            raise PermanentError(error.message) from error
        if 200 <= answer.status < 300:
            return f"HTTP {answer.status}"
        if answer.status in _LATER or answer.status >= 500:
            raise Retry(_wait(answer.headers.get("retry-after")), f"the webhook answered {answer.status}")
        if 300 <= answer.status < 400:
            raise PermanentError(
                f"the webhook answered {answer.status}; redirects are not followed, configure the final address"
            )
        raise PermanentError(f"the webhook refused the notification with {answer.status}")


def sign(secret: bytes, id: str, at: datetime, body: bytes) -> dict[str, str]:
    """The headers of a Standard Webhooks delivery."""
    stamp = str(int(at.timestamp()))
    digest = hmac.new(secret, f"{id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": id,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def _wait(text: str | None) -> timedelta | None:
    """The wait that a receiver asks for, in seconds; a date is ignored."""
    if text is None or not text.strip().isdigit():
        return None
    return min(timedelta(seconds=int(text)), _LONGEST_WAIT)


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """A mail server: ``smtp://user:password@host:587?from=jobs@example.com``; ``smtps`` for TLS from the start."""

    host: str
    port: int
    sender: str
    tls: bool
    starttls: bool | None  #: None: if the server offers it
    user: str | None = None
    password: str | None = None

    def deliver(self, mail: EmailMessage) -> None:
        """Send a mail."""
        kind = smtplib.SMTP_SSL if self.tls else smtplib.SMTP
        with kind(self.host, self.port, timeout=_SMTP_TIMEOUT) as server:
            server.ehlo()
            if not self.tls and self.starttls is not False:
                if server.has_extn("starttls"):
                    server.starttls(context=ssl.create_default_context())
                    server.ehlo()
                elif self.starttls:
                    raise PermanentError(f"the mail server {self.host} offers no STARTTLS")
            if self.user is not None:
                server.login(self.user, self.password or "")
            server.send_message(mail)


def read_smtp(url: str) -> SmtpServer:
    """Read the URL of a mail server."""
    parts = urlsplit(url)
    query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    sender, starttls = query.pop("from", None), query.pop("starttls", None)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname or not sender or query:
        raise BadSettings(
            "smtp is not a mail server; give smtp://user:password@host:587?from=jobs@example.com",
            setting="smtp",
        )
    if starttls not in (None, "yes", "no"):
        raise BadSettings(f"smtp: starttls is {starttls!r}; give yes or no", setting="smtp")
    tls = parts.scheme == "smtps"
    return SmtpServer(
        parts.hostname,
        parts.port or (465 if tls else 587),
        sender,
        tls,
        None if starttls is None else starttls == "yes",
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
    )


@dataclass(frozen=True, slots=True)
class MailChannel:
    """Mail to one or several people."""

    kind: ClassVar[str] = "mail"
    server: SmtpServer
    to: str

    def send(self, message: Message) -> str:
        """Send the message as plain text."""
        mail = EmailMessage()
        mail["From"], mail["To"] = self.server.sender, message.to or self.to
        mail["Subject"] = " ".join(message.title.split())
        mail["Date"] = formatdate(message.at.timestamp())
        mail["Message-ID"] = make_msgid(message.id, self.server.sender.rpartition("@")[2] or None)
        mail.set_content(message.body)
        try:
            self.server.deliver(mail)
        except smtplib.SMTPRecipientsRefused as error:
            raise PermanentError(f"the mail server refused the recipients: {error.recipients}") from error
        except smtplib.SMTPAuthenticationError as error:
            raise PermanentError(f"the mail server refused the login with {error.smtp_code}") from error
        return f"mailed to {mail['To']}"


@dataclass(frozen=True, slots=True)
class AppriseChannel:
    """One of the services of apprise: Slack, Teams, Telegram, PagerDuty and more than a hundred others."""

    kind: ClassVar[str] = "apprise"
    url: str
    networks: Sequence[Network] = ()

    def send(self, message: Message) -> str:
        """Send the message. The logger ``apprise`` has the reason of a failure."""
        import apprise

        target = apprise.Apprise(asset=apprise.AppriseAsset(http_redirects=False))
        if not target.add(self.url):
            raise PermanentError("apprise cannot read the address of this channel; see its documentation")
        for service in target:
            self._refuse_private(service)
        # apprise refuses a message without a body.
        title, body = (message.title, message.body) if message.body else ("", message.title)
        if not target.notify(title=title, body=body):
            raise ConnectionError(
                "the service did not accept the notification; the logger apprise has the reason"
            )
        return "accepted"

    def _refuse_private(self, service: Any) -> None:
        """Refuse a service whose address names a private host. Most services have a fixed host, and none in the address."""
        if not any("{host}" in str(template) for template in getattr(service, "templates", ())):
            return
        host = str(service.host)
        try:
            entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ConnectionError(f"cannot resolve {host}: {error}") from error
        try:
            refuse_private(host, [str(address[0]) for *_, address in entries], self.networks)
        except AddressRefused as error:
            raise PermanentError(error.message) from error


def read_channel(
    name: str, given: object, smtp: SmtpServer | None, networks: Sequence[Network]
) -> NotificationChannel:
    """Read one channel of ``App(notify=…)`` or one address of ``App(owners=…)``."""
    if not isinstance(given, str) or ":" not in given:
        raise BadSettings(
            f"notify {name!r} is no address; give https://…#whsec_…, mailto:ann@example.com, or a URL of apprise",
            channel=name,
        )
    if given.startswith(("https://", "http://")):
        url, _, secret = given.partition("#")
        read_url(url, what=f"notify {name!r}")
        return WebhookChannel(url, _secret(name, secret), networks)
    if given.startswith("mailto:") and not given.startswith("mailto://"):
        if smtp is None:
            raise BadSettings(
                f"notify {name!r} is a mail address; give the mail server too: "
                "App(smtp='smtp://user:password@host:587?from=jobs@example.com')",
                channel=name,
            )
        return MailChannel(smtp, unquote(given.removeprefix("mailto:")))
    if importlib.util.find_spec("apprise") is None:
        raise BadSettings(
            f"notify {name!r} needs apprise; install it: pip install 'tidemill[notify]'", channel=name
        )
    return AppriseChannel(given, networks)


def _secret(name: str, text: str) -> bytes:
    try:
        secret = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) < 16:
        raise BadSettings(
            f"notify {name!r} is a webhook without a secret; put one after '#': "
            "https://example.com/hook#whsec_… with at least 16 bytes in base64",
            channel=name,
        )
    return secret
