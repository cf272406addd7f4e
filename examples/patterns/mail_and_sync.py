"""Two common tasks: a mail from a template, and a copy of one table into another.

    python examples/patterns/mail_and_sync.py [STORE]

The mail goes to the server in ``SMTP_HOST``, or into a mailbox file without it. Both tasks may run twice, as every job may,
and do no harm: the mail has an id made from the job, and the copy replaces rows by their key.
"""

from __future__ import annotations

import mailbox
import os
import smtplib
import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from string import Template

from tidemill import App, Context, PermanentError

app = App(sys.argv[1] if len(sys.argv) > 1 else "memory://", migrate=True, name="mail-and-sync")

TEMPLATES = {"welcome": ("Welcome, $name", "Dear $name,\nyour account $account is ready.\n")}


@dataclass
class Sent:
    """A mail that was handed over."""

    message_id: str


@dataclass
class Synced:
    """What a copy did: the number of rows, and the problems of those that were left out."""

    synced: int
    errors: list[str]


@app.task(queue="mail")
def email_notification(ctx: Context, to: str, template: str, data: dict[str, str], box: str) -> Sent:
    """Send a mail from a template."""
    if template not in TEMPLATES:
        raise PermanentError(f"there is no template {template!r}; there are {', '.join(TEMPLATES)}")
    subject, body = (Template(text).substitute(data) for text in TEMPLATES[template])
    message = EmailMessage()
    message["To"], message["Subject"] = to, subject
    message["From"] = "shop@example.com"
    message["Message-ID"] = f"<{ctx.idempotency_key}@example.com>"
    message.set_content(body)
    if host := os.environ.get("SMTP_HOST"):
        with smtplib.SMTP(host, timeout=10) as server:
            server.send_message(message)
    else:
        with closing(mailbox.mbox(box)) as mails:
            mails.add(message)
    return Sent(message["Message-ID"])


@app.task(queue="sync", max_concurrent=1)
def data_sync(ctx: Context, source: str, destination: str) -> Synced:
    """Copy customers from one database to another."""
    result = Synced(0, [])
    with sqlite3.connect(source) as old, sqlite3.connect(destination) as new:
        new.execute("create table if not exists customers(id integer primary key, mail text not null)")
        rows = old.execute("select id, mail from customers order by id").fetchall()
        for id, mail in ctx.track(rows, message="copying"):
            if mail and "@" in mail:
                new.execute("replace into customers values (?, ?)", (id, mail))
                result.synced += 1
            else:
                result.errors.append(f"customer {id}: {mail!r} is not an address")
    old.close()
    new.close()
    return result


def main() -> None:
    """Send one mail and copy three customers, of which one has no address."""
    with tempfile.TemporaryDirectory() as name, app:
        source, destination, box = (str(Path(name, file)) for file in ("old.db", "new.db", "mails"))
        with sqlite3.connect(source) as old:
            old.execute("create table customers(id integer primary key, mail text)")
            old.executemany(
                "insert into customers values (?, ?)",
                [(1, "ada@example.com"), (2, "grace@example.com"), (3, "unknown")],
            )
        old.close()
        data = {"name": "Ada", "account": "42"}
        mail = email_notification.enqueue(to="ada@example.com", template="welcome", data=data, box=box)
        sync = data_sync.enqueue(source=source, destination=destination)
        app.testing().drain()
        assert mail.result() == Sent(f"<{mail.id}@example.com>")
        with closing(mailbox.mbox(box)) as mails:
            print(f"sent: {next(iter(mails))['Subject']}")
        done = sync.result()
        print(f"synced: {done.synced}, errors: {done.errors}")


if __name__ == "__main__":
    main()
