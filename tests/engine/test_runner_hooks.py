"""Tests of the enqueue hooks of fires between a supervisor and its runners, over real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.engine.worker_kit import until

from tidemill import App, Every
from tidemill.clock import SystemClock
from tidemill.domain.job import Details, NewJob, UniqueHold
from tidemill.domain.schedule_fires import FirePlan, plan
from tidemill.domain.schedules import ScheduleRow
from tidemill.engine.fire_hooks import Applied
from tidemill.engine.frames import LIMIT, Wire
from tidemill.engine.frames_hooks import EVENTS, JOBS, TEXT, apply_to_data, enqueued_to_data, jobs_from_data
from tidemill.engine.runner.hook_server import HookServer
from tidemill.engine.supervisor.runner_hooks import RunnerHooks
from tidemill.tasks.events import Event
from tidemill.tasks.middleware import HookStep

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SHORT = 0.8  # more than a duty waits at once
OFFER = {"version": 1, "hooks": True, "events": False}


class Runner:
    """A runner process as the supervisor sees it. ``wire`` is the runner's end of the connection."""

    def __init__(self, silence: float = 0.0) -> None:
        self.hooks, self.theirs = socket.socketpair()
        self.wire, self.silence = Wire(self.theirs), silence

    def __str__(self) -> str:
        return "runner 1"

    def got_nothing(self) -> bool:
        self.theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            self.theirs.recv(1)
        self.theirs.setblocking(True)
        return True

    def answer(self, priority: int = 7) -> None:
        """Answer the next request with another priority."""
        message = self.wire.receive()
        assert message is not None
        self.wire.send(apply_to_data([job._replace(priority=priority) for job in jobs_from_data(message)]))

    def answers(self) -> None:
        """Answer the next request in the background."""
        threading.Thread(target=self.answer, daemon=True).start()

    def sends(self, data: dict[str, object] | None) -> None:
        """Send this after the next request, in the background; None closes the connection."""

        def act() -> None:
            self.wire.receive()
            if data is None:
                self.wire.hang_up()
            else:
                self.wire.send(data)

        threading.Thread(target=act, daemon=True).start()

    def close(self) -> None:
        self.wire.hang_up()
        self.theirs.close()
        self.hooks.close()


class Site:
    """A supervisor's side of the hooks, with the runners that a test adds."""

    def __init__(self, limit: float) -> None:
        self.hooks = RunnerHooks(SystemClock(), limit=limit)
        self.runners: list[Runner] = []

    def runner(self, offer: object = OFFER, *, silence: float = 0.0) -> Runner:
        self.runners.append(Runner(silence))
        self.hooks.offered(self.runners[-1], offer)
        return self.runners[-1]

    def end(self, runner: Runner) -> None:
        self.hooks.gone(runner)
        runner.close()

    def apply(self, plans: Sequence[FirePlan], *, declared: bool = True) -> Applied:
        return self.hooks.apply(plans, lambda _task: declared)


@pytest.fixture
def site() -> Iterator[Site]:
    yield from _site(30.0)


@pytest.fixture
def hasty() -> Iterator[Site]:
    """A site whose runners have a fraction of a second to answer."""
    yield from _site(SHORT)


def _site(limit: float) -> Iterator[Site]:
    before = set(threading.enumerate())
    site = Site(limit)
    yield site
    for runner in site.runners:
        site.end(runner)
    until(lambda: set(threading.enumerate()) <= before, "no thread is left")


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://") as app:

        @app.task
        def send() -> None: ...

        yield app


@contextmanager
def served(app: App, site: Site) -> Iterator[HookServer]:
    """Serve the hooks of an app in this process, as a runner does."""
    runner = site.runner({})
    server = HookServer(app, runner.wire)
    site.hooks.offered(runner, server.offer())
    yield server
    server.close()


def a_plan(schedule: ScheduleRow | None = None, now: datetime = NOW, **options: object) -> FirePlan:
    """The plan of a schedule that is due."""
    found = plan(schedule or a_schedule(**options), None, (), now, None, uuid4)
    assert found.jobs, found.broken
    return found


def a_schedule(**options: Any) -> ScheduleRow:
    given: dict[str, Any] = {"since_at": NOW - timedelta(hours=1), "overlap": "allow"} | options
    return ScheduleRow(uuid4(), "s", "send", Every(timedelta(hours=1)).to_data(), **given)


def ids(plans: Sequence[FirePlan]) -> list[UUID]:
    return [job.id for found in plans for job in found.jobs]


# Answers -----------------------------------------------------------------------------------------------------------------


def test_a_job_survives_the_round_trip() -> None:
    job = NewJob(
        uuid4(), "send", '{"a": 1}', "acme", "q", 5, 3, timedelta(seconds=1.5), NOW, timedelta(1), NOW,
        UniqueHold("k", until_claimed=True, window=timedelta(2)), ("l",),
        Details("c", uuid4(), ("kind", "id"), ("t",), {"m": [1]}, {"h": "1"}, {"o": 2}, uuid4(), 3, uuid4(), NOW),
        "waits",
    )  # fmt: skip
    assert jobs_from_data(apply_to_data([job])) == (job,)


def test_hooks_in_a_runner_change_the_jobs_of_fires(app: App, site: Site) -> None:
    threads: list[str] = []

    @contextmanager
    def stamp(step: HookStep) -> Iterator[None]:
        step.headers["trace"] = f"of {step.task}"
        threads.append(threading.current_thread().name)
        yield

    app.around(enqueue=stamp)
    plans = [a_plan(), a_plan()]
    with served(app, site):
        applied = site.apply(plans)
    assert (ids(applied.plans), applied.refused, applied.unanswered) == (ids(plans), [], frozenset())
    assert all(job.details.headers == {"trace": "of send"} for found in applied.plans for job in found.jobs)
    assert [found.advance for found in applied.plans] == [found.advance for found in plans]
    assert threads == ["tidemill-fire-hooks"] * 2


def raises(error: BaseException) -> Callable[[HookStep, Callable[[], Any]], Any]:
    def hook(_step: HookStep, _proceed: Callable[[], Any]) -> Any:
        raise error

    return hook


def replaces(**values: Any) -> Callable[[HookStep, Callable[[], Any]], Any]:
    def hook(step: HookStep, proceed: Callable[[], Any]) -> Any:
        step.jobs = [job._replace(**values) for job in step.jobs]
        return proceed()

    return hook


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (raises(PermissionError("not now")), "PermissionError: not now"),
        (raises(SystemExit(3)), "SystemExit: 3"),
        (replaces(id=uuid4()), "may only change them"),
        (replaces(args=object()), "a object cannot be sent"),
        (replaces(args="x" * LIMIT), "over the limit"),
        (replaces(timeout="soon"), "TypeError"),
        (replaces(limits=None), "cannot be read: TypeError"),
        (lambda _step, _proceed: None, "must return what proceed() returns"),
    ],
)
def test_a_hook_that_fails_refuses_one_fire_and_the_runner_continues(
    app: App, site: Site, hook: Any, words: str
) -> None:
    app.middleware(only="enqueue")(lambda step, proceed: hook(step, proceed) if bad else proceed())
    with served(app, site):
        bad = True
        found = a_plan()
        ((refused, error),) = until(lambda: site.apply([found]).refused, "the fire is refused")
        assert refused == found
        assert words in error
        bad = False
        good = a_plan()
        assert len(until(lambda: site.apply([good]).plans, "the next fire is made")) == 1


def test_an_answer_with_other_job_ids_refuses_the_fire(site: Site) -> None:
    runner = site.runner()
    runner.sends({"jobs": []})
    found = a_plan()
    ((_, error),) = until(lambda: site.apply([found]).refused, "the fire is refused")
    assert error == "the hooks added, removed or renumbered jobs"


def test_jobs_of_another_app_and_fires_without_jobs_are_not_sent(site: Site) -> None:
    runner = site.runner()
    plans = [a_plan(), a_plan()]
    assert site.apply(plans, declared=False) == Applied(plans, [], frozenset())
    empty = [found._replace(jobs=(), fires=()) for found in plans]
    assert site.apply(empty).plans == empty
    assert runner.got_nothing()


@pytest.mark.parametrize(
    "offer", [None, {}, {"version": 1, "hooks": False, "events": False}, OFFER | {"version": 2}]
)
def test_an_app_without_hooks_is_sent_nothing_and_has_no_thread(site: Site, offer: object) -> None:
    threads = threading.active_count()
    runner = site.runner(offer)
    plans = [a_plan()]
    assert site.apply(plans) == Applied(plans)
    site.hooks.publish(plans[0].jobs, NOW)
    assert runner.got_nothing()
    assert threading.active_count() == threads


def test_a_runner_offers_hooks_that_are_added_later(app: App, site: Site) -> None:
    with served(app, site) as server:
        assert server.offer() == {"version": 1, "hooks": False, "events": False}
        app.middleware(only="enqueue")(replaces(priority=9))
        assert server.offer() == {"version": 1, "hooks": True, "events": False}
        site.hooks.offered(site.runners[0], server.offer())
        assert site.apply([a_plan()]).plans[0].jobs[0].priority == 9


# Slow, hung and dead runners ---------------------------------------------------------------------------------------------


def test_a_slow_answer_is_taken_up_by_the_next_run_of_the_duty(site: Site) -> None:
    runner, schedule = site.runner(), a_schedule()
    first = a_plan(schedule)
    assert site.apply([first]) == Applied([], [], frozenset({schedule.id}))
    runner.answer()
    later = NOW + timedelta(seconds=5)
    applied = until(lambda: site.apply([a_plan(schedule, later)]).plans, "the answer is used")
    assert (ids(applied), applied[0].jobs[0].priority) == (ids([first]), 7)
    assert (runner.got_nothing(), site.hooks.skipped) == (True, 0)


def test_an_answer_for_a_schedule_that_was_changed_is_dropped(site: Site) -> None:
    runner, schedule = site.runner(), a_schedule()
    first = a_plan(schedule)
    site.apply([first])
    runner.answer()
    runner.answers()
    second = a_plan(replace(schedule, revision=2))
    assert ids(site.apply([second]).plans) == ids([second])


def test_a_fire_is_made_without_hooks_if_its_runner_does_not_answer(
    hasty: Site, caplog: pytest.LogCaptureFixture
) -> None:
    runner, schedule = hasty.runner(), a_schedule()
    hasty.apply([a_plan(schedule)])
    second = a_plan(schedule)
    (made,) = until(lambda: hasty.apply([second]).plans, "it is made")
    assert (made, hasty.hooks.skipped) == (second, 1)
    assert (
        "1 fire(s) made without the app's enqueue hooks: runner 1 has not answered for 0.8 s" in caplog.text
    )
    # Until it answers, further fires do not wait for it.
    third = a_plan()
    assert hasty.apply([third]).plans == [third]
    assert hasty.hooks.skipped == 2
    runner.answer()
    until(lambda: not hasty.hooks._living()[0].waited(), "the late answer is read")
    runner.answers()
    fourth = a_plan()
    (made,) = until(lambda: hasty.apply([fourth]).plans, "it passes the hooks again")
    assert (made.jobs[0].priority, hasty.hooks.skipped) == (7, 2)


def test_a_large_request_to_a_halted_runner_blocks_no_duty(hasty: Site) -> None:
    hasty.runner(silence=0.0)
    large = a_plan()
    large = large._replace(jobs=tuple(job._replace(args="x" * 4_000_000) for job in large.jobs))
    assert until(lambda: hasty.apply([large]).plans, "it is made") == [large]
    other = hasty.runner(silence=5.0)
    other.answers()
    assert hasty.apply([a_plan()]).plans[0].jobs[0].priority == 7


def test_many_missed_fires_of_one_schedule_pass_the_hooks_in_parts(app: App, site: Site) -> None:
    parts: list[int] = []

    @app.middleware(only="enqueue")
    def tagged(step: HookStep, proceed: Callable[[], Any]) -> Any:
        parts.append(len(step.jobs))
        step.jobs = [job._replace(priority=9) for job in step.jobs]
        return proceed()

    found = a_plan()
    small = [found.jobs[0]._replace(id=uuid4()) for _ in range(JOBS + 1)]
    large = [found.jobs[0]._replace(id=uuid4(), args="é" * (TEXT // 2)) for _ in range(3)]
    found = found._replace(jobs=(*small, *large))
    with served(app, site):
        (made,) = until(lambda: site.apply([found]).plans, "it is answered")
    assert made.jobs == tuple(job._replace(priority=9) for job in found.jobs)
    assert parts == [JOBS, 2, 2]


def test_a_fire_that_is_too_large_for_a_message_is_made_without_hooks(site: Site) -> None:
    runner = site.runner()
    large = a_plan()
    large = large._replace(jobs=tuple(job._replace(args="x" * LIMIT) for job in large.jobs))
    # A slow machine encodes the message for longer than one run of the duty waits.
    assert until(lambda: site.apply([large]).plans, "it is made") == [large]
    assert (site.hooks.skipped, runner.got_nothing()) == (1, True)


def test_another_runner_is_asked_if_one_ends(site: Site) -> None:
    first, second = site.runner(), site.runner(silence=1.0)
    first.sends(None)
    second.answers()
    found = a_plan()
    (made,) = site.apply([found]).plans
    assert (ids([made]), made.jobs[0].priority, site.hooks.skipped) == (ids([found]), 7, 0)


def test_hooks_that_end_two_runners_are_skipped(site: Site) -> None:
    runners = [site.runner(silence=float(n)) for n in range(3)]
    for runner in runners[:2]:
        runner.sends(None)
    found = a_plan()
    assert site.apply([found]).plans == [found]
    assert (site.hooks.skipped, runners[2].got_nothing()) == (1, True)


def test_runners_that_ended_before_the_request_do_not_count(site: Site) -> None:
    for n in range(3):
        site.runner(silence=float(n)).wire.hang_up()
    site.runner(silence=9.0).answers()
    assert site.apply([a_plan()]).plans[0].jobs[0].priority == 7


def test_a_fire_waits_for_the_next_runner(hasty: Site) -> None:
    schedule = a_schedule()
    hasty.end(hasty.runner())
    assert hasty.apply([a_plan(schedule)]).unanswered == {schedule.id}
    second = a_plan(schedule)
    assert until(lambda: hasty.apply([second]).plans, "it is made") == [second]
    hasty.runner().answers()
    assert hasty.apply([a_plan()]).plans[0].jobs[0].priority == 7
    assert hasty.hooks.skipped == 1


def test_a_fire_without_a_runner_stays_due_while_the_worker_stops(hasty: Site) -> None:
    schedule = a_schedule()
    hasty.end(hasty.runner())
    hasty.hooks.close()
    assert hasty.apply([a_plan(schedule)]).unanswered == {schedule.id}
    until(lambda: hasty.hooks._absent_since, "it has asked")
    clock = SystemClock()
    ends = clock.monotonic() + 2 * SHORT
    until(lambda: clock.monotonic() > ends, "the time for a runner is over")
    assert hasty.apply([a_plan(schedule)]).unanswered == {schedule.id}


# Events ------------------------------------------------------------------------------------------------------------------


def test_a_runner_publishes_the_jobs_that_were_written(app: App, site: Site) -> None:
    heard: list[Event] = []
    app.on("job.*", heard.append)
    jobs = [NewJob(uuid4(), "send"), NewJob(uuid4(), "send", tenant="acme", run_at=NOW + timedelta(1))]
    jobs.append(NewJob(uuid4(), "other", waiting="for another"))
    with served(app, site):
        plans = [a_plan()]
        assert site.apply(plans) == Applied(plans), "an app without hooks is not asked"
        site.hooks.publish(jobs, NOW)
        until(lambda: len(heard) == 3, "all are published")
    assert [(event.job_id, event.task, event.tenant, event.state) for event in heard] == [
        (jobs[0].id, "send", "default", "pending"),
        (jobs[1].id, "send", "acme", "scheduled"),
        (jobs[2].id, "other", "default", "waiting"),
    ]
    assert {(event.name, event.at) for event in heard} == {("job.enqueued", NOW)}


def test_events_that_no_runner_can_publish_are_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.end(site.runner({"version": 1, "hooks": False, "events": True}))
    site.hooks.publish([NewJob(uuid4(), "send")], NOW)
    assert "1 job.enqueued events of fires are not published: no runner answers" in caplog.text


def test_messages_about_written_jobs_are_bounded() -> None:
    jobs = [NewJob(uuid4(), "send")] * (2 * EVENTS + 1)
    assert [len(message["jobs"]) for message in enqueued_to_data(jobs, NOW)] == [EVENTS, EVENTS, 1]
