"""Tests of the bounds on times, durations, counts and sizes."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemill import App, Context, Exponential, Fixed, JobState, NoRetry, Rate, Unique
from tidemill.domain.bounds import LONGEST, LONGEST_KEY, MOST_ATTEMPTS
from tidemill.domain.retry import policy_from_data, policy_to_data
from tidemill.errors import BadSettings, JobFailed, PayloadTooLarge

FAR = datetime(9500, 1, 1, tzinfo=UTC)
OLD = datetime(1, 1, 1, tzinfo=UTC)


class Many(NoRetry):
    """A user-defined retry policy."""

    @property
    def max_attempts(self) -> int:
        return 2**40


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"run_after": FAR}, "run_after is 9500-.*between 1900 and 9000"),
        ({"run_after": OLD}, "between 1900 and 9000"),
        ({"run_after": datetime.max.replace(tzinfo=UTC)}, "between 1900 and 9000"),
        ({"run_after": timedelta.max}, "the longest duration is a hundred years"),
        ({"run_after": timedelta.min}, "the longest duration is a hundred years"),
        ({"delay": LONGEST + timedelta(days=1)}, "delay is .*a hundred years"),
        ({"expires": FAR}, "expires is 9500-"),
        ({"expires": timedelta.max}, "expires is .*a hundred years"),
        ({"timeout": timedelta.max}, "timeout is .*a hundred years"),
        ({"timeout": -1}, "timeout is -1 s; give a duration longer than zero, or None for no limit"),
        ({"reference": ("user", "x" * 301)}, "reference has 301 characters; 300 are the most"),
        ({"reference": ("x" * 9000, "42")}, "reference has 9,000 characters; 300 are the most"),
        ({"retry": Many()}, "max_attempts is 1099511627776; 10,000 are the most"),
    ],
)
def test_a_call_with_values_out_of_bounds_is_refused(app: App, options: dict[str, Any], words: str) -> None:
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
def test_a_limit_rule_with_values_out_of_bounds_is_refused(make: Any) -> None:
    with pytest.raises(BadSettings, match=r"the most|the longest duration"):
        make()


def test_values_at_the_bounds_are_stored_and_read_back(app: App) -> None:
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


# ------------------------------------------------------------------------------------------------------------ bytes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metadata": {"blob": "x" * 20_000}}, "metadata takes 20,0.. bytes, the limit is 16,384"),
        ({"metadata": {"blob": "é" * 9_000}}, "metadata takes 18,0.. bytes"),
        ({"tags": [str(number) for number in range(51)]}, "tags are 51 texts, the limit is 50"),
        ({"tags": ["x" * 257]}, "tags has 257 characters, the limit is 256"),
    ],
)
def test_oversized_metadata_and_tags_are_refused_by_every_enqueue_method(
    app: App, options: dict[str, Any], words: str
) -> None:
    @app.task
    def nothing() -> None: ...

    for ask in (
        lambda: nothing.using(**options).enqueue(),
        lambda: nothing.using(**options).enqueue_many([{}] * 3),
        lambda: app.recipe(**options)(nothing).enqueue(),
        lambda: app.schedules.add(nothing, "0 2 * * *", key="nightly", **options),
    ):
        with pytest.raises(PayloadTooLarge, match=words):
            ask()
    assert app.jobs.count() == 0


def test_metadata_and_tags_that_are_too_large_only_when_merged_are_refused(app: App) -> None:
    @app.task(tags=[f"task {number}" for number in range(30)])
    def nothing() -> None: ...

    half = nothing.using(metadata={"one": "x" * 9_000})
    with pytest.raises(PayloadTooLarge, match="metadata takes"):
        half.using(metadata={"two": "x" * 9_000})
    with pytest.raises(PayloadTooLarge, match="task nothing: tags are 60 texts"):
        nothing.using(tags=[f"call {number}" for number in range(30)]).enqueue()


def test_a_reason_longer_than_its_limit_is_refused(app: App) -> None:
    @app.task
    def nothing() -> None: ...

    job = nothing.enqueue()
    for ask in (
        lambda: job.cancel("x" * 2_001),
        lambda: app.jobs.cancel(task="nothing", reason="x" * 2_001),
        lambda: app.control.pause("queue", "default", reason="x" * 2_001),
    ):
        with pytest.raises(PayloadTooLarge, match="reason has 2,001 characters, the limit is 2,000"):
            ask()
    assert app.jobs.counts() == {JobState.PENDING: 1}


def test_long_log_messages_are_cut_and_the_cut_is_marked(app: App) -> None:
    @app.task
    def talk(ctx: Context) -> None:
        ctx.log("é" * 10_005, small=1, blob="x" * 20_000, rest=list(range(10_000)))
        ctx.log("short", one=1)

    job = talk.enqueue()
    app.testing().drain()
    long, short = job.logs()
    assert long.message == "é" * 10_000 + "… (10 bytes cut)"
    assert long.details is not None
    assert long.details["small"] == 1
    blob = str(long.details["blob"])
    assert blob.startswith("xxx")
    assert blob.endswith(" bytes cut)")
    assert 15_000 < len(blob) < 16_500
    assert long.details["…"] == "1 more entries cut"
    assert "rest" not in long.details
    assert (short.message, short.details) == ("short", {"one": 1})


def test_a_checkpoint_larger_than_its_limit_is_refused(app: App) -> None:
    @app.task(retry=None)
    def save(ctx: Context) -> None:
        ctx.save_checkpoint("small", "x" * 262_144)
        ctx.save_checkpoint("large", "é" * 131_073)

    job = save.enqueue()
    app.testing().drain()
    with pytest.raises(JobFailed, match="checkpoint large takes 262,146 bytes, the limit is 262,144"):
        job.result(timeout=10)
