"""A tasks module as people write it for Celery; the tests also run it with one changed import."""

import os
import time
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from celery import Celery, Task, chain, chord, current_task, group, shared_task, signals, signature
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, SoftTimeLimitExceeded
from celery.schedules import crontab

app = Celery("shop", broker=os.environ["SHOP_BROKER"], backend=os.environ.get("SHOP_BACKEND"))
app.set_default()
app.conf.update(
    task_routes={"shop_tasks.routed_*": {"queue": "slow"}},
    task_default_queue="main",
    task_track_started=True,
    worker_prefetch_multiplier=1,
    timezone="Europe/Berlin",
    beat_schedule={
        "nightly": {"task": "shop_tasks.add", "schedule": crontab(hour=2, minute=30), "args": (1, 2)},
        "often": {"task": "shop_tasks.add", "schedule": timedelta(seconds=30), "kwargs": {"x": 1, "y": 2}},
    },
)

NOTES = Path(os.environ["SHOP_NOTES"])

# Celery stores RETRY after it has sent the next attempt; without a pause, RETRY may replace a later FAILURE.
PAUSE = 1


def note(text):
    with NOTES.open("a") as file:
        file.write(f"{text}\n")


def noted(prefix):
    return (
        [line for line in NOTES.read_text().splitlines() if line.startswith(prefix)] if NOTES.exists() else []
    )


@app.task
def add(x, y):
    return x + y


@app.task(name="mul.by.name")
def mul(x, y=2):
    return x * y


@app.task
def spread(*args, **kwargs):
    return [list(args), kwargs]


@app.task
def types(at, day, price, id, raw):
    return [type(value).__name__ for value in (at, day, price, id, raw)] + [at, day, price, id, raw]


@app.task
def echo(value):
    return value


@app.task
def fail(text):
    raise ValueError(text)


@app.task
def fail_with_args():
    raise KeyError("missing")


class ShopError(Exception):
    pass


@app.task
def fail_with_own():
    raise ShopError("sold out", 7)


@app.task(bind=True)
def who(self):
    request = self.request
    return [self.name, request.retries, request.called_directly, request.is_eager, request.id is not None]


@app.task(bind=True, max_retries=3, default_retry_delay=0)
def flaky(self, name, failures):
    note(f"flaky {name}")
    if self.request.retries < failures:
        raise self.retry(exc=ConnectionError("down"))
    return self.request.retries


@app.task(bind=True, max_retries=1)
def exhausted(self):
    try:
        raise OSError("gone")
    except OSError as error:
        raise self.retry(exc=error, countdown=PAUSE)


@app.task(bind=True, max_retries=1)
def exhausted_without_reason(self):
    self.retry(countdown=PAUSE)


@app.task(bind=True)
def retry_with_other_arguments(self, number):
    if number < 3:
        raise self.retry(args=(number + 1,), countdown=0)
    return number


@app.task(autoretry_for=(ConnectionError,), retry_kwargs={"max_retries": 2, "countdown": PAUSE})
def auto(name):
    note(f"auto {name}")
    raise ConnectionError("refused")


@app.task(
    autoretry_for=(Exception,),
    dont_autoretry_for=(KeyError,),
    retry_backoff=True,
    retry_jitter=False,
    max_retries=5,
)
def auto_but_not(name):
    note(f"not {name}")
    raise KeyError(name)


@app.task(bind=True)
def swallow(self):
    try:
        raise self.retry(countdown=0)
    except Exception as error:
        return type(error).__name__


@app.task(soft_time_limit=1, time_limit=20)
def soft():
    try:
        time.sleep(15)
    except SoftTimeLimitExceeded:
        return "stopped softly"


@app.task(soft_time_limit=1)
def soft_unhandled():
    time.sleep(15)


@app.task(time_limit=1)
def hard():
    time.sleep(15)


@app.task(rate_limit="600/m")
def limited(number):
    return number


@app.task(ignore_result=False, acks_late=True, reject_on_worker_lost=True)
def careful():
    return "careful"


@app.task
def nothing():
    pass


@app.task
def ignored():
    raise Ignore()


@app.task(bind=True)
def progress(self, name):
    self.update_state(state="PROGRESS", meta={"current": 1, "total": 2})
    note(f"progress {name}")
    deadline = time.monotonic() + 30
    while not noted(f"go {name}") and time.monotonic() < deadline:
        time.sleep(0.02)
    return "done"


@app.task
def routed_report():
    return current_task.request.delivery_info["routing_key"]


@app.task(queue="special")
def queued():
    return current_task.request.delivery_info["routing_key"]


@shared_task
def shared(number):
    return number + 1


@shared_task(bind=True, name="shop.shared.bound")
def shared_bound(self, number):
    return [self.name, number]


@app.task
def parent(number):
    return add.delay(number, 1).id


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def remember(value, name):
    note(f"link {name} {value}")
    return value


@app.task
def on_failed(request, exc, traceback, name="?"):
    note(f"errback {name} {request.task} {type(exc).__name__} {exc}")


@app.task
def on_failed_id(task_id):
    note(f"errback id {app.AsyncResult(task_id).state}")


@app.task(ignore_result=True)
def quiet(number):
    return number * 10


@app.task(bind=True, max_retries=2)
def second_time(self, number):
    if self.request.retries == 0:
        raise self.retry(countdown=0)
    return number + 1


class Audited(Task):
    def before_start(self, task_id, args, kwargs):
        note(f"hooks {kwargs['name']} before_start")

    def on_success(self, retval, task_id, args, kwargs):
        note(f"hooks {kwargs['name']} on_success {retval}")

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        note(f"hooks {kwargs['name']} on_failure {exc}")

    def on_retry(self, exc, task_id, args, kwargs, einfo):
        note(f"hooks {kwargs['name']} on_retry {type(exc).__name__}")

    def after_return(self, status, retval, task_id, args, kwargs, einfo):
        note(f"hooks {kwargs['name']} after_return {status}")


@app.task(base=Audited, bind=True, max_retries=1)
def audited(self, name, how="return"):
    if how == "fail":
        raise RuntimeError("broken")
    if how == "retry" and self.request.retries == 0:
        raise self.retry(countdown=PAUSE, exc=TimeoutError("slow"))
    return how


@app.task
def signalled(name, how):
    if how == "fail":
        raise RuntimeError("broken")
    return how


@signals.task_prerun.connect(sender=signalled)
def before(sender=None, task_id=None, task=None, args=None, kwargs=None, **_):
    note(f"signal {args[0]} prerun {task.name}")


@signals.task_postrun.connect(sender=signalled)
def after(sender=None, task_id=None, task=None, args=None, kwargs=None, retval=None, state=None, **_):
    note(f"signal {args[0]} postrun {state}")


@signals.task_success.connect(sender=signalled)
def succeeded(sender=None, result=None, **_):
    note(f"signal {current_task.request.args[0]} success {result}")


@signals.task_failure.connect(sender=signalled)
def failed(sender=None, task_id=None, exception=None, args=None, **_):
    note(f"signal {args[0]} failure {exception}")


@signals.worker_process_init.connect
def process_init(**_):
    note("process init")


AWARE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
VALUES = (AWARE, date(2026, 1, 2), Decimal("1.50"), UUID(int=7), b"raw")


def end(result, seconds=60):
    """How a call ended: its state, and its value or its exception."""
    try:
        value = result.get(timeout=seconds)
    except Exception as error:
        value = [type(error).__name__, [str(part) for part in error.args]]
    return [result.state, value, result.successful(), result.failed(), result.ready()]


def calls(name):
    """Every use, by name: a function that makes the call and says how it ended."""
    return {
        "delay": lambda: end(add.delay(1, 2)),
        "apply_async positional": lambda: end(add.apply_async((1,), {"y": 5})),
        "apply_async keywords": lambda: end(mul.apply_async(kwargs={"x": 4, "y": 3})),
        "named task": lambda: [mul.name, end(mul.delay(4))],
        "send_task": lambda: end(app.send_task("mul.by.name", (3,), {"y": 3})),
        "var arguments": lambda: end(spread.delay(1, 2, a=3)),
        "types": lambda: end(types.delay(*VALUES)),
        "tuple becomes list": lambda: end(echo.delay((1, (2, 3)))),
        "nested": lambda: end(echo.delay({"a": [1, {"b": None}], "c": 1.5, "d": True})),
        "failure": lambda: end(fail.delay("boom")),
        "failure of a key": lambda: end(fail_with_args.delay()),
        "failure of the shop": lambda: end(fail_with_own.delay()),
        "no propagation": lambda: repr(fail.delay("quiet").get(timeout=60, propagate=False)),
        "bind": lambda: end(who.delay()),
        "retry": lambda: [end(flaky.delay(name, 2)), len(noted(f"flaky {name}"))],
        "retries exhausted": lambda: end(exhausted.delay()),
        "retries exhausted without reason": lambda: end(exhausted_without_reason.delay())[0],
        "retry with other arguments": lambda: end(retry_with_other_arguments.delay(1)),
        "autoretry": lambda: [end(auto.delay(name)), len(noted(f"auto {name}"))],
        "no autoretry": lambda: [end(auto_but_not.delay(name)), len(noted(f"not {name}"))],
        "swallowed retry": lambda: end(swallow.delay()),
        "soft limit": lambda: end(soft.delay()),
        "soft limit unhandled": lambda: end(soft_unhandled.delay())[0],
        "hard limit": lambda: [
            end(hard.delay())[0],
            type(hard.delay().get(timeout=60, propagate=False)).__name__,
        ],
        "rate limit": lambda: [end(limited.delay(number)) for number in range(3)],
        "acks late": lambda: end(careful.delay()),
        "no result": lambda: end(nothing.delay()),
        "countdown": lambda: [end(add.apply_async((1, 1), countdown=0.5))],
        "eta": lambda: end(add.apply_async((2, 2), eta=datetime.now(timezone.utc) + timedelta(seconds=0.5))),
        "eta in the past": lambda: end(add.apply_async((2, 3), eta=AWARE)),
        "expires": lambda: end(add.apply_async((2, 4), expires=60)),
        "expired": lambda: end(add.apply_async((2, 4), countdown=1.5, expires=0.5)),
        "task id": lambda: [
            (result := add.apply_async((2, 5), task_id=f"id-{name}")).id == f"id-{name}",
            end(app.AsyncResult(f"id-{name}")),
        ],
        "result by id": lambda: end(app.AsyncResult(add.delay(3, 3).id)),
        "unknown result": lambda: app.AsyncResult("no-such-id").state,
        "progress": lambda: _progress(name),
        "routes": lambda: end(routed_report.delay()),
        "queue of the task": lambda: end(queued.delay()),
        "queue of the call": lambda: end(queued.apply_async(queue="slow")),
        "priority": lambda: end(add.apply_async((5, 5), priority=3)),
        "shared": lambda: end(shared.delay(1)),
        "shared and bound": lambda: end(shared_bound.delay(1)),
        "from inside a task": lambda: end(app.AsyncResult(parent.delay(4).get(timeout=60))),
        "signature": lambda: [end(add.s(1).delay(4)), end(add.si(1, 2).apply_async()), repr(add.s(1, 2))],
        "signature with options": lambda: end(add.signature((1, 2), countdown=0.1).apply_async()),
        "chain": lambda: end(chain(add.s(1, 2), add.s(3), mul.s(10)).apply_async()),
        "chain by operator": lambda: end((add.s(1, 2) | mul.s(y=4) | add.s(1)).delay()),
        "chain of a list": lambda: end(chain([add.s(4, 4), mul.s()])()),
        "chain with first arguments": lambda: end(chain(add.s(2), mul.s(3)).delay(4)),
        "chain with immutable": lambda: end(chain(add.s(1, 2), add.si(5, 5), mul.s(2))()),
        "chain of chains": lambda: end(chain(chain(add.s(1, 1), add.s(1)), chain(mul.s(2), add.s(1)))()),
        "chain with a retry": lambda: end((second_time.s(1) | second_time.s() | add.s(1))()),
        "chain with types": lambda: end((echo.s(AWARE) | echo.s())()),
        "chain without result": lambda: end((add.s(1, 2) | quiet.s() | add.s(1))()),
        "chain of one": lambda: end(chain(add.s(1, 2))()),
        "parents of a chain": lambda: _parents(),
        "failed chain": lambda: _failed_chain(),
        "group": lambda: _group(group(add.s(n, n) for n in range(5))()),
        "group of arguments": lambda: _group(group(add.s(1, 1), mul.s(2))()),
        "group with first arguments": lambda: _group(group(add.s(1), mul.s(2)).delay(10)),
        "group of chains": lambda: _group(group(add.s(1, 1) | mul.s(5), add.s(2, 2))()),
        "group with a failure": lambda: _failed_group(),
        "empty group": lambda: _group(group([])()),
        "chord": lambda: end(chord([add.s(n, n) for n in range(4)])(total.s())),
        "chord with body": lambda: end(chord((add.s(n, 1) for n in range(3)), total.s()).apply_async()),
        "chord by operator": lambda: end((group(add.s(1, 1), add.s(2, 2)) | total.s())()),
        "chord with immutable body": lambda: end(chord([add.s(1, 1), add.s(2, 2)])(add.si(7, 8))),
        "chord in a chain": lambda: end(
            (add.s(1, 2) | group(add.s(10), mul.s(10)) | total.s() | add.s(100))()
        ),
        "chain that ends with a group": lambda: _group((add.s(1, 2) | group(add.s(10), mul.s(10)))()),
        "chain with a group of one": lambda: end(chain(group(add.s(1, 2)), echo.s())()),
        "failed chord": lambda: _failed_chord(),
        "chunks": lambda: add.chunks(zip(range(10), range(10)), 4)().get(timeout=60),
        "chunks as a group": lambda: _group(add.chunks(zip(range(4), range(4)), 3).group()()),
        "map": lambda: end(echo.map([1, "two", None]).delay()),
        "starmap": lambda: end(add.starmap([(1, 2), (3, 4)]).apply_async()),
        "link": lambda: [
            end(add.apply_async((1, 2), link=remember.s(f"{name}-l"))),
            _settled(f"link {name}-l", 1),
        ],
        "links of a signature": lambda: _links(name),
        "link of a chain": lambda: _link_of_a_chain(name),
        "link error": lambda: [
            end(fail.apply_async(("linked",), link_error=on_failed.s(name=f"{name}-e"))),
            _settled(f"errback {name}-e", 1),
        ],
        "link error with an id": lambda: [
            end(fail.apply_async(("by id",), link_error=on_failed_id.s())),
            _settled("errback id", 1),
        ],
        "link error of a chain": lambda: _link_error_of_a_chain(name),
        "no link after a failure": lambda: [
            end(fail.apply_async(("no link",), link=remember.s(f"{name}-n"))),
            noted(f"link {name}-n"),
        ],
        "signature by name": lambda: [
            end(signature("mul.by.name", args=(3,), kwargs={"y": 5}).delay()),
            end(app.signature("mul.by.name", (6,)).apply_async()),
        ],
        "partial and clone": lambda: [
            end(add.s(1).clone((5,)).delay()),
            end(mul.s(2, y=3).delay(y=9)),
            end(add.si(1, 2).delay(9)),
        ],
        "canvas applied here": lambda: [
            (add.s(1, 2) | mul.s(4)).apply().get(),
            group(add.s(1, 1), add.s(2, 2)).apply().get(),
            chord([add.s(1, 1), add.s(2, 2)], total.s()).apply().get(),
        ],
        "inverted signature": lambda: ~add.s(20, 22),
        "revoke": lambda: _revoke(),
        "handlers of a success": lambda: [
            end(audited.delay(name=f"{name}-a")),
            _settled(f"hooks {name}-a", 3),
        ],
        "handlers of a failure": lambda: [
            end(audited.delay(name=f"{name}-b", how="fail")),
            _settled(f"hooks {name}-b", 3),
        ],
        "handlers of a retry": lambda: [
            end(audited.delay(name=f"{name}-c", how="retry")),
            _settled(f"hooks {name}-c", 5),
        ],
        "signals of a success": lambda: [end(signalled.delay(name, "return")), _settled(f"signal {name}", 3)],
        "signals of a failure": lambda: [
            end(signalled.delay(f"{name}-x", "fail")),
            _settled(f"signal {name}-x", 3),
        ],
        "worker process": lambda: bool(noted("process init")),
        "apply": lambda: end(add.apply((1, 2))),
        "apply of a failure": lambda: end(fail.apply(("here",))),
        "apply of a retry": lambda: end(flaky.apply((f"{name}-eager", 1))),
        "direct call": lambda: [add(1, 2), who()[1:4]],
        "wrong arguments": lambda: _raised(lambda: add.delay(1)),
        "always eager": lambda: _eager(),
        "unsendable argument": lambda: (
            _raised(lambda: echo.delay(object()))[0] in ("TypeError", "EncodeError")
        ),
        "max retries error": lambda: issubclass(MaxRetriesExceededError, Exception),
        "reject": lambda: issubclass(Reject, Exception),
        "crontab": lambda: str(app.conf.beat_schedule["nightly"]["schedule"]) != "",
    }


def _settled(prefix, count):
    """The notes of handlers, which Celery calls after the result is stored."""
    deadline = time.monotonic() + 10
    while len(noted(prefix)) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return noted(prefix)


def _progress(name):
    result = progress.delay(name)
    deadline = time.monotonic() + 30
    while not noted(f"progress {name}") and time.monotonic() < deadline:
        time.sleep(0.02)
    seen = [result.state, result.info]
    note(f"go {name}")
    return [seen, end(result)]


def _parents():
    result = (add.s(1, 2) | add.s(3) | mul.s(2))()
    values = []
    result.get(timeout=60)
    while result is not None:
        values.append(result.get(timeout=60))
        result = result.parent
    return values


def _failed_chain():
    result = (add.s(1, 2) | fail.s() | add.s(1))()
    try:
        result.get(timeout=60)
    except Exception as error:
        caught = [type(error).__name__, str(error)]
    return [caught, result.state, result.parent.state, result.parent.parent.state, result.ready()]


def _group(result):
    values = result.get(timeout=60)
    return [
        values,
        len(result),
        result.ready(),
        result.successful(),
        result.failed(),
        result.completed_count(),
        [child.get(timeout=60) for child in result.results],
        result.waiting(),
    ]


def _failed_group():
    result = group(add.s(1, 1), fail.s("one of them"), add.s(2, 2))()
    try:
        result.get(timeout=60)
    except Exception as error:
        caught = [type(error).__name__, str(error)]
    values = [repr(value) for value in result.join(timeout=60, propagate=False)]
    return [caught, values, result.failed(), result.successful(), result.completed_count(), result.ready()]


def _failed_chord():
    result = chord([add.s(1, 1), fail.s("in the header")])(total.s())
    try:
        result.get(timeout=60)
    except Exception as error:
        caught = [type(error).__name__, "in the header" in str(error), str(error).startswith("Dependency ")]
    deadline = time.monotonic() + 30
    # Celery notices it when it looks at the header again.
    while not result.ready() and time.monotonic() < deadline:
        time.sleep(0.05)
    return [caught, result.state, result.failed(), type(result.result).__name__]


def _links(name):
    call = add.s(2, 3)
    call.link(remember.s(f"{name}-m"))
    call.link(remember.si("fixed", f"{name}-m"))
    return [end(call.delay()), sorted(_settled(f"link {name}-m", 2))]


def _link_of_a_chain(name):
    flow = chain(add.s(1, 2), add.s(3))
    flow.link(remember.s(f"{name}-c"))
    return [end(flow()), _settled(f"link {name}-c", 1)]


def _link_error_of_a_chain(name):
    flow = (add.s(1, 2) | fail.s() | add.s(1)).on_error(on_failed.s(name=f"{name}-f"))
    flow()
    return _settled(f"errback {name}-f", 1)


def _revoke():
    result = add.apply_async((1, 1), countdown=3)
    app.control.revoke(result.id)
    return end(result)


def _raised(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__]
    return []


def _eager():
    app.conf.task_always_eager = True
    try:
        return [
            end(add.delay(3, 4)),
            end(fail.delay("eagerly")),
            end((add.s(1, 2) | mul.s(3))()),
            group(add.s(1, 2), mul.s(3))().get(),
            end(chord([add.s(1, 1), add.s(2, 2)])(total.s())),
        ]
    finally:
        app.conf.task_always_eager = False
