"""Options of a task, validated at declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypedDict

from tidemill.domain.bounds import check_attempts, check_name, check_queue, check_span, check_tags, check_text
from tidemill.domain.breaker import Breaker
from tidemill.domain.decide import OrphanRule, Policy
from tidemill.domain.durations import Duration, read_optional
from tidemill.domain.job import (
    DEFAULT_QUEUE,
    DEFAULT_TIMEOUT,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    Execution,
)
from tidemill.domain.notifications import PERMANENT, read_channels
from tidemill.domain.payload import CEILING, DEFAULT_MAX, DEFAULT_RESULT_LIMIT, check_max
from tidemill.domain.record import Record, read_record
from tidemill.domain.retry import DEFAULT_RETRY, NoRetry, RetryPolicy, preset
from tidemill.domain.unique import Unique
from tidemill.errors import BadSettings
from tidemill.tasks.confinement import Confinement, Container, Process, Sandbox
from tidemill.tasks.limits import Limit, Rate, limit_data, read_breaker, read_limits

Scope = Literal["cluster", "instance", "process"]
IsolationName = Literal["auto", "thread", "process", "sandbox"]
Isolation = IsolationName | Confinement

Extra = Literal["refuse", "ignore"]
LargeResults = Literal["spill", "refuse"]

StepPolicy = Literal["warn", "strict"]

_STEP_POLICIES = ("warn", "strict")
_EXTRAS = ("refuse", "ignore")
_LARGE_RESULTS = ("spill", "refuse")
_SCOPES = ("cluster", "instance", "process")
_ISOLATIONS = ("auto", "thread", "process", "sandbox")


class StageFunction(str):
    """The name of a stage, and the function that ``ctx.run_stages`` calls for it."""

    __slots__ = ("function",)

    function: Callable[..., Any]


def _stage(given: Any) -> Any:
    """A stage as it was declared: a name, or a function, whose name is that of the stage."""
    if isinstance(given, str) or not callable(given):
        return given
    stage = StageFunction(getattr(given, "__name__", ""))
    stage.function = given
    return stage


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How jobs of a task are run unless a call overrides it."""

    name: str
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    retry: RetryPolicy = DEFAULT_RETRY
    timeout: timedelta | None = DEFAULT_TIMEOUT
    max_concurrent: int = 0
    limits: tuple[Limit | Rate, ...] = ()
    breaker: Breaker | None = None
    scope: Scope = "cluster"
    isolation: Isolation = "auto"
    unique: Unique | None = None
    stages: tuple[str, ...] = ()
    audit: bool = False
    tags: tuple[str, ...] = ()
    owner: str | None = None
    description: str | None = None
    result_limit: int = (
        DEFAULT_RESULT_LIMIT  #: bytes of a result in the row of its job; larger ones are spilled
    )
    max_result: int = DEFAULT_MAX  #: bytes beyond which a result is not kept
    large_results: LargeResults = (
        "spill"  #: whether a result beyond ``result_limit`` is stored outside the row, or not kept
    )
    orphans: OrphanRule = OrphanRule.REQUEUE
    should_retry: Callable[[Execution], bool] | None = None
    retry_delay: Callable[[Execution], Duration | None] | None = None
    aliases: tuple[str, ...] = ()  #: names under which older code stored jobs of this task
    extra: Extra = "refuse"  #: how to treat arguments of a stored job that the function does not have
    store: str | None = None  #: name of the app's store that its jobs go to; None: the app chooses
    record: Record = Record.FULL  #: how much of an ended job is kept
    version: int | None = (
        None  #: of the code of a durable function; older workers leave jobs of a newer one alone
    )
    resumes: int | None = None  #: the oldest version whose jobs this code resumes; others go to review
    steps: StepPolicy = "warn"  #: how to treat a recorded step that is called in another way
    environment: str | None = None  #: the only environment whose apps enqueue and run it; None: any
    notify: Mapping[str, Sequence[str]] = field(default_factory=dict)  #: channels by kind of event

    def __post_init__(self) -> None:
        check_name("task", self.name)
        check_queue(self.queue)
        check_priority(self.priority)
        object.__setattr__(self, "timeout", read_timeout(self.timeout))
        if not _is_whole(self.max_concurrent) or self.max_concurrent < 0:
            raise BadSettings(
                f"task {self.name}: max_concurrent is {self.max_concurrent!r}; give a whole number, 0 for no limit"
            )
        if self.scope not in _SCOPES:
            raise BadSettings(f"task {self.name}: scope is {self.scope!r}; choose {' or '.join(_SCOPES)}")
        if not isinstance(self.isolation, Confinement) and self.isolation not in _ISOLATIONS:
            raise BadSettings(
                f"task {self.name}: isolation is {self.isolation!r}; choose one of {', '.join(_ISOLATIONS)},"
                " or give Process(…), Sandbox(…) or Container(image=…)"
            )
        self._check_result_options()
        if self.extra not in _EXTRAS:
            raise BadSettings(f"task {self.name}: extra is {self.extra!r}; choose {' or '.join(_EXTRAS)}")
        self._check_versions()
        for alias in self.aliases:
            check_name("task", alias)
        check_name("store", self.store or "default")
        check_name("environment", self.environment or "any")
        check_unique(self.unique)
        for hook in ("should_retry", "retry_delay"):
            if (given := getattr(self, hook)) is not None and not callable(given):
                raise BadSettings(
                    f"task {self.name}: {hook} is {given!r}; give a function that takes the execution"
                )
        check_tags(f"task {self.name}: tags", self.tags)
        for stage in self.stages:
            if not str(stage).strip() or stage != str(stage) or self.stages.count(stage) > 1:
                raise BadSettings(
                    f"task {self.name}: stages are {list(self.stages)!r}; give names that differ",
                    option="stages",
                )
        for text in (self.owner, self.description):
            check_text(f"task {self.name}: the owner or the description", text)

    def _check_result_options(self) -> None:
        if not _is_whole(self.result_limit) or not 1 <= self.result_limit <= CEILING:
            raise BadSettings(
                f"task {self.name}: result_limit is {self.result_limit!r}; give 1 to {CEILING} bytes"
            )
        check_max(f"task {self.name}: max_result", self.max_result)
        if self.large_results not in _LARGE_RESULTS:
            raise BadSettings(
                f"task {self.name}: large_results is {self.large_results!r}; choose {' or '.join(_LARGE_RESULTS)}"
            )

    def _check_versions(self) -> None:
        for option in ("version", "resumes"):
            number = getattr(self, option)
            if number is not None and (not _is_whole(number) or number < 1):
                raise BadSettings(
                    f"task {self.name}: {option} is {number!r}; give a whole number from 1 on, or None",
                    option=option,
                )
        if self.resumes is not None and (self.version is None or self.resumes > self.version):
            raise BadSettings(
                f"task {self.name}: resumes is {self.resumes} and version is {self.version}; resumes is at most version",
                option="resumes",
            )
        if self.steps not in _STEP_POLICIES:
            raise BadSettings(
                f"task {self.name}: steps is {self.steps!r}; choose {' or '.join(_STEP_POLICIES)}",
                option="steps",
            )

    def runs_in(self, environment: str) -> bool:
        """Whether an app of this environment enqueues and runs the task."""
        return self.environment is None or self.environment == environment

    @property
    def isolation_name(self) -> str:
        """The kind of isolation: auto, thread, process, sandbox or container."""
        return self.isolation if isinstance(self.isolation, str) else type(self.isolation).__name__.lower()

    @property
    def confinement(self) -> Confinement | None:
        """The rights of the child process of a job; None for a plain child process, or none."""
        match self.isolation:
            case "sandbox":
                return Sandbox()
            case Process() as process:
                return None if process.is_plain else process
            case Sandbox() | Container() as given:
                return given
            case _:
                return None

    @property
    def is_limited(self) -> bool:
        """Whether its jobs count against limits."""
        return bool(self.max_concurrent or self.limits or self.breaker)

    @property
    def counted(self) -> Mapping[str, object]:
        """The limits that its jobs count against, as plain data."""
        return limit_data(self)

    @property
    def policy(self) -> Policy:
        """The part of the options that ``decide`` needs."""
        return Policy(retry=self.retry, orphans=self.orphans)


class TaskKeywords(TypedDict, total=False):
    """The options of ``@app.task`` as users write them, for type checkers."""

    name: str
    queue: str
    priority: int
    retry: RetryPolicy | str | int | None
    max_retries: int
    timeout: Duration | None
    max_concurrent: int
    limits: Sequence[Limit | Rate] | Limit | Rate
    breaker: Breaker | str | None
    scope: Scope
    isolation: Isolation
    unique: Unique | None
    stages: Sequence[str | Callable[..., Any]]
    audit: bool
    tags: Sequence[str]
    owner: str | None
    description: str | None
    result_limit: int
    max_result: int
    large_results: LargeResults
    orphans: OrphanRule | str
    should_retry: Callable[[Execution], bool] | None
    retry_delay: Callable[[Execution], Duration | None] | None
    aliases: Sequence[str]
    extra: Extra
    store: str | None
    record: Record | Literal["full", "last", "none"]
    version: int | None
    resumes: int | None
    steps: StepPolicy
    environment: str | None
    notify: Mapping[str, str | Sequence[str]] | Sequence[str] | str


def read_options(name: str, given: Mapping[str, Any]) -> TaskOptions:
    """Read the options of a decorator: ``retry=None`` is one attempt, a string a preset, ``max_retries`` an alias."""
    values = dict(given)
    if "max_retries" in values:
        if not _is_whole(values["max_retries"]):
            raise BadSettings(f"task {name}: max_retries is {values['max_retries']!r}; give a whole number")
        if _is_whole(values.get("retry")):
            raise BadSettings(
                f"task {name}: retry={values['retry']} counts attempts and max_retries={values['max_retries']} counts those"
                " after the first; give one of them",
                option="max_retries",
            )
        values["retry"] = _with_attempts(values.get("retry", DEFAULT_RETRY), values.pop("max_retries") + 1)
    if "retry" in values:
        values["retry"] = read_retry(values["retry"])
    for key in ("stages", "tags", "limits", "aliases"):
        if key in values:
            values[key] = _several(key, values[key])
    if "stages" in values:
        values["stages"] = tuple(_stage(stage) for stage in values["stages"])
    values["limits"] = read_limits(name, values.get("limits", ()))
    values["breaker"] = read_breaker(name, values.get("breaker"))
    if "orphans" in values:
        values["orphans"] = _orphans(name, values["orphans"])
    if "record" in values:
        values["record"] = read_record(values["record"])
    if "notify" in values:
        values["notify"] = _notify(name, values["notify"])
    unknown = sorted(set(values) - set(TaskOptions.__dataclass_fields__))
    if unknown:
        known = ", ".join(sorted({*TaskOptions.__dataclass_fields__, "max_retries"} - {"name"}))
        raise BadSettings(
            f"task {name}: unknown option {unknown[0]!r}; expected one of {known}", option=unknown[0]
        )
    values.setdefault("name", name)
    return TaskOptions(**values)


def read_retry(given: RetryPolicy | str | int | None) -> RetryPolicy:
    """Read a retry policy in the form users write it."""
    match given:
        case None:
            return NoRetry()
        case str():
            return preset(given)
        case int():
            return _with_attempts(DEFAULT_RETRY, given)
        case RetryPolicy():
            check_attempts(type(given).__name__, given.max_attempts)
            return given
        case _:
            raise BadSettings(
                f"retry is {given!r}; give a policy such as Exponential(), a preset's name, or None"
            )


def _notify(task: str, given: Any) -> Mapping[str, Sequence[str]]:
    """Read the channels of a task: by kind of event, or of its permanent failures."""
    if isinstance(given, str | list | tuple):
        given = dict.fromkeys(PERMANENT, given)
    try:
        return read_channels(f"task {task}: notify", given)
    except BadSettings as error:
        raise BadSettings(error.message, option="notify") from None


def _orphans(task: str, given: Any) -> OrphanRule:
    try:
        return OrphanRule(given)
    except ValueError:
        raise BadSettings(
            f"task {task}: orphans is {given!r}; choose one of {', '.join(OrphanRule)}", option="orphans"
        ) from None


def _with_attempts(policy: RetryPolicy | str | None, attempts: int) -> RetryPolicy:
    if attempts < 1:
        raise BadSettings(f"{attempts} attempts are too few; one is the least")
    base = read_retry(policy)
    if attempts == 1:
        return NoRetry()
    if isinstance(base, NoRetry):
        base = DEFAULT_RETRY
    fields = {name: getattr(base, name) for name in getattr(base, "__dataclass_fields__", ())}
    return type(base)(**(fields | {"max_attempts": attempts}))


def check_priority(priority: int) -> None:
    """Check a priority, which must be from −100 to 100."""
    if not _is_whole(priority) or not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        raise BadSettings(
            f"priority is {priority!r}; give {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}, higher runs first"
        )


def read_timeout(given: object) -> timedelta | None:
    """Return a timeout, which must be positive, or None for no limit."""
    timeout = read_optional("timeout", given, option="timeout")
    if timeout is not None and timeout <= timedelta(0):
        seconds = f"{timeout.total_seconds():g} s"
        raise BadSettings(f"timeout is {seconds}; give a duration longer than zero, or None for no limit")
    if timeout is not None:
        check_span("timeout", timeout)
    return timeout


def check_unique(rule: object) -> None:
    """Check that the rule is a ``Unique`` or None."""
    if rule is not None and not isinstance(rule, Unique):
        raise BadSettings(f"unique is {rule!r}; give Unique(…), or None", option="unique")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _several(key: str, given: Sequence[Any] | Callable[..., Any] | str) -> tuple[Any, ...]:
    if isinstance(given, str):
        raise BadSettings(f"{key} is the text {given!r}; give a list or a tuple")
    return tuple(given) if isinstance(given, Sequence) else (given,)
