"""The page about queues and limits, and its actions."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from tests.interfaces.dashboard.kit import House, house

from tidemill.clock import ManualClock
from tidemill.domain.breaker import Breaker, BreakerPhase, BreakerState, written
from tidemill.domain.job import NewJob
from tidemill.domain.limits import LimitKind, Rule
from tidemill.ids import new_id


def put(shop: House, queue: str = "mail", tenant: str = "acme", number: int = 1, **more: object) -> None:
    jobs = [
        NewJob(id=new_id(), task="send", args='{"to":"ada"}', queue=queue, tenant=tenant)
        for _ in range(number)
    ]
    shop.app.store.enqueue([job._replace(**more) for job in jobs])  # type: ignore[arg-type]


def row(page: str, name: str) -> str:
    """The table row of this name."""
    return next(part for part in page.split("<tr") if f"<strong>{name}</strong>" in part)


def test_queues_are_listed_with_waiting_and_running_jobs(shop: House) -> None:
    put(shop, number=3)
    put(shop, "odd/queue?", "other")
    page = shop.person("viewer").open("/queues")
    assert ">3</a>" in row(page, "mail")
    assert "no progress" in row(page, "mail")
    assert "none" in row(page, "mail")
    assert "odd/queue?" in page
    assert "/queues/odd/queue%3F" in page


def test_a_tenant_sees_its_own_depths_and_no_limits_or_workers(shop: House) -> None:
    put(shop, number=3)
    put(shop, "secret", "other")
    shop.app.limits.set("queue/mail", 2)
    page = shop.person("admin", "acme").open("/queues")
    assert ">3</a>" in row(page, "mail")
    assert "secret" not in page
    assert "queue/mail" not in page
    assert "Workers" not in page.split("<main")[1].split("</main")[0]
    assert ">0</a>" in row(shop.person("viewer", "other").open("/queues"), "mail")


# The window begins with a whole minute: 20 jobs ended in a minute, or in a minute and a half.
@pytest.mark.parametrize(("second", "pace", "empty_in"), [(0, "20", "30 s"), (30, "13", "45 s")])
def test_the_rate_of_a_queue_predicts_when_it_is_empty(second: int, pace: str, empty_in: str) -> None:
    with house(clock=ManualClock(datetime(2026, 1, 1, 12, 0, second, tzinfo=UTC))) as shop:
        put(shop, number=20)
        shop.drain()
        put(shop, number=10)
        found = row(shop.person("viewer", "acme").open("/queues"), "mail")
    assert f'<td data-label="A minute" class="r">{pace}</td>' in found
    assert f'<td data-label="Empty in" class="r nowrap">{empty_in}</td>' in found


def test_a_queue_is_paused_with_a_reason_and_resumed(shop: House) -> None:
    put(shop)
    person = shop.person("operator")
    page = person.send("/queues", "/queues/-/pause", name="mail", reason="the server is down")
    assert "Queue mail is paused" in page
    assert "the server is down" in row(page, "mail")
    told = row(shop.person("viewer", "acme").open("/queues"), "mail")
    assert "paused" in told
    assert "the server is down" not in told
    page = person.send("/queues/mail", "/queues/-/resume")
    assert "start again" in page
    assert "<h1><span" in page
    assert shop.app.control.pauses() == []


@pytest.mark.parametrize(
    "act",
    ["pause", "resume", "pause-all", "resume-all", "limit", "unset-limit", "reset-breaker", "enable-workers"],
)
def test_viewers_and_users_of_one_tenant_can_change_nothing(shop: House, act: str) -> None:
    for person in (shop.person("viewer"), shop.person("super_admin", "acme")):
        page = person.open("/queues")
        assert "/queues/-/" not in page
        assert "/queues/-/" not in person.open("/queues/mail")
        assert person.post(f"/queues/-/{act}", name="mail", max="1").status_code == 403
    assert shop.app.control.pauses() == []
    assert list(shop.app.store.rules()) == []


def test_pausing_everything_needs_confirmation(shop: House) -> None:
    put(shop, number=2)
    person = shop.person("admin")
    asked = person.open("/queues/-/pause-all")
    assert "2 jobs wait now; 0 run" in asked
    page = person.send("/queues/-/pause-all", "/pause-all", reason="moving house")
    assert "Everything is paused" in page
    assert "moving house" in page
    assert "moving house" not in shop.person("viewer", "acme").open("/queues")
    assert "Jobs start again." in person.send("/queues", "/queues/-/resume-all")
    assert shop.app.control.pauses() == []


def test_disabled_workers_are_reported_and_can_be_enabled(shop: House) -> None:
    shop.app.control.set("worker_enabled", False)
    assert "Workers claim nothing" in shop.person("viewer", "acme").open("/queues")
    assert "enable-workers" not in shop.person("admin").open("/queues")
    page = shop.person().send("/queues", "/queues/-/enable-workers")
    assert "Workers claim again." in page
    assert "Workers claim nothing" not in page


def test_limits_are_listed_with_their_use(shop: House) -> None:
    shop.app.limits.set("task/send", 2)
    shop.app.limits.set("tenant", 5)
    shop.app.limits.set("depth/queue/mail", 4)
    put(shop, number=4, limits=("task/send",))
    page = shop.person("viewer").open("/queues")
    assert "2 at a time" in row(page, "task/send")
    assert "0 of 2" in row(page, "task/send")
    assert "jobs are queued" in row(page, "task/send")
    assert "4 of 4, full" in row(page, "depth/queue/mail")
    assert "each" in row(page, "tenant")


def test_jobs_behind_the_limit_of_a_queue_or_tenant_are_counted(shop: House) -> None:
    shop.app.limits.set("queue/mail", 2)
    shop.app.limits.set("tenant", 5)
    put(shop, number=4, limits=("queue/mail", "tenant/acme"))
    put(shop, "other", "rival", number=3, limits=("tenant/rival",))
    page = shop.person("viewer").open("/queues")
    assert "/jobs?queue=mail&amp;status=pending" in row(page, "queue/mail")
    assert re.search(r">4<span class=\"sr\"> waiting</span></a>", row(page, "queue/mail"))
    assert "jobs are queued" in row(page, "tenant")


def test_the_fullest_limit_and_key_is_listed_first(shop: House) -> None:
    shop.app.limits.set("depth/queue", 10)
    for name, most in (("a", 100), ("b", 2), ("c", 5)):
        shop.app.limits.set(f"depth/queue/{name}", most)
        put(shop, name, number=2)
    put(shop, "d", number=3)
    put(shop, "e", number=6)
    page = shop.person("viewer").open("/queues").partition('id="limits"')[2]
    names = re.findall(r"<strong>(depth/queue[^<]*)</strong>", page)
    assert names == ["depth/queue/b", "depth/queue/c", "depth/queue/a", "depth/queue"]
    keys = re.findall(r'<th scope="row">(depth/queue/\w)', page)
    assert keys == ["depth/queue/e", "depth/queue/d"]


def test_a_limit_is_set_changed_and_removed(shop: House) -> None:
    person = shop.person("admin")
    page = person.send(
        "/queues/-/limit", "/queues/-/limit", name="queue/mail", max="20", per="1", per_unit="minutes"
    )
    assert "Limit queue/mail is set" in page
    assert "20 in 1 min" in row(page, "queue/mail")
    assert "manually" in row(page, "queue/mail")
    page = person.send("/queues/-/limit/queue/mail", "/queues/-/limit/queue/mail", max="30", burst="3")
    assert "30 in 1 min, 3 at once" in row(page, "queue/mail")
    (rule,) = [rule for rule in shop.app.store.rules() if rule.pinned]
    assert (rule.max, rule.per, rule.burst) == (30, timedelta(minutes=1), 3)
    assert rule.changed_by is not None
    assert "admin of all" in rule.changed_by
    page = person.send("/queues", "/queues/-/unset-limit", name="queue/mail")
    assert "is reset to its value in code" in page
    assert [rule for rule in shop.app.store.rules() if rule.pinned] == []


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"name": "", "max": "1"}, "name", "enter a limit name"),
        ({"name": "nonsense", "max": "1"}, "name", "there is no limit"),
        ({"name": "queue/mail", "max": ""}, "max", "give a whole number"),
        ({"name": "queue/mail", "max": "-1"}, "max", "whole number from 0"),
        ({"name": "queue/mail", "max": "1", "burst": "2"}, "burst", "a burst needs a rate"),
        ({"name": "queue/mail", "max": "1", "per": "0"}, "per", "longer than zero"),
        ({"name": "depth/queue/mail", "max": "1", "per": "9"}, "name", "a depth has no per"),
    ],
)
def test_an_invalid_limit_is_reported_next_to_its_field(
    shop: House, fields: dict[str, str], field: str, words: str
) -> None:
    answer = shop.person("admin").post("/queues/-/limit", **fields)
    assert answer.status_code == 422
    assert f'id="wrong-{field}">' in answer.text
    assert words in answer.text.split(f'id="wrong-{field}">')[1].split("<")[0]
    assert f'value="{fields["name"]}"' in answer.text


def test_a_breaker_shows_its_state_and_can_be_closed(shop: House) -> None:
    breaker = Breaker("partner")
    store, now = shop.app.store, shop.app.clock.now()
    store.put_rules([Rule("breaker/partner", LimitKind.BREAKER, breaker=breaker)])
    opened = written(BreakerState(BreakerPhase.OPEN, now, now + timedelta(hours=1)))
    store.change_breaker("breaker/partner", None, opened)
    page = shop.person("viewer").open("/queues")
    assert "open" in row(page, "breaker/partner")
    assert "opens at 50 % failures of 10 in 1 min" in row(page, "breaker/partner")
    page = shop.person("operator").send("/queues", "/queues/-/reset-breaker")
    assert "is closed" in page
    assert "s-closed" in row(page, "breaker/partner")


def test_a_queue_of_any_name_has_its_own_page(shop: House) -> None:
    name = 'a/b?c#d "e" <i>'
    put(shop, name)
    person = shop.person("operator")
    page = person.open(f"/queues/{quote(name)}")
    assert "<i>" not in page
    assert "a/b?c#d &#34;e&#34; &lt;i&gt;" in page
    page = person.send(f"/queues/{quote(name)}", "/queues/-/pause", reason="why not")
    assert "why not" in page
    assert [pause.name for pause in shop.app.control.pauses()] == [name]


def test_a_queue_shows_its_limits_and_tasks(shop: House) -> None:
    shop.app.limits.set("queue/mail", 2)
    shop.app.limits.set("queue/other", 2)
    page = shop.person("viewer").open("/queues/mail")
    assert "<strong>queue/mail</strong>" in page
    assert "queue/other" not in page
    assert "/tasks/send" in page
