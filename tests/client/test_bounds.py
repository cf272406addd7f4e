"""What cannot be read again is not stored: instants, durations and counts beyond all reason are refused where they are said."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemill import App, Exponential, Fixed, JobState, NoRetry, Rate, Unique
from tidemill.domain.bounds import LONGEST, LONGEST_KEY, MOST_ATTEMPTS
from tidemill.domain.retry import policy_from_data, policy_to_data
from tidemill.errors import BadSettings

FAR = datetime(9500, 1, 1, tzinfo=UTC)
OLD = datetime(1, 1, 1, tzinfo=UTC)


class Many(NoRetry):
    """A policy of a user's own."""

    @property
    def max_attempts(self) -> int:
        return 2**40


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"run_after": FAR}, "run_after is 9500-.*between 1900 and 9000"),
        ({"run_after": OLD}, "between 1900 and 9000"),
        ({"run_after": datetime.max.replace(tzinfo=UTC)}, "between 1900 and 9000"),
        ({"run_after": timedelta.max}, "a hundred years are the most"),
        ({"run_after": timedelta.min}, "a hundred years are the most"),
        ({"delay": LONGEST + timedelta(days=1)}, "delay is .*a hundred years"),
        ({"expires": FAR}, "expires is 9500-"),
        ({"expires": timedelta.max}, "expires is .*a hundred years"),
        ({"timeout": timedelta.max}, "timeout is .*a hundred years"),
        ({"reference": ("user", "x" * 301)}, "reference has 301 characters; 300 are the most"),
        ({"reference": ("x" * 9000, "42")}, "reference has 9,000 characters; 300 are the most"),
        ({"retry": Many()}, "max_attempts is 1099511627776; 10,000 are the most"),
    ],
)
def test_a_call_beyond_all_reason_is_refused(app: App, options: dict[str, Any], words: str) -> None:
    @app.task
    def nothing() -> None: ...

    with pytest.raises(BadSettings, match=words):
        nothing.using(**options).enqueue()
    assert app.jobs.count() == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(max_attempts=MOST_ATTEMPTS + 1),
        lambda: Exponential(max_attempts=2**40),
        lambda: Unique(within=timedelta.max),
        lambda: Rate(1, per=timedelta.max),
    ],
)
def test_a_rule_beyond_all_reason_is_refused(make: Any) -> None:
    with pytest.raises(BadSettings, match=r"the most"):
        make()


def test_what_is_just_within_reason_is_stored_and_read_again(app: App) -> None:
    @app.task
    def nothing() -> None: ...

    long = "".join(random.Random(5).choices("𐍈𐍉𐌰𐌱𐌲𐌳𐌴𐌵𐌶𐌷", k=LONGEST_KEY))
    assert nothing.using(reference=(long, long)).enqueue().refresh().reference == (long, long)
    assert app.jobs.count(reference=(long, long)) == 1
    last = datetime(9000, 12, 31, tzinfo=UTC)
    far = nothing.using(run_after=last, expires=last, timeout=LONGEST).enqueue()
    slow = nothing.using(delay=LONGEST, retry=Fixed(max_attempts=MOST_ATTEMPTS, wait=LONGEST)).enqueue()
    stored = far.refresh()
    assert (stored.status, far.refresh().run_at) == (JobState.SCHEDULED, last)
    assert slow.refresh().max_attempts == MOST_ATTEMPTS
    endless = Fixed(wait=timedelta.max, cap=timedelta.max)
    assert policy_from_data(policy_to_data(endless) or {}) == Fixed(wait=LONGEST, cap=LONGEST)
    made = app.keys.create("far", expires=last).key
    assert app.keys.get(made.id).expires_at == last
