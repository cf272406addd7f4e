"""Tests of withdrawn options: refused with a hint, while stored values still load."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tidemill import App, Every
from tidemill.errors import BadSchedule, BadSettings

TIER = r"tier: a job has no tier of its own; give it to an archive policy: App\(retention=\[ArchivePolicy\("
NOTIFICATIONS = "notifications: a job has none of its own; give them to its definition"


@pytest.fixture
def app(app: App) -> App:
    """The folder's app, on each store, with a task."""

    @app.task
    def send(to: str) -> str:
        return to

    return app


def test_a_tier_is_refused_wherever_options_are_given(app: App) -> None:
    send = app.registry.get("send")
    with pytest.raises(BadSettings, match=TIER):
        app.recipe(tier="cold")  # type: ignore[call-arg]
    with pytest.raises(BadSchedule, match=TIER):
        app.schedules.add(send.name, Every(timedelta(hours=1)), "k", args={"to": "ann"}, tier="cold")
    with pytest.raises(BadSchedule, match=TIER):
        app.definitions.save("d", "send", args={"to": "ann"}, tier="cold")
    assert not app.schedules.list()
    assert not app.definitions.list()


def test_notifications_belong_to_a_definition_and_name_channels_of_the_app(app: App) -> None:
    with pytest.raises(BadSettings, match=NOTIFICATIONS):
        app.recipe(notifications={"failed": ["ops"]})  # type: ignore[call-arg]
    with pytest.raises(BadSchedule, match="notifications: there is no channel 'ops'"):
        app.definitions.save("d", "send", args={"to": "ann"}, notifications={"failed": ["ops"]})
    app.configure(
        smtp="smtp://mail.example.com?from=jobs@example.com", notify={"ops": "mailto:ops@example.com"}
    )
    made = app.definitions.save("d", "send", args={"to": "ann"}, notifications={"failed": "ops"})
    assert made.notifications == {"failed": ["ops"]}
    assert app.definitions.save("d", notifications={}).notifications == {}


@pytest.mark.parametrize("option", ["scope", "timezone", "overlap", "jitter"])
def test_an_option_of_schedules_is_refused_for_a_definition_with_a_hint(app: App, option: str) -> None:
    with pytest.raises(
        BadSchedule, match=rf"{option}: a definition has none, its schedules do.*schedules\.add"
    ):
        app.definitions.save("d", "send", args={"to": "ann"}, **{option: "x"})  # type: ignore[arg-type]


def test_an_unknown_option_of_a_definition_is_refused_with_the_known_ones(app: App) -> None:
    with pytest.raises(BadSchedule) as refused:
        app.definitions.save("d", "send", args={"to": "ann"}, colour="red")
    known = str(refused.value).partition("there are ")[2]
    assert known.startswith(
        "args, name, owner, notifications, max_concurrent, on_busy, queue, priority, timeout, retry"
    )
    assert "trigger" not in str(refused.value)


def test_stored_notifications_and_tiers_of_older_releases_still_load(app: App) -> None:
    made = app.definitions.save("d", "send", args={"to": "ann"}, owner="ann")
    old = replace(
        made,
        version=made.version,
        notifications={"failed": ["ops"]},
        settings={**made.settings, "tier": "cold"},
    )
    assert app.store.put_definition(old, by="older", now=None) is not None
    changed = app.definitions.save("d", owner="bob")
    assert (changed.notifications, changed.settings["tier"]) == ({"failed": ["ops"]}, "cold")
    job = app.definitions.trigger("d")
    app.testing().drain()
    assert job.result() == "ann"
