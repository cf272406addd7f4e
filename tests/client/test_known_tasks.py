"""Tasks that a program enqueues by name, checked against what workers have recorded in the store."""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter
from tests.engine.worker_kit import until
from tests.grounds import url_of

from tidemill import App, Exponential, Limit, ManualClock, Secret, Unique
from tidemill.app_tasks import FRESH, UNKNOWN_FRESH
from tidemill.domain.task_records import KEPT_FOR, REFRESH, TaskRecord
from tidemill.errors import BadArguments, JobExists, TaskNotFound, WrongEnvironment
from tidemill.tasks.codec import arguments_codec
from tidemill.tasks.declared_elsewhere import RecordedArguments
from tidemill.tasks.secret_values import KEYS, new_key


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def apps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[App, App]]:
    """An app with code, and one without, on the same store."""
    clock = ManualClock()
    if request.param == "memory":
        with App("memory://", clock=clock) as shop, App(shop.store, clock=clock) as website:
            yield shop, website
        return
    url = url_of(request.param, tmp_path, request)
    with App(url, clock=clock, migrate=True) as shop, App(url, clock=clock) as website:
        yield shop, website


@dataclass
class Address:
    street: str
    number: int = 1


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


def declare(shop: App) -> None:
    @shop.task(
        name="mail.send",
        queue="mail",
        priority=7,
        timeout="90s",
        retry=Exponential(max_attempts=9),
        tags=["letters"],
        owner="ops",
        unique=Unique(by=("to",), on_conflict="raise", within="1h"),
        limits=[Limit(3, key="to"), Limit(2, key="size", name="sized")],
        max_concurrent=20,
    )
    def send(to: str, address: Address, size: int = 4) -> None:
        """Send a letter.

        With a stamp.
        """

    shop.confirm()


ADDRESS = {"street": "Mill Lane", "number": 2}


def test_a_job_enqueued_by_name_is_the_one_that_the_code_would_enqueue(apps: tuple[App, App]) -> None:
    shop, website = apps
    declare(shop)
    job = website.enqueue("mail.send", to="ada", address=ADDRESS)
    there = shop.bound_task("mail.send").using(unique=None).enqueue(to="ada", address=Address("Mill Lane", 2))
    row, expected = website.jobs.get(job.id).row, shop.jobs.get(there.id).row
    assert (row.queue, row.priority, row.timeout, row.max_attempts) == ("mail", 7, timedelta(seconds=90), 9)
    assert row.details.tags == ("letters",)
    for name in ("queue", "priority", "timeout", "max_attempts", "limits", "args"):
        assert getattr(row, name) == getattr(expected, name), name
    assert row.limits == ("mail.send.limit.to/ada", "sized/4", "task/mail.send")
    with pytest.raises(JobExists, match=r"mail\.send"):  # its unique rule raises
        website.enqueue("mail.send", to="ada", address=ADDRESS)
    shop.testing().drain()
    assert job.refresh().status == "completed"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"address": ADDRESS}, "to: required, but missing; give it a value"),
        ({"to": "ada", "address": ADDRESS, "colour": "red"}, "colour: there is no such argument; there are to, addr"),
        ({"to": 7, "address": ADDRESS}, "to: expected string"),
        ({"to": "ada", "address": {"number": 1}}, "address.street: is missing"),
        ({"to": "ada", "address": {"street": "x", "number": "one"}}, "address.number: expected integer"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_where_the_job_is_enqueued(
    apps: tuple[App, App], arguments: dict[str, Any], problem: str
) -> None:
    shop, website = apps
    declare(shop)
    with pytest.raises(BadArguments, match=r"task mail\.send: ") as raised:
        website.enqueue("mail.send", **arguments)
    assert problem in str(raised.value)
    assert website.jobs.count() == 0
    with pytest.raises(BadArguments):
        shop.enqueue("mail.send", **arguments)


def test_coroutines_check_the_arguments_too(apps: tuple[App, App]) -> None:
    shop, website = apps
    declare(shop)

    async def main() -> None:
        for _ in range(2):  # the second time from the cache
            with pytest.raises(BadArguments, match="to: expected string"):
                await website.aenqueue("mail.send", to=7, address=ADDRESS)
        job = await website.aenqueue("mail.send", to="ada", address=ADDRESS)
        assert job.row.queue == "mail"

    asyncio.run(main())


def test_options_of_a_call_override_those_of_the_record(apps: tuple[App, App]) -> None:
    shop, website = apps
    declare(shop)
    bound = website.bound_task("mail.send")
    job = bound.using(queue="slow", priority=1, delay="10m").enqueue(to="bob", address=ADDRESS)
    assert (job.row.queue, job.row.priority, job.status) == ("slow", 1, "scheduled")
    assert [parameter.name for parameter in bound.parameters] == ["to", "address", "size"]


def test_a_task_without_a_record_takes_any_arguments(apps: tuple[App, App]) -> None:
    shop, website = apps
    with pytest.raises(TaskNotFound, match=r"no task is named 'mail\.send'; the app has 0 tasks; import the"):
        website.bound_task("mail.send")
    job = website.enqueue("mail.send", anything=[1, 2])
    assert (job.row.queue, json.loads(job.row.args)) == ("default", {"anything": [1, 2]})
    declare(shop)
    shop.clock.advance(UNKNOWN_FRESH + 0.1)  # type: ignore[attr-defined]
    with pytest.raises(BadArguments, match="anything: there is no such argument"):
        website.enqueue("mail.send", anything=[1, 2])


def test_a_program_sees_a_new_record_after_a_minute(apps: tuple[App, App]) -> None:
    shop, website = apps
    clock: Any = shop.clock
    declare(shop)
    assert website.enqueue("mail.send", to="ada", address=ADDRESS).row.queue == "mail"
    (record,) = website.store.declared_tasks(["mail.send"])
    later = replace(record, settings={**record.settings, "queue": "post"}, deployed_at=clock.now())
    website.store.declare_tasks([later], now=clock.now())
    assert website.enqueue("mail.send", to="bob", address=ADDRESS).row.queue == "mail"
    clock.advance(FRESH + 1)
    assert website.enqueue("mail.send", to="eve", address=ADDRESS).row.queue == "post"


def test_secret_arguments_are_sealed_by_a_program_without_the_code(
    apps: tuple[App, App], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS, new_key("k1"))
    shop, website = apps
    seen = []

    @shop.task
    def pay(card: Secret[str], amount: int) -> None:
        seen.append((card.reveal(), amount))

    shop.confirm()
    jobs = [website.enqueue("pay", card=card, amount=3) for card in (Secret("4111"), "4222")]
    assert all("$sealed" in job.row.args and "4111" not in job.row.args for job in jobs)
    shop.testing().drain()
    assert sorted(seen) == [("4111", 3), ("4222", 3)]
    with pytest.raises(BadArguments, match="amount: expected integer"):
        website.enqueue("pay", card="4111", amount="3")
    with pytest.raises(BadArguments, match="card: expected string") as raised:
        website.enqueue("pay", card=41114111, amount=3)
    assert "41114111" not in str(raised.value)


def test_why_says_that_waiting_arguments_do_not_fit_the_recorded_task(apps: tuple[App, App]) -> None:
    shop, website = apps
    early = website.enqueue("mail.send", address=ADDRESS, colour="red")
    declare(shop)
    fitting = website.jobs.get(shop.bound_task("mail.send").enqueue(to="ada", address=Address("x")).id)
    first = website.jobs.why(early.id)[0]
    assert first.code == "arguments_unfit"
    assert first.text.endswith(": to: is missing; colour: is not a field.")
    assert "arguments_unfit" not in [reason.code for reason in website.jobs.why(fitting.id)]


def test_aliases_are_recorded_too(apps: tuple[App, App]) -> None:
    shop, website = apps

    @shop.task(name="send_email", aliases=["send_mail"], queue="mail")
    def send(to: str) -> str:
        return to

    shop.confirm()
    job = website.enqueue("send_mail", to="ada")
    assert (job.task, job.row.queue) == ("send_mail", "mail")
    shop.testing().drain()
    assert job.result() == "ada"


def test_tasks_of_another_environment_are_not_recorded() -> None:
    with App("memory://", environment="production") as shop:

        @shop.task(environment="staging")
        def wipe() -> None: ...

        @shop.task
        def report() -> None: ...

        shop.confirm()
        assert [record.name for record in shop.store.declared_tasks()] == ["report"]
        with pytest.raises(WrongEnvironment):
            shop.enqueue("wipe")


def test_a_worker_writes_its_records_at_the_start_and_then_only_what_has_changed(
    apps: tuple[App, App],
) -> None:
    shop, _ = apps
    clock: Any = shop.clock
    declare(shop)
    (first,) = shop.store.declared_tasks()
    assert (first.description, first.owner, first.deployed_at) == (
        "Send a letter.", "ops", shop.deployment().deployed_at,
    )  # fmt: skip
    clock.advance(60)
    shop.confirm()
    assert shop.store.declared_tasks() == [first]
    clock.advance(REFRESH.total_seconds())
    shop.confirm()
    (again,) = shop.store.declared_tasks()
    assert again == replace(first, seen_at=clock.now())


def test_an_older_deployment_does_not_change_the_record_of_a_newer_one(apps: tuple[App, App]) -> None:
    shop, website = apps
    clock: Any = shop.clock
    old = shop.deployment()
    clock.advance(10)
    newer = TaskRecord("mail.send", {"type": "object"}, {"queue": "post"}, deployed_at=clock.now())
    website.store.declare_tasks([newer], now=clock.now())
    assert old.deployed_at < clock.now()
    declare(shop)
    (stored,) = website.store.declared_tasks()
    assert stored.settings == {"queue": "post"}


def test_the_record_of_a_removed_task_is_forgotten(apps: tuple[App, App]) -> None:
    shop, website = apps
    clock: Any = shop.clock
    website.store.declare_tasks([TaskRecord("gone", {}, deployed_at=clock.now())], now=clock.now())
    clock.advance(KEPT_FOR.total_seconds() + 1)
    declare(shop)
    assert [record.name for record in website.store.declared_tasks()] == ["mail.send"]


def test_a_record_that_this_version_cannot_read_leaves_the_job_unchecked(
    apps: tuple[App, App], caplog: pytest.LogCaptureFixture
) -> None:
    shop, website = apps
    strange = TaskRecord("mail.send", {}, {"priority": "urgent"}, deployed_at=shop.clock.now())
    website.store.declare_tasks([strange])
    assert website.enqueue("mail.send", to=7).status == "pending"
    assert "the record of task mail.send cannot be read" in caplog.text


def test_a_running_worker_records_its_tasks() -> None:
    with App("memory://") as shop:

        @shop.task
        def send(to: str) -> None: ...

        with shop.worker():
            until(lambda: shop.store.declared_tasks(["send"]), "the task is recorded")


# ------------------------------------------------------------------------- no valid argument is refused elsewhere


class Model(BaseModel):
    name: str = Field(min_length=1)
    inner: Address | None = None
    tags: list[str] = []


class Aliased(BaseModel, populate_by_name=True):
    name: str = Field(alias="theName")


Tree = dict[str, "list[int] | None"]
TYPES: list[Any] = [
    int, str, bool, float, bytes, UUID, date, datetime, timedelta, Decimal, Any, Size, Literal["a", 1, None],
    list[int], dict[str, float], set[str], tuple[int, str], tuple[int, ...], int | None, int | str | list[bool],
    Address, Model, Aliased, Annotated[int, BeforeValidator(int)], Annotated[int, Field(ge=3, le=9)],
    Annotated[str, Field(pattern="^[a-c]+$", max_length=4)], Annotated[str, Field(alias="other")], Tree,
]  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-20, 20)
    | st.floats(allow_nan=False, allow_infinity=False, width=16)
    | st.sampled_from(
        ["a", "abc", "small", "3", "1E+3", "2026-11-19", "2026-11-19T03:00:00Z", "P1D", "00000000-0000-0000-0000-000000000000"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["street", "number", "name", "theName", "inner", "tags", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip


def codecs(annotation: Any) -> tuple[Any, RecordedArguments]:
    def task(value: Any, other: int = 3) -> None: ...

    task.__annotations__ = {"value": annotation, "other": int}
    codec = arguments_codec("task", task, method=False)
    schema = json.loads(json.dumps(codec.declared_schema()))
    return codec, RecordedArguments(TaskRecord("task", schema))


CODECS = {str(annotation): codecs(annotation) for annotation in TYPES}


@given(st.sampled_from(sorted(CODECS)), VALUES)
def test_no_argument_that_the_code_accepts_is_refused_by_its_record(annotation: str, value: Any) -> None:
    code, record = CODECS[annotation]
    calls: list[dict[str, Any]] = [{"value": value}, {"value": value, "other": 1}]
    for call in calls:
        try:
            code.load(json.dumps(call))
        except BadArguments:
            continue
        assert json.loads(record.dump((), call).text) == call


@pytest.mark.parametrize(
    ("annotation", "wrong"),
    [(int, "x"), (str, 3), (list[int], ["x"]), (Address, {"number": 3}), (Size, "huge"), (int | None, "x"),
     (Model, {"name": ""}), (Annotated[int, Field(ge=3)], 2), (dict[str, float], {"a": "b"})],
)  # fmt: skip
def test_a_record_refuses_what_a_schema_can_tell(annotation: Any, wrong: Any) -> None:
    code, record = codecs(annotation)
    for codec in (code, record):
        with pytest.raises(BadArguments):
            codec.dump((), {"value": wrong})


def test_values_of_types_that_json_lacks_are_written_as_the_code_writes_them() -> None:
    code, record = codecs(datetime)
    now = TypeAdapter(datetime).validate_python("2026-11-19T03:00:00Z")
    assert record.dump((), {"value": now}).text == code.dump((), {"value": now}).text
