"""Tests of filters, cursors and pages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.strategies import ID, uuids

from tidemill.domain.filters import (
    ALL_TENANTS,
    MAX_PAGE,
    JobFilter,
    Sort,
    decode_cursor,
    encode_cursor,
    page_size,
)
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter

sorts = st.sampled_from(Sort)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@given(sorts, uuids)
def test_a_cursor_round_trips(sort: Sort, last: UUID) -> None:
    assert decode_cursor(sort, encode_cursor(sort, last)) == last


@given(sorts, uuids)
def test_a_cursor_needs_no_url_encoding(sort: Sort, last: UUID) -> None:
    assert set(encode_cursor(sort, last)) <= set(ALPHABET)


@given(uuids)
def test_a_cursor_of_another_order_is_refused(last: UUID) -> None:
    for made, used in ((Sort.NEWEST, Sort.OLDEST), (Sort.OLDEST, Sort.NEWEST)):
        with pytest.raises(BadFilter, match="other order"):
            decode_cursor(used, encode_cursor(made, last))


@given(sorts, st.text(max_size=40))
def test_an_invalid_cursor_is_refused(sort: Sort, text: str) -> None:
    with pytest.raises(BadFilter) as caught:
        decode_cursor(sort, text)
    assert caught.value.details == {"cursor": text}


@given(sorts, uuids, st.integers(0, 23), st.sampled_from(ALPHABET))
def test_a_changed_cursor_is_refused_or_points_elsewhere(
    sort: Sort, last: UUID, at: int, letter: str
) -> None:
    cursor = encode_cursor(sort, last)
    changed = cursor[:at] + letter + cursor[at + 1 :]
    if changed == cursor:
        return
    try:
        assert decode_cursor(sort, changed) != last
    except BadFilter:
        assert at < 3  # the version and the order


@given(sorts, uuids, st.integers(0, 23))
def test_a_shortened_or_lengthened_cursor_is_refused(sort: Sort, last: UUID, length: int) -> None:
    cursor = encode_cursor(sort, last)
    for wrong in (cursor[:length], cursor + "A", cursor + cursor, cursor + "\n", " " + cursor):
        with pytest.raises(BadFilter):
            decode_cursor(sort, wrong)


def test_a_cursor_of_another_version_is_refused() -> None:
    cursor = encode_cursor(Sort.NEWEST, ID)
    assert cursor.startswith("MW")  # "1n"
    with pytest.raises(BadFilter, match="invalid cursor"):
        decode_cursor(Sort.NEWEST, "M" + "m" + cursor[2:])


def test_a_position_has_one_cursor() -> None:
    cursor = encode_cursor(Sort.NEWEST, UUID(int=2**128 - 1))
    for other in (cursor.replace("_", "/"), cursor + "="):
        with pytest.raises(BadFilter):
            decode_cursor(Sort.NEWEST, other)


@given(st.integers(1, MAX_PAGE))
def test_a_page_has_one_to_a_thousand_items(limit: int) -> None:
    assert page_size(limit) == limit


@given(st.integers(max_value=0) | st.integers(min_value=MAX_PAGE + 1))
def test_any_other_page_size_is_refused(limit: int) -> None:
    with pytest.raises(BadFilter, match=f"limit is {limit}; give 1 to 1000"):
        page_size(limit)


def test_a_filter_without_a_tenant_is_refused() -> None:
    with pytest.raises(BadFilter, match="needs a tenant"):
        JobFilter("")
    assert JobFilter(ALL_TENANTS).tenant == "*"


@pytest.mark.parametrize("name", ["created_after", "created_before"])
def test_an_instant_without_a_time_zone_is_refused(name: str) -> None:
    with pytest.raises(BadFilter, match=f"{name} has no time zone") as caught:
        JobFilter("a", **{name: datetime(2026, 1, 1)})  # type: ignore[arg-type]  # noqa: DTZ001
    assert caught.value.details == {"field": name}
    JobFilter("a", **{name: datetime(2026, 1, 1, tzinfo=UTC)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("conditions", "verdict"),
    [
        ({}, False),
        ({"ids": frozenset(), "metadata": {}, "text_in_args": False, "look": 5}, False),
        ({"states": frozenset({JobState.FAILED})}, True),
        ({"tasks": frozenset({"a"})}, True),
        ({"queues": frozenset({"a"})}, True),
        ({"ids": frozenset({ID})}, True),
        ({"created_after": datetime(2026, 1, 1, tzinfo=UTC)}, True),
        ({"created_before": datetime(2026, 1, 1, tzinfo=UTC)}, True),
        ({"text": "x"}, True),
        ({"correlation_id": "x"}, True),
        ({"parent_id": ID}, True),
        ({"reference": ("order", "7")}, True),
        ({"tag": "x"}, True),
        ({"metadata": {"a": "b"}}, True),
    ],
)
def test_narrows_is_true_for_any_condition(conditions: dict[str, Any], verdict: bool) -> None:
    assert JobFilter("a", **conditions).narrows is verdict


@pytest.mark.parametrize("name", ["correlation_id", "tag", "text"])
def test_an_empty_text_condition_is_refused(name: str) -> None:
    with pytest.raises(BadFilter, match=f"{name} is empty"):
        JobFilter("a", **{name: ""})  # type: ignore[arg-type]
