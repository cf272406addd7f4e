"""Tests of limits by name: valid names, their rules, and refusals."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tidemill import App, Limit, Rate, Unique
from tidemill.domain.limits import LimitKind, Rule
from tidemill.errors import BadSettings
from tidemill.tasks.limit_rules import check_known, read_app_limits, rule_for, scope_of
from tidemill.tasks.options import read_options
from tidemill.tasks.task import declare

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
def test_a_name_determines_the_scope_of_a_limit(name: str, scope: str | None) -> None:
    assert scope_of(name) == scope


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "not a limit's name"),
        (" queue/x", "not a limit's name"),
        ("/x", "not a limit's name"),
        ("a\nb", "not a limit's name"),
        ("x" * 501, "not a limit's name"),
        (7, "not a limit's name"),
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
def test_an_invalid_name_is_refused_with_the_reason(name: Any, words: str) -> None:
    with pytest.raises(BadSettings, match=words):
        scope_of(name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limits": [Limit(1, key="acount")]}, r"task work: Limit\(key='acount'\) names no argument"),
        ({"limits": [Rate(1, per=timedelta(1), key="acount")]}, r"Rate\(key='acount'\) names no argument"),
        ({"unique": Unique(by=("acount",))}, r"Unique\(by='acount'\) names no argument .* are account, size"),
    ],
)
def test_a_key_that_is_not_an_argument_is_refused_at_declaration(options: dict[str, Any], words: str) -> None:
    def work(account: str, size: int = 0) -> None: ...

    with pytest.raises(BadSettings, match=words):
        declare(work, read_options("work", options))


def test_an_unknown_limit_name_is_refused() -> None:
    check_known("mail.rate/7", {"mail.rate"})
    check_known("queue/x", ())
    with pytest.raises(BadSettings, match="there is no limit 'mial"):
        check_known("mial.rate/7", {"mail.rate"})


def test_the_parameters_determine_the_kind_of_rule() -> None:
    assert rule_for("queue/a", 3) == Rule("queue/a", LimitKind.CONCURRENCY, 3)
    assert rule_for("queue/a", 3, per=SECOND) == Rule("queue/a", LimitKind.RATE, 3, SECOND)
    assert rule_for("queue/a", 3, per=SECOND, burst=9) == Rule("queue/a", LimitKind.RATE, 3, SECOND, 9)
    assert rule_for("depth/queue", 3, pinned=True) == Rule("depth/queue", LimitKind.DEPTH, 3, pinned=True)


def test_omitted_parameters_of_a_rate_keep_their_values() -> None:
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
        ("queue/a", {"most": 1, "per": -5}, "longer than zero"),
        ("queue/a", {"most": 1, "per": "5x"}, "limit queue/a: per: '5x' is not a duration"),
        (
            "queue/a",
            {"most": 1, "per": timedelta.max},
            "limit queue/a: per is .* the longest duration is a hundred years",
        ),
        ("queue/a", {"most": 1, "per": SECOND, "burst": 0}, "burst is 0"),
        ("queue/a", {"most": 1, "per": SECOND, "burst": 2**31}, "burst is 2147483648; .* 1 to 2,147,483,647"),
        ("depth/queue", {"most": 1, "per": SECOND}, "a depth has no per"),
    ],
)
def test_an_invalid_rule_is_refused(name: str, words: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSettings, match=reason):
        rule_for(name, words.pop("most"), **words)


def test_limits_of_an_app_are_numbers_limits_and_rates() -> None:
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
def test_an_app_with_invalid_limits_is_refused(given: Any, words: str) -> None:
    with pytest.raises(BadSettings, match=words):
        App("memory://", limits=given)
