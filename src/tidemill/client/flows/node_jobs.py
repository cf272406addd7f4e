"""The jobs of nodes: arguments that contain results of other nodes, and the items of a map."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tidemill.client.enqueue.options import CallOptions, Template
from tidemill.domain.fan_out import FAN_OUT, template_to_data
from tidemill.domain.job import NewJob
from tidemill.domain.references import (
    INPUTS,
    Reference,
    StoredReference,
    encode,
    has_references,
    references_in,
    stored_of,
)
from tidemill.errors import BadArguments, UsageError
from tidemill.ids import new_id
from tidemill.tasks.codec import Encoded
from tidemill.tasks.task import Declared

if TYPE_CHECKING:
    from tidemill.client.core import Client

T = TypeVar("T")


class MapItems:
    """The items of a map: a list, or the result of another node."""

    __slots__ = ("items",)

    def __init__(self, items: Any) -> None:
        self.items = items

    def __repr__(self) -> str:
        return f"each({self.items!r})"


def each(items: Iterable[T]) -> T:
    """Mark the argument of ``flow.map`` that takes one item of this list: ``flow.map(load, row=each(rows.result))``.

    For type checkers it is one item.
    """
    made: Any = MapItems(items)
    return made  # type: ignore[no-any-return]


class NodeJobs(NamedTuple):
    """The jobs of one node, and the results that their arguments take."""

    jobs: list[NewJob]
    inputs: list[Reference]
    grows: bool = False  #: one job that makes the others when it runs
    fed: dict[str, Reference] = {}  # noqa: RUF012  #: arguments that are one result as a whole


def node_jobs(
    client: Client, declared: Declared, call: CallOptions, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> NodeJobs:
    """Build the job of a node from a call whose arguments may contain references."""
    template = _template(client, declared, call)
    values = _bound(declared, args, kwargs)
    if any(isinstance(value, MapItems) for value in values.values()):
        raise UsageError(
            f"each(…) belongs to flow.map({declared.name}, …); flow.add makes one job", task=declared.name
        )
    return _single(declared, template, values)


def map_jobs(
    client: Client, declared: Declared, call: CallOptions, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> NodeJobs:
    """Build the jobs of a map: one per item, or one that makes them from the result of another node."""
    template = _template(client, declared, call)
    values = _bound(declared, args, kwargs)
    marked = [name for name, value in values.items() if isinstance(value, MapItems)]
    if len(marked) != 1:
        raise UsageError(
            f"flow.map({declared.name}, …) has {len(marked)} arguments with each(…); give exactly one,"
            " such as row=each(rows.result)",
            task=declared.name,
        )
    (into,) = marked
    items = values[into].items
    if isinstance(items, Reference):
        return _growing(declared, template, values, into, items)
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise UsageError(
            f"flow.map({declared.name}, {into}=each(…)): {type(items).__name__} is not a list of items",
            task=declared.name,
        )
    jobs: list[NewJob] = []
    inputs: list[Reference] = []
    fed: dict[str, Reference] = {}
    for item in items:
        made = _single(declared, template, {**values, into: item})
        jobs += made.jobs
        inputs, fed = (made.inputs, made.fed) if made.inputs else (inputs, fed)
    return NodeJobs(jobs, inputs, False, fed)


def _template(client: Client, declared: Declared, call: CallOptions) -> Template:
    for name, hint in (
        ("connection", "flow.start(connection=…) writes the whole flow in your transaction"),
        ("store", "a flow and all its jobs are in one store; use app.at_store(…).flow(…)"),
        ("tenant", "a flow and all its jobs belong to one tenant; use with app.tenant(…)"),
    ):
        if getattr(call, name) is not None:
            raise UsageError(f"task {declared.name}: {name} cannot be set for one node; {hint}")
    if call.given("unique", None) is not None:
        raise UsageError(
            f"task {declared.name}: a node has no unique key of its own; give the flow a key: app.flow(name, key=…)"
        )
    return client.template(declared, replace(call, unique=None))


def _bound(declared: Declared, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    values, wrong = declared.arguments.signature.bind(tuple(args), kwargs)
    if wrong:
        shown = "; ".join(f"{fault.field}: {fault.message}" for fault in wrong)
        raise BadArguments(
            f"task {declared.name}: {shown}", task=declared.name, errors=[fault._asdict() for fault in wrong]
        )
    return values


def _single(declared: Declared, template: Template, values: Mapping[str, Any]) -> NodeJobs:
    later = {name: value for name, value in values.items() if has_references(value)}
    if not later:
        return NodeJobs([template.job((), values)], [])
    text, inputs = _written(declared, values, later)
    _check_limits(declared, later)
    fed = {name: value for name, value in later.items() if isinstance(value, Reference)}
    return NodeJobs([template.job_of(Encoded(text))], inputs, fed=fed)


def _written(
    declared: Declared, values: Mapping[str, Any], later: Mapping[str, Any]
) -> tuple[str, list[Reference]]:
    """Encode arguments of which some are results of other nodes."""
    now = {name: value for name, value in values.items() if name not in later}
    plain: dict[str, Any] = declared.arguments.without(later).dump((), now).values
    written = {name: encode(value)[0] for name, value in plain.items()}
    for name, value in later.items():
        try:
            written[name] = encode(value)[0]
        except UsageError as error:
            raise BadArguments(f"task {declared.name}: {name}: {error}", task=declared.name) from None
    text = json.dumps(written, separators=(",", ":"), ensure_ascii=False)
    return text, [reference for value in later.values() for reference in references_in(value)]


def _check_limits(declared: Declared, later: Mapping[str, Any]) -> None:
    for limit in declared.options.limits:
        if isinstance(limit.key, str) and limit.key in later:
            raise UsageError(
                f"task {declared.name} has a limit by {limit.key!r}, which is not known before the flow runs;"
                " give that argument a value",
                task=declared.name,
            )


def _growing(
    declared: Declared,
    template: Template,
    values: Mapping[str, Any],
    into: str,
    items: Reference,
) -> NodeJobs:
    """Build the job that makes the jobs of a map when the list is known."""
    others = {name: value for name, value in values.items() if name != into}
    later = {name: value for name, value in others.items() if has_references(value)}
    _check_limits(declared, {**later, into: items})
    if declared.arguments.secrets:
        raise UsageError(
            f"task {declared.name} has a secret argument, which a map over a result cannot seal for its jobs;"
            " map over a list, or read the secret in the task",
            task=declared.name,
        )
    text, inputs = _written(declared, {**others, into: items}, {**later, into: items})
    written = json.loads(text)
    listed = written.pop(into)
    if not later:  # these jobs take no results, so nothing in their arguments is escaped
        written = declared.arguments.without((into,)).dump((), others).values
    example = template.job_of(Encoded("{}"))
    options = dict(example.details.options)
    if later:
        options[INPUTS] = sorted({str(stored_of(found).id) for found in references_in(list(later.values()))})
    example = example._replace(details=replace(example.details, options=options))
    args = {
        "items": listed,
        "into": into,
        "args": json.dumps(written, separators=(",", ":"), ensure_ascii=False),
        "job": encode(template_to_data(example))[0],
    }
    maker = NewJob(
        id=new_id(),
        task=FAN_OUT,
        args=json.dumps(args, separators=(",", ":"), ensure_ascii=False),
        tenant=example.tenant,
        queue=example.queue,
        priority=example.priority,
        details=replace(example.details, options={}),
    )
    return NodeJobs([maker], inputs, grows=True)


def missing_allowed(declared: Declared, name: str) -> bool:
    """Whether an argument accepts None, which a result that does not exist becomes."""
    return declared.arguments.takes_none(name)


def ids_of(references: Iterable[Reference]) -> list[StoredReference]:
    """The stored form of references."""
    return [stored_of(reference) for reference in references]


def limited(job: NewJob, limit: str, *, grows: bool) -> NewJob:
    """The job with one more limit; of a job that makes others, those."""
    if not grows:
        return job._replace(limits=tuple(sorted((*job.limits, limit))))
    args = json.loads(job.args)
    args["job"]["limits"] = sorted((*args["job"]["limits"], limit))
    return job._replace(args=json.dumps(args, separators=(",", ":"), ensure_ascii=False))
