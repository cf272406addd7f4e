"""Tests of unique keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.domain.strategies import json_objects, json_values, words

from tidemill.domain.job import UniqueHold
from tidemill.domain.unique import Unique, unique_key
from tidemill.errors import BadSettings


@given(words, json_objects, st.randoms(use_true_random=False))
def test_the_key_does_not_depend_on_the_argument_order(task: str, args: dict[str, Any], rng: Any) -> None:
    items = list(args.items())
    rng.shuffle(items)
    assert unique_key(task, args) == unique_key(task, dict(items))


@given(st.lists(words, min_size=1, max_size=4, unique=True), json_values, st.randoms(use_true_random=False))
def test_the_key_does_not_depend_on_the_declaration_order(names: list[str], value: Any, rng: Any) -> None:
    args = dict.fromkeys(names, value)
    shuffled = list(names)
    rng.shuffle(shuffled)
    assert Unique(by=tuple(names)).hold("t", args) == Unique(by=tuple(shuffled)).hold("t", args)


@given(words, words, json_objects)
def test_different_tasks_never_share_a_key(one: str, other: str, args: dict[str, Any]) -> None:
    assume(one != other)
    assert unique_key(one, args) != unique_key(other, args)


@given(words, json_objects, json_objects)
def test_different_arguments_have_different_keys(
    task: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assume(one != other)
    assert unique_key(task, one) != unique_key(task, other)


@pytest.mark.parametrize(
    ("one", "other"), [(1, "1"), (1, True), (0, False), (None, "null"), ([], {}), ("", None)]
)
def test_similar_values_have_different_keys(one: object, other: object) -> None:
    assert unique_key("t", {"a": one}) != unique_key("t", {"a": other})


@given(json_values, json_values, json_values)
def test_only_named_arguments_are_part_of_the_key(user: Any, one: Any, other: Any) -> None:
    rule = Unique(by=("user",))
    assert rule.hold("t", {"user": user, "at": one}) == rule.hold("t", {"user": user, "at": other})


@given(json_objects)
def test_without_names_all_arguments_are_part_of_the_key(args: dict[str, Any]) -> None:
    assert Unique().hold("t", args).key == unique_key("t", args)


@given(words, json_objects)
def test_a_key_is_the_task_name_and_a_hash(task: str, args: dict[str, Any]) -> None:
    key = unique_key(task, args)
    assert key.startswith(task + ":")
    assert len(key) == len(task) + 1 + 32


def test_a_key_is_stable() -> None:
    assert unique_key("mail.send", {"user": 7, "name": "Zoë"}) == "mail.send:95ce291bbfb23e3412275568e5f60ee4"
    assert unique_key("mail.send", {}) == "mail.send:44136fa355b3678a1146ad16f7e8649e"


def test_a_missing_key_argument_is_named() -> None:
    with pytest.raises(BadSettings, match="task mail has no argument 'user'") as caught:
        Unique(by=("id", "user")).hold("mail", {"id": 1})
    assert caught.value.details == {"task": "mail", "missing": ["user"]}


def test_states_decides_how_long_a_key_is_held() -> None:
    hour = timedelta(hours=1)
    key = unique_key("t", {})
    assert Unique().hold("t", {}) == UniqueHold(key, until_claimed=False, window=None)
    assert Unique(states="pending", within=hour).hold("t", {}) == UniqueHold(
        key, until_claimed=True, window=hour
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"within": timedelta(0)}, "within must be longer than zero"),
        ({"within": timedelta(-1)}, "within must be longer than zero"),
        ({"states": "running"}, "states is 'running'; choose 'pending' or 'live'"),
        ({"on_conflict": "ignore"}, "on_conflict is 'ignore'; choose one of return, replace, extend, raise"),
    ],
)
def test_an_invalid_setting_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        Unique(**settings)


def test_a_string_instead_of_a_tuple_is_refused() -> None:
    with pytest.raises(
        BadSettings, match=r"by is the text 'account'; give a tuple of names: by=\('account',\)"
    ):
        Unique(by="account")  # type: ignore[arg-type]
