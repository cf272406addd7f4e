"""Laws of limit rules, depths and the expiry of counters."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidemill.domain.breaker import Breaker
from tidemill.domain.limits import LimitKind, Rule
from tidemill.domain.states import JobState
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    HOUR,
    SECOND,
    T0,
    TICK,
    a_job,
    at,
    bring,
    claim_all,
    finish_all,
    put,
    put_one,
)
from tidemill.testing.conformance.limited_claims import OPEN, at_once, claim_within, in_time, use_of, used
from tidemill.testing.conformance.payloads import every_odd_text

S = JobState
RULES = [
    Rule("at once", max=3),
    Rule("no limit"),
    Rule("rate", LimitKind.RATE, 10, timedelta(days=40, microseconds=1)),
    Rule("bucket", LimitKind.RATE, 2**31, SECOND, 2**40),
    Rule("breaker", LimitKind.BREAKER, breaker=Breaker("api", 0.1, 7, HOUR, 90 * SECOND + TICK, 3)),
    Rule("depth", LimitKind.DEPTH, 10**12),
    Rule("pinned", max=1, pinned=True, changed_by="ada “x” 🦊"),
]


class WaitingDepthLaws:
    """The number of pending jobs, counted up to a maximum."""

    def test_the_depth_counts_pending_jobs_by_queue_and_tenant(self, store: Store) -> None:
        put(
            store, *[a_job(queue="a", tenant="s"), a_job(queue="a", tenant="t"), a_job(queue="b", tenant="t")]
        )
        put(store, a_job(queue="a", tenant="t", limits=("x",)), a_job(queue="a", tenant="t", priority=9))
        assert store.depth(most=100) == 5
        assert store.depth(queue="a", most=100) == 4
        assert store.depth(tenant="t", most=100) == 4
        assert store.depth(queue="a", tenant="t", most=100) == 3
        assert store.depth(queue="none", most=100) == store.depth(tenant="none", most=100) == 0

    def test_the_depth_is_counted_up_to_a_maximum(self, store: Store) -> None:
        put(store, *[a_job() for _ in range(5)])
        assert [store.depth(most=most) for most in (0, 1, 4, 5, 6)] == [0, 1, 4, 5, 5]

    def test_the_depth_counts_only_pending_jobs(self, store: Store) -> None:
        for state in S:
            bring(store, state)
        assert store.depth(most=100) == 1


class ForgetUseLaws:
    """Counters that are no longer needed are deleted after a while."""

    def test_unused_counters_at_zero_are_deleted(self, store: Store) -> None:
        put(store, a_job(limits=("a",)), a_job(limits=("b",)))
        a, b = claim_all(store)
        finish_all(store, [a], now=at(5))
        finish_all(store, [b], now=at(6))
        store.change_breaker("a", None, "state", now=at(5))
        assert store.forget_uses(HOUR, limit=10, now=at(5) + HOUR) == 0
        assert store.forget_uses(HOUR, limit=10, now=at(5) + HOUR + TICK) == 1
        assert use_of(store, "a").breaker is None
        assert store.forget_uses(HOUR, limit=10, now=at(7) + HOUR) == 1
        assert store.forget_uses(HOUR, limit=10, now=at(7) + HOUR) == 0

    def test_counters_of_held_jobs_are_kept(self, store: Store) -> None:
        put_one(store, limits=("a",))
        claim_all(store)
        assert store.forget_uses(SECOND, limit=10, now=at(10**6)) == 0
        assert used(store, "a") == [1]

    def test_starts_are_deleted_with_their_counter(self, store: Store) -> None:
        rule = in_time("a", 1, HOUR)
        put(store, a_job(limits=("a",)), a_job(limits=("a",)))
        finish_all(store, claim_within(store, rule))
        assert store.forget_uses(SECOND, limit=10, now=at(2)) == 1
        assert use_of(store, "a", rule, now=at(2)).begun == 0
        assert len(claim_within(store, rule, now=at(2))) == 1

    def test_counters_are_deleted_up_to_the_limit(self, store: Store) -> None:
        put(store, *[a_job(limits=(f"k/{n}",)) for n in range(5)])
        finish_all(store, claim_all(store))
        assert [store.forget_uses(SECOND, limit=n, now=at(9)) for n in (0, 2, 2, 2, 2)] == [0, 2, 2, 1, 0]


class RuleLaws:
    """Law 20: rules are written, changed, pinned and dropped."""

    def test_an_empty_store_has_no_rules(self, store: Store) -> None:
        assert store.rules() == []
        assert store.put_rules([], now=T0) == store.drop_rules([]) == frozenset()

    @pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
    def test_every_kind_of_rule_is_stored(self, store: Store, rule: Rule) -> None:
        assert store.put_rules([rule], now=at(3)) == {rule.name}
        (kept,) = store.rules()
        assert kept == Rule(
            rule.name,
            rule.kind,
            rule.max,
            rule.per,
            rule.burst,
            rule.breaker,
            rule.pinned,
            at(3),
            rule.changed_by,
        )

    def test_rules_are_ordered_by_name(self, store: Store) -> None:
        names = ["b", "a/2", "B", "ü", "a", "a/10", "🦊"]
        store.put_rules([Rule(name) for name in names], now=T0)
        assert [rule.name for rule in store.rules()] == sorted(names)

    @pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
    def test_writing_the_same_rule_is_no_change(self, store: Store, rule: Rule) -> None:
        store.put_rules([rule], now=T0)
        before = store.rules()
        again = Rule(
            rule.name, rule.kind, rule.max, rule.per, rule.burst, rule.breaker, rule.pinned, at(9), "bob"
        )
        assert store.put_rules([again], now=at(9)) == frozenset()
        assert store.rules() == before

    @pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
    def test_writing_a_different_rule_is_a_change(self, store: Store, rule: Rule) -> None:
        first = Rule("x", max=7)
        changed = Rule("x", rule.kind, rule.max, rule.per, rule.burst, rule.breaker, rule.pinned)
        store.put_rules([first, Rule("y")], now=T0)
        assert store.put_rules([changed, Rule("y"), Rule("z")], now=at(1)) == {"x", "z"}
        rules = {row.name: row for row in store.rules()}
        assert (rules["x"].kind, rules["x"].max, rules["x"].changed_at) == (rule.kind, rule.max, at(1))
        assert rules["y"].changed_at == T0

    def test_only_a_pinned_rule_changes_a_pinned_rule(self, store: Store) -> None:
        store.put_rules([Rule("x", max=1)], now=T0)
        assert store.put_rules([Rule("x", max=2, pinned=True, changed_by="ada")], now=at(1)) == {"x"}
        pinned = store.rules()
        assert store.put_rules([Rule("x", max=3), Rule("y")], now=at(2)) == {"y"}
        assert store.put_rules([Rule("x", max=2)], now=at(2)) == frozenset()
        assert store.rules()[:1] == pinned
        assert store.put_rules([Rule("x", max=4, pinned=True, changed_by="bob")], now=at(3)) == {"x"}
        assert store.rules()[0] == Rule("x", max=4, pinned=True, changed_at=at(3), changed_by="bob")

    def test_a_dropped_rule_is_no_longer_pinned(self, store: Store) -> None:
        store.put_rules([Rule("x", max=1, pinned=True)], now=T0)
        assert store.drop_rules(["x", "none"]) == {"x"}
        assert store.drop_rules(["x"]) == frozenset()
        assert store.put_rules([Rule("x", max=2)], now=at(1)) == {"x"}

    def test_dropping_a_rule_keeps_its_counters(self, store: Store) -> None:
        rule = at_once("x", 2)
        store.put_rules([rule], now=T0)
        put(store, *[a_job(limits=("x",)) for _ in range(3)])
        claim_within(store, rule)
        store.change_breaker("x", None, OPEN, now=T0)
        store.drop_rules(["x"])
        assert use_of(store, "x")[:6] == ("x", 2, 0, None, None, OPEN)

    @every_odd_text
    def test_any_text_is_a_valid_rule_name(self, store: Store, text: str) -> None:
        rule = Rule(text, max=1, changed_by=text)
        assert store.put_rules([rule], now=T0) == {text}
        assert store.put_rules([rule], now=T0) == frozenset()
        assert [(row.name, row.changed_by) for row in store.rules()] == [(text, text)]
        assert store.drop_rules([text]) == {text}
