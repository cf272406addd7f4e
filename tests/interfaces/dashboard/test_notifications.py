"""The page of notifications, with channels, filters and test messages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import pytest
from tests.interfaces.dashboard.crowd import words
from tests.interfaces.dashboard.kit import House

from tidemill import App
from tidemill.client.core import client_of
from tidemill.delivery.channels import Message


class Pager:
    """A channel that keeps its messages, or refuses them."""

    kind: ClassVar[str] = "pager"

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.error: str | None = None

    def send(self, message: Message) -> str:
        if self.error is not None:
            raise ConnectionError(self.error)
        self.sent.append(message.title)
        return "queued as 7"


@pytest.fixture
def pager() -> Pager:
    return Pager()


@pytest.fixture
def paged(pager: Pager) -> Iterator[House]:
    """A site whose app has two channels."""
    # The task of notifications is declared for an app with channels.
    app = App(
        "memory://",
        migrate=True,
        notify={"duty": "mailto:ann@example.com"},
        smtp="smtp://localhost:25?from=jobs@example.com",
    )
    settings = replace(client_of(app).delivery, channels={"duty": pager, "quiet": Pager()})
    client_of(app).delivery = settings
    with app, contextlib.closing(House(app)) as made:
        yield made


def test_without_channels_the_page_says_how_to_configure_one(shop: House) -> None:
    page = shop.person("operator").open("/notifications")
    assert "There are no channels." in page
    assert "App(notify=" in page
    shop.person("viewer").open("/notifications", 403)
    assert "/notifications" not in shop.person("viewer").open("/alerts").partition("<main")[2]
    assert 'href="/notifications"' in shop.person("operator").open("/alerts")


def test_channels_show_their_latest_notification_and_are_filters(paged: House, pager: Pager) -> None:
    paged.app.notifications.send("duty", "The mill <stands> still")
    paged.drain()
    person = paged.person("operator")
    page = person.open("/notifications")
    channels = words(page.split('id="channels"')[1].split("</section>")[0])
    assert "The mill <stands> still completed 0" in channels
    assert "quiet pager nothing sent yet" in channels
    assert "<stands>" not in page
    assert pager.sent == ["The mill <stands> still"]
    assert "queued as 7" in page
    assert "No notifications match." in person.open("/notifications?channel=quiet")
    assert "queued as 7" in person.open("/notifications?channel=duty&status=completed")
    # An unknown filter is ignored.
    assert "queued as 7" in person.open("/notifications?channel=none&status=odd")
    assert "Send a test" not in page


def test_an_admin_sends_a_test_and_sees_its_answer(paged: House, pager: Pager) -> None:
    person = paged.person("admin")
    after = person.send("/notifications", "/notifications/test", channel="duty")
    assert "The test through duty was accepted: queued as 7." in after
    assert pager.sent == ["A test of Tidemill"]
    pager.error = "the line is cut"
    after = person.send("/notifications", "/notifications/test", channel="duty")
    assert "The test through duty failed: ConnectionError: the line is cut" in after
    assert paged.person("operator").post("/notifications/test", channel="duty").status_code == 403
    assert person.post("/notifications/test", channel="nobody").status_code in (400, 422)
