"""Tests of the groups of failures: masks, places, fingerprints and statuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.failures import (
    ErrorMark,
    ErrorStatus,
    MarkStatus,
    failure_of,
    is_new,
    is_regressed_since,
    marks_of,
    masked,
    place_of,
    status_of,
)
from tidemill.domain.job import ErrorInfo
from tidemill.domain.states import JobState

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FAILED = JobState.FAILED


def frame(file: str, name: str = "charge", line: int = 7) -> str:
    return f'  File "{file}", line {line}, in {name}\n    work()\n'


def raised(message: str = "x", trace: str | None = None, kind: str = "ValueError") -> ErrorInfo:
    return ErrorInfo(kind, message, trace)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 1 not found", "order 4711 not found"),
        ("user 'ann' unknown", "user 'bob smith' unknown"),
        ('key "a" missing', 'key "b" missing'),
        ("object at 0x7f3a2b", "object at 0x11"),
        ("job 01890a5d-ac96-774b-bcce-b302099a8057 gone", "job 01890a5e-0000-774b-bcce-b302099a8057 gone"),
        ("took 3.5 s at 10:11:12", "took 12 s at 23:59:59"),
        (
            "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
            "commit 1234567890abcdef1234567890abcdef12345678",
        ),
        ("two  spaces\nand lines", "two spaces and lines"),
        ("550 mailbox unavailable: ada@example.org", "550 mailbox unavailable: b.c+d@mail.example.co.uk"),
        ("GET https://a.example/v1?x=1 failed", "GET http://b.example:8080/z failed"),
        ("cannot open /srv/a/b.csv", "cannot open /tmp/c.txt"),
        (r"cannot open C:\\data\\a.csv", r"cannot open D:\\other.csv"),
        ("no file ~/x/y", "no file /opt/ann/x"),
    ],
)
def test_messages_that_differ_in_values_are_one_variant(one: str, other: str) -> None:
    assert masked(one) == masked(other)
    first, second = (failure_of("t", FAILED, raised(text), None) for text in (one, other))
    assert first == second


@pytest.mark.parametrize(
    ("one", "other"), [("not found", "not allowed"), ("utf8 wanted", "utf16le wanted"), ("", "empty")]
)
def test_different_messages_are_variants_of_one_group(one: str, other: str) -> None:
    first, second = (failure_of("t", FAILED, raised(text), None) for text in (one, other))
    assert first.fingerprint == second.fingerprint
    assert first.variant != second.variant


def test_an_apostrophe_is_no_quote() -> None:
    assert masked("can't reach ann's host") == "can't reach ann's host"


@given(st.text())
def test_any_text_is_masked_to_something_that_stores_accept(text: str) -> None:
    result = masked(text)
    assert len(result) <= 200
    assert "\0" not in result
    result.encode()
    failure = failure_of(text, FAILED, raised(text, frame(text, text), text), text)
    assert (len(failure.fingerprint), len(failure.variant)) == (16, 8)


@given(st.text(max_size=300))
def test_a_message_never_changes_the_group(message: str) -> None:
    trace = frame("/srv/shop/pay.py")
    for error in (raised(message, trace), raised(message)):
        plain = ErrorInfo(error.type, "", error.traceback)
        assert failure_of("t", FAILED, error, message).fingerprint == (
            failure_of("t", FAILED, plain, None).fingerprint
        )
    assert failure_of("t", FAILED, None, message).fingerprint == failure_of("t", FAILED, None, "").fingerprint


def test_the_group_is_the_class_and_the_innermost_frame_of_the_users_code() -> None:
    trace = (
        frame("/srv/shop/views.py", "buy")
        + frame("/srv/shop/pay.py")
        + frame("/usr/lib/python3.12/json/x.py")
    )
    failure = failure_of("t", FAILED, raised("no", trace), None)
    assert failure.place == "shop/pay.py in charge"
    same = [
        failure_of("other", JobState.DEAD_LETTERED, raised("else", trace), None),
        failure_of("t", FAILED, raised("no", frame("/opt/42/shop/pay.py", line=99)), None),
    ]
    assert {row.fingerprint for row in same} == {failure.fingerprint}
    others = [
        failure_of("t", FAILED, raised("no", trace, "KeyError"), None),
        failure_of("t", FAILED, raised("no", frame("/srv/shop/pay.py", "refund")), None),
        failure_of("t", FAILED, raised("no"), None),
    ]
    assert failure.fingerprint not in {row.fingerprint for row in others}


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("/srv/shop/pay.py", "shop/pay.py in charge"),
        ("C:\\shop\\pay.py", "shop/pay.py in charge"),
        ("/srv/releases/20260301/pay.py", "#/pay.py in charge"),
        ("pay.py", "pay.py in charge"),
    ],
)
def test_a_place_does_not_depend_on_the_machine_or_the_release(file: str, place: str) -> None:
    assert place_of(frame(file)) == place


def test_without_a_frame_the_group_belongs_to_the_task() -> None:
    keys = {
        failure_of(task, state, error, None).fingerprint
        for task in ("a", "b")
        for state, error in (
            (FAILED, raised()),
            (FAILED, raised(kind="KeyError")),
            (JobState.TIMED_OUT, None),
        )
    }
    assert len(keys) == 6
    assert place_of(None) is None
    assert place_of("no traceback") is None


def mark(status: MarkStatus, tenant: str = "a", at: datetime | None = NOW) -> ErrorMark:
    return ErrorMark(tenant, "f", status, at)


def test_a_group_that_fails_after_it_was_resolved_is_regressed() -> None:
    resolved = mark(MarkStatus.RESOLVED)
    assert status_of(resolved, NOW - MINUTE) is ErrorStatus.RESOLVED
    assert status_of(resolved, NOW) is ErrorStatus.RESOLVED
    assert status_of(resolved, NOW + MINUTE) is ErrorStatus.REGRESSED
    assert status_of(mark(MarkStatus.MUTED), NOW + MINUTE) is ErrorStatus.MUTED
    assert status_of(mark(MarkStatus.OPEN), NOW + MINUTE) is ErrorStatus.OPEN
    assert status_of(None, NOW) is ErrorStatus.OPEN


def test_a_mark_about_all_tenants_applies_until_a_tenant_sets_its_own() -> None:
    everywhere = mark(MarkStatus.MUTED, "*")
    later = mark(MarkStatus.OPEN, at=NOW + MINUTE)
    assert marks_of([everywhere], "a") == {"f": everywhere}
    assert marks_of([everywhere, later], "a") == {"f": later}
    assert marks_of([later, everywhere], "a") == {"f": later}
    assert marks_of([everywhere, later], "b") == {"f": everywhere}
    assert marks_of([everywhere, later], "*") == {"f": everywhere}
    assert marks_of([mark(MarkStatus.OPEN, at=NOW - MINUTE), everywhere], "a") == {"f": everywhere}


def test_new_and_regressed_are_relative_to_the_latest_deploy() -> None:
    assert is_new(NOW, NOW)
    assert not is_new(NOW - MINUTE, NOW)
    assert not is_new(NOW, None)
    resolved = mark(MarkStatus.RESOLVED)
    assert is_regressed_since(resolved, NOW + 2 * MINUTE, NOW + MINUTE)
    assert not is_regressed_since(resolved, NOW + MINUTE, NOW + 2 * MINUTE)
    assert not is_regressed_since(resolved, NOW + MINUTE, NOW - MINUTE)
    assert not is_regressed_since(resolved, NOW + MINUTE, None)
    assert not is_regressed_since(None, NOW + MINUTE, NOW)
