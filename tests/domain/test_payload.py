"""Tests of payload sizes and shortened texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.job import ErrorInfo
from tidemill.domain.payload import (
    CEILING,
    DEFAULT_ARGS_LIMIT,
    DEFAULT_RESULT_LIMIT,
    ERROR_MESSAGE_LENGTH,
    ERROR_TYPE_LENGTH,
    HIGHEST_MAX,
    TRACEBACK_LENGTH,
    PayloadLimits,
    clip,
    clip_error,
)
from tidemill.errors import BadSettings, PayloadTooLarge

anything = st.text(st.characters(exclude_categories=()), max_size=40)  # lone surrogates and NUL among them


def too_large(text: str, limit: int) -> bool:
    try:
        PayloadLimits(args=limit).check_args("t", text)
    except PayloadTooLarge:
        return True
    return False


@given(st.text(max_size=40), st.integers(1, 100))
def test_a_limit_counts_bytes_not_characters(text: str, limit: int) -> None:
    assert too_large(text, limit) is (len(text.encode()) > limit)


@pytest.mark.parametrize("letter", ["a", "é", "€", "🙂"])
def test_a_payload_exactly_at_the_limit_is_accepted(letter: str) -> None:
    width = len(letter.encode())
    assert not too_large(letter * 10, 10 * width)
    assert too_large(letter * 10, 10 * width - 1)


def test_the_error_names_task_size_and_limit() -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        PayloadLimits(args=8).check_args("mail.send", "123456789")
    assert str(caught.value).startswith(
        "the arguments of task mail.send are 9 bytes, and the limit is 8; store the data elsewhere"
    )
    assert caught.value.details == {"task": "mail.send", "size": 9, "limit": 8}


def test_arguments_beyond_the_row_are_large_and_beyond_the_maximum_refused() -> None:
    limits = PayloadLimits(args=2, max_args=4)
    assert [limits.is_large("t", "1" * size) for size in (2, 3, 4)] == [False, True, True]
    with pytest.raises(PayloadTooLarge, match="arguments of task t are 5 bytes, and the limit is 4"):
        limits.is_large("t", "12345")


@pytest.mark.parametrize("most", [0, True, "1", HIGHEST_MAX + 1])
def test_a_maximum_out_of_bounds_is_refused(most: Any) -> None:
    with pytest.raises(BadSettings, match="max_args"):
        PayloadLimits(max_args=most)


def test_the_default_limits_are_a_quarter_of_the_ceiling() -> None:
    assert PayloadLimits() == PayloadLimits(DEFAULT_ARGS_LIMIT, DEFAULT_RESULT_LIMIT)
    assert CEILING == 4 * DEFAULT_ARGS_LIMIT == 4 * DEFAULT_RESULT_LIMIT == 1024 * 1024


@pytest.mark.parametrize("value", [0, -1, CEILING + 1])
@pytest.mark.parametrize("name", ["args", "result"])
def test_an_invalid_limit_is_refused(name: str, value: int) -> None:
    with pytest.raises(BadSettings, match=f"payload limit for {name} is {value}; give 1 to {CEILING} bytes"):
        PayloadLimits(**{name: value})
    PayloadLimits(args=1, result=CEILING)


def test_the_error_counts_bytes() -> None:
    with pytest.raises(PayloadTooLarge, match="are 22 bytes"):
        PayloadLimits(args=10).check_args("t", "é" * 11)


def test_a_lone_surrogate_can_be_measured() -> None:
    PayloadLimits().check_args("t", '{"a":"\ud800"}')


@given(anything, st.integers(1, 50), st.booleans())
def test_a_clipped_text_fits_and_can_be_stored(text: str, length: int, keep_end: bool) -> None:
    short = clip(text, length, keep_end=keep_end)
    assert len(short) <= length
    assert "\x00" not in short
    short.encode()


@given(st.text(max_size=40).map(lambda text: text.replace("\x00", "")), st.integers(0, 20))
def test_a_text_that_fits_is_unchanged(text: str, spare: int) -> None:
    assert clip(text, len(text) + spare) == text


@given(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=2), st.data())
def test_a_cut_keeps_the_start_or_the_end_and_is_marked(text: str, data: st.DataObject) -> None:
    length = data.draw(st.integers(1, len(text) - 1))
    assert clip(text, length) == text[: length - 1] + "…"
    assert clip(text, length, keep_end=True) == "…" + text[len(text) - length + 1 :]


@given(anything, st.integers(1, 50), st.booleans())
def test_clipping_is_idempotent(text: str, length: int, keep_end: bool) -> None:
    once = clip(text, length, keep_end=keep_end)
    assert clip(once, length, keep_end=keep_end) == once


def test_nul_and_lone_surrogates_are_replaced() -> None:
    assert clip("a\x00b", 10) == "a\ufffdb"
    assert clip("a\ud800b", 10) == "a?b"


def test_a_text_clipped_to_nothing_is_empty() -> None:
    assert clip("abc", 0) == ""


def test_a_clipped_error_keeps_message_start_and_traceback_end() -> None:
    long = ErrorInfo("T" * 300, "start" + "m" * 3000, "t" * 5000 + "end")
    short = clip_error(long)
    assert (len(short.type), len(short.message)) == (ERROR_TYPE_LENGTH, ERROR_MESSAGE_LENGTH)
    assert short.message.startswith("start")
    assert short.traceback is not None
    assert len(short.traceback) == TRACEBACK_LENGTH
    assert short.traceback.endswith("end")


def test_an_error_that_fits_is_unchanged() -> None:
    for error in (ErrorInfo("ValueError", "boom"), ErrorInfo("ValueError", "", "trace")):
        assert clip_error(error) == error
