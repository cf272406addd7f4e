"""Enqueue form of a task page, generated from the task's argument schema."""

from __future__ import annotations

from typing import Any, Literal, cast

from starlette.responses import Response

from tidemill.client.enqueue.options import NO_OPTIONS, CallOptions
from tidemill.dashboard.argument_form import JSON_FIELD, PREFIX, arguments_of, read_arguments
from tidemill.dashboard.form_state import FormError, FormState, complaints, read_span, read_tags, read_whole
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.dashboard.tasks import show
from tidemill.domain.access import Role
from tidemill.domain.bounds import check_queue
from tidemill.domain.job import NewJob
from tidemill.domain.unique import Unique
from tidemill.errors import TaskNotFound, TidemillError
from tidemill.tasks.task import Declared

pages = PageRoutes()

UNIQUE = ("pending", "live")
OPTION_FIELDS = {
    "queue": "queue",
    "priority": "priority",
    "delay": "delay",
    "tags": "tags",
    "unique": "unique",
}


@pages.post("/tasks/{name:path}", role=Role.OPERATOR)
async def enqueue(request: PageRequest) -> Response:
    """Enqueue one job and redirect to its page, or show the form again with errors next to the fields."""
    name = request.path["name"]
    try:
        declared = request.app.registry.get(name)
    except TaskNotFound as error:
        request.check(name)
        return await show(request, name, FormState(request.form, {"": error.message}))
    arguments = arguments_of(declared.arguments.schema())
    text, errors = read_arguments(request.form, arguments)
    fields = None if request.form.get(JSON_FIELD) is not None else PREFIX
    try:
        options = _options(request)
        request.check(declared.name, options.given("queue", declared.options.queue))
        if not errors:
            args = await request.read(declared.arguments.load, text)
            return await _enqueue(request, declared, options, args)
    except FormError as wrong:
        errors[wrong.field] = wrong.words
    except TidemillError as error:
        errors |= complaints(error, {**OPTION_FIELDS, "args": JSON_FIELD}, arguments=fields)
        # Show an error about an argument without a field of its own as an error of the whole form.
        fields_shown = {argument.field for argument in arguments} | set(OPTION_FIELDS) | {JSON_FIELD, ""}
        for field in [field for field in errors if field not in fields_shown]:
            message = f"{field.removeprefix(PREFIX)}: {errors.pop(field)}"
            errors[JSON_FIELD if fields is None else ""] = message
    return await show(request, name, FormState(request.form, errors))


async def _enqueue(
    request: PageRequest, declared: Declared, options: CallOptions, args: dict[str, Any]
) -> Response:
    request.identity.check_priority(options.given("priority", declared.options.priority))
    _, (made,) = await request.act(request.service.client.enqueuer.enqueue, declared, options, [((), args)])
    if isinstance(made, NewJob):
        return request.back(f"/jobs/{made.id}", f"Job {made.id} is enqueued, for tenant {made.tenant}.")
    return request.back(f"/jobs/{made.id}", "Nothing was enqueued: this job already exists.")


def _options(request: PageRequest) -> CallOptions:
    form = request.form
    options: dict[str, Any] = {"tenant": request.home}
    if queue := form.get("queue"):
        try:
            check_queue(queue)
        except TidemillError as error:
            raise FormError("queue", error.message) from None
        options["queue"] = queue
    if (priority := read_whole(form, "priority", least=-100, most=100)) is not None:
        options["priority"] = priority
    if (delay := read_span(form, "delay")) is not None:
        options["delay"] = delay
    if tags := read_tags(form):
        options["tags"] = tags
    if (unique := form.get("unique")) in UNIQUE:
        options["unique"] = Unique(states=cast(Literal["pending", "live"], unique))
    try:
        return NO_OPTIONS.merged(options)
    except TidemillError as error:
        raise FormError(str(error.details.get("option", "")), error.message) from None
