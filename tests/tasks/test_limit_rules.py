"""Limits by name: which names there are, what is made of them, and what is refused with the reason."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tidemill import App, Limit, Rate
from tidemill.domain.limits import LimitKind, Rule
from tidemill.errors import BadSettings
from tidemill.tasks.limit_rules import check_known, read_app_limits, rule_for, scope_of

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("queue", "queue"),
        ("tenant", "tenant"),
        ("queue/media", "queue"),
        ("tenant/acme", "tenant"),
        ("task/mail.send", "task"),
        ("task/a/b", "task"),
        ("definition/01a1e33a-4587-7000-80cb-765f15950ea4", "definition"),
        ("depth/queue", "depth/queue"),
        ("depth/tenant", "depth/tenant"),
        ("depth/queue/mail", "depth/queue"),
        ("depth/tenant/acme", "depth/tenant"),
        ("mail.limit.account", None),
        ("mail.limit.account/7", None),
    ],
)
def test_a_name_says_what_is_limited(name: str, scope: str | None) -> None:
    assert scope_of(name) == scope


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "no limit's name"),
        (" queue/x", "no limit's name"),
        ("/x", "no limit's name"),
        ("a\nb", "no limit's name"),
        ("x" * 501, "no limit's name"),
        (7, "no limit's name"),
        ("queue/", "the queue's name"),
        ("tenant/*", "the tenant's name"),
        ("task", "say which task"),
        ("task/", "the task's name"),
        ("definition", "say which definition"),
        ("definition/nightly", "the definition's id"),
        ("depth", "depth/queue/NAME"),
        ("depth/task/x", "depth/queue/NAME"),
        ("depth/queue/", "the queue's name"),
        ("breaker/payments", "reset_breaker"),
    ],
)
def test_a_name_that_cannot_be_is_refused_with_the_reason(name: Any, words: str) -> None:
    with pytest.raises(BadSettings, match=words):
        scope_of(name)


def test_a_name_of_nobodys_is_refused() -> None:
    check_known("mail.rate/7", {"mail.rate"})
    check_known("queue/x", ())
    with pytest.raises(BadSettings, match="there is no limit 'mial"):
        check_known("mial.rate/7", {"mail.rate"})


def test_the_words_make_a_rule_of_the_right_kind() -> None:
    assert rule_for("queue/a", 3) == Rule("queue/a", LimitKind.CONCURRENCY, 3)
    assert rule_for("queue/a", 3, per=SECOND) == Rule("queue/a", LimitKind.RATE, 3, SECOND)
    assert rule_for("queue/a", 3, per=SECOND, burst=9) == Rule("queue/a", LimitKind.RATE, 3, SECOND, 9)
    assert rule_for("depth/queue", 3, pinned=True) == Rule("depth/queue", LimitKind.DEPTH, 3, pinned=True)


def test_what_is_left_out_of_a_rate_is_as_it_was() -> None:
    before = Rule("r", LimitKind.RATE, 3, SECOND, 9)
    assert rule_for("r", 5, before=before) == Rule("r", LimitKind.RATE, 5, SECOND, 9)
    assert rule_for("r", 5, burst=2, before=before) == Rule("r", LimitKind.RATE, 5, SECOND, 2)
    assert rule_for("r", 5, per=2 * SECOND, before=before) == Rule("r", LimitKind.RATE, 5, 2 * SECOND)


@pytest.mark.parametrize(
    ("name", "words", "reason"),
    [
        ("queue/a", {"most": -1}, "max is -1"),
        ("queue/a", {"most": True}, "max is True"),
        ("queue/a", {"most": 2.5}, "max is 2.5"),
        ("queue/a", {"most": 2**31}, "max is"),
        ("queue/a", {"most": 1, "burst": 3}, "give per too"),
        ("queue/a", {"most": 1, "per": timedelta(0)}, "longer than zero"),
        ("queue/a", {"most": 1, "per": 5}, "longer than zero"),
        (
            "queue/a",
            {"most": 1, "per": timedelta.max},
            "limit queue/a: per is .* a hundred years are the most",
        ),
        ("queue/a", {"most": 1, "per": SECOND, "burst": 0}, "burst is 0"),
        ("queue/a", {"most": 1, "per": SECOND, "burst": 2**31}, "burst is 2147483648; .* 1 to 2,147,483,647"),
        ("depth/queue", {"most": 1, "per": SECOND}, "a depth has no per"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(name: str, words: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSettings, match=reason):
        rule_for(name, words.pop("most"), **words)


def test_an_apps_limits_are_numbers_limits_and_rates() -> None:
    rules = read_app_limits(
        {"tenant": 10, "tenant/acme": Limit(50), "queue/api": Rate(5, per=SECOND, burst=2)}
    )
    assert rules == {
        "tenant": Rule("tenant", max=10),
        "tenant/acme": Rule("tenant/acme", max=50),
        "queue/api": Rule("queue/api", LimitKind.RATE, 5, SECOND, 2),
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"queue/": 5}, "the queue's name"),
        ({"queue/a": "5"}, "max is '5'"),
        ({"queue/a": Limit(5, key="x")}, "no key"),
        (["queue/a"], "give a dictionary"),
    ],
)
def test_an_app_with_limits_that_cannot_be_is_not_made(given: Any, words: str) -> None:
    with pytest.raises(BadSettings, match=words):
        App("memory://", limits=given)
