"""Codec for arguments and results as JSON.

Enqueueing accepts exactly what a worker can read: pydantic validates every value in strict mode, writes it as JSON,
reads it back, and the codec compares both. Nothing is pickled. A value that is already plain JSON (as from HTTP and the
command line) is read as the declared type: the text ``"2026-03-01T08:00:00Z"`` becomes a datetime. Omitted arguments
are not stored, so that a job uses the defaults of the code that runs it. pydantic is imported and the validators are
built on first use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, NotRequired
from uuid import UUID

from tidemill.domain.payload import clip
from tidemill.errors import BadArguments, BadSettings
from tidemill.tasks.annotations import surely_travels
from tidemill.tasks.plain_codec import Read, Write, short_reader, short_writer
from tidemill.tasks.schemas import has_aliases, keys_are_texts, kinds, travelling
from tidemill.tasks.secret_values import Secret, open_arguments, open_result, opened_secret, secret_type
from tidemill.tasks.signature import (
    Fault,
    Parameter,
    Signature,
    differences,
    got,
    is_plain,
    problems,
    read_result,
    read_signature,
)

if TYPE_CHECKING:
    from pydantic import TypeAdapter


SHOWN_FAULTS = 20
_UNKNOWN_TYPE = re.compile(r"schema for (?:<class '(?P<kind>[^']+)'>|(?P<other>.+?))\. Set ")
_MESSAGE_LENGTH = 300
_OPENING = '{"result":'  # a result is stored bare, and validated as the only argument of this name
_RETURN_TYPED = "; return a value that fits the annotation, or change the annotation"
_RETURN_JSON = "; return only what JSON can represent, or annotate the function's result"
# Aliases are for external input: fields are written under their own names and read under either.
_STRICT: Any = {"strict": True, "by_alias": True, "by_name": True}
_WHOLE: Any = {"by_alias": False, "round_trip": True}
REFUSALS = (ValueError, TypeError, RecursionError)  # pydantic's own errors are ValueErrors
# Schema types that pydantic checks completely in strict mode. All others get an additional check.
_SIMPLE = {
    "typed-dict", "typed-dict-field", "definitions", "nullable", "none", "str", "int", "bool", "float", "bytes", "uuid",
    "date", "timedelta", "decimal", "list", "set", "frozenset", "dict", "tuple",
}  # fmt: skip

_PLAIN = {"typed-dict", "typed-dict-field", "nullable", "none", "str", "int", "bool", "list", "dict"}
"""Schema types whose short JSON is always read back as it was written."""

_DESCRIBED = _PLAIN | {
    "definitions", "definition-ref", "float", "bytes", "uuid", "date", "datetime", "set", "frozenset", "tuple", "default",
    "model", "model-fields", "model-field", "dataclass", "dataclass-args", "dataclass-field", "enum", "literal", "union",
    "tagged-union", "any",
}  # fmt: skip
"""Schema types for which the JSON schema names every form of a value that is accepted."""

_OPEN_KEYS = ("title", "description", "default", "writeOnly", "format")
"""Parts of a schema that say nothing about a value."""

SURELY_READ = 4_000  # bytes; readers refuse integers of more than 4,300 digits
_MISSING = "required, but missing; give it a value"


class Encoded(NamedTuple):
    """Arguments ready for a store: compact JSON text and, on demand, the values in it (for unique keys)."""

    text: str

    @property
    def values(self) -> dict[str, Any]:
        """The parsed text. It is parsed at each access."""
        parsed: dict[str, Any] = json.loads(self.text)
        return parsed


class ArgumentsCodec:
    """Codec for the arguments of one task's jobs.

    >>> def backup(destination: str, size: int = 0) -> None: ...
    >>> codec = arguments_codec("backup", backup, method=False)
    >>> codec.dump(("/backup",), {}).text
    '{"destination":"/backup"}'
    >>> codec.load('{"destination":"/backup","size":3}')
    {'destination': '/backup', 'size': 3}
    """

    __slots__ = ("_machine", "context_parameter", "defaults", "names", "secrets", "signature", "task")

    def __init__(self, task: str, signature: Signature) -> None:
        self.task = task
        self.context_parameter = signature.context_parameter
        self.names, self.defaults = signature.names, signature.defaults
        self.signature = signature
        self.secrets = signature.secrets
        self._machine: _Machine | None = None

    def dump(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Encoded:
        """Encode a call's arguments. A ``BadArguments`` error names all invalid ones at once."""
        machine = self._machine or self.prepare()
        wrong: list[Fault] = []
        if not args and not self.secrets and tuple(kwargs) == self.names:
            values = dict(kwargs)
        else:
            values, wrong = self.signature.bind(args, kwargs)
        text, faults = machine.encode(values)
        if wrong or faults:
            _refuse(f"task {self.task}", self.task, wrong + self._without_values(faults))
        return Encoded(text)

    def load(self, text: str, job: UUID | None = None, definition: UUID | None = None) -> dict[str, Any]:
        """Decode the keyword arguments of ``function``. Omitted ones are left to its defaults.

        ``job`` is the id of the job to which its secret arguments are bound, unless its definition has them.
        """
        if not self.secrets or job is None:
            return self._load(text)
        values = self._load(open_arguments(text, self.secrets, job, definition))
        return {
            name: opened_secret(value) if name in self.secrets and value is not None else value
            for name, value in values.items()
        }

    def _load(self, text: str) -> dict[str, Any]:
        machine = self._machine or self.prepare()
        if machine.short_read is not None:
            try:
                return machine.short_read(text)
            except REFUSALS:
                pass  # the long path reports the faults
        values, faults = machine.decode(text)
        if faults:
            _refuse(f"task {self.task}", self.task, self._without_values(faults))
        return values

    def short_reader(self) -> Read | None:
        """Return a reader of plain arguments that raises one of ``REFUSALS`` for all others; None if their types are not plain."""
        return (self._machine or self.prepare()).short_read

    def _without_values(self, faults: list[Fault]) -> list[Fault]:
        """Return the faults without the values of secret arguments, which messages usually quote."""
        return [
            Fault(fault.field, "the secret value does not fit its type")
            if fault.field.partition(".")[0] in self.secrets and fault.message != _MISSING
            else fault
            for fault in faults
        ]

    def schema(self) -> dict[str, Any]:
        """Return a JSON schema of the arguments, with those defaults that JSON can represent."""
        from pydantic_core import to_jsonable_python

        schema = (self._machine or self.prepare()).schema(self.task)
        for parameter in self.signature.parameters:
            if not parameter.required:
                try:
                    default = to_jsonable_python(
                        parameter.default, bytes_mode="base64", inf_nan_mode="strings"
                    )
                except ValueError:  # JSON cannot represent this default
                    continue
                schema["properties"][parameter.name]["default"] = default
        for name in self.secrets:
            schema["properties"][name] |= {"writeOnly": True, "format": "password"}
        return schema

    def declared_schema(self) -> dict[str, Any]:
        """Return the schema for processes without this code: only what a JSON schema says exactly.

        An argument is left open if its type has validators or aliases of its own, or accepts other forms of a value
        than the schema names.
        """
        schema = self.schema()
        described = (self._machine or self.prepare()).described()
        properties: dict[str, Any] = schema.get("properties", {})
        for name, argument in properties.items():
            if name not in described:
                properties[name] = {key: argument[key] for key in _OPEN_KEYS if key in argument}
        aliases = properties.keys() - set(self.names)
        if aliases:  # an argument with an alias may be given under either name
            schema["required"] = [name for name in schema.get("required", ()) if name not in aliases]
            schema["additionalProperties"] = True
        return schema

    def check_types(self) -> None:
        """Refuse a type that JSON cannot represent. The validators are built only if the annotations leave a doubt."""
        parameters = (*self.signature.parameters, *((self.signature.extra,) if self.signature.extra else ()))
        if not all(surely_travels(parameter.annotation) for parameter in parameters):
            _check_early(self.prepare)

    def without(self, names: Collection[str]) -> ArgumentsCodec:
        """Return the codec of a call that leaves these arguments to a later moment, such as results of other jobs."""
        return _without(self, frozenset(names))

    def takes_none(self, name: str) -> bool:
        """Whether the argument may be None."""
        others = [other for other in self.names if other != name]
        try:
            self.without(others).dump((), {name: None})
        except BadArguments:
            return False
        return True

    def prepare(self) -> _Machine:
        """Build the validators now. Raises ``BadSettings`` with the name of an annotation that pydantic cannot read."""
        self._machine = _Machine(self.task, self.signature.parameters, self.signature.extra)
        return self._machine


@lru_cache(maxsize=1_000)
def _without(codec: ArgumentsCodec, names: frozenset[str]) -> ArgumentsCodec:
    signature = codec.signature
    rest = tuple(parameter for parameter in signature.parameters if parameter.name not in names)
    return ArgumentsCodec(codec.task, replace(signature, parameters=rest))


class ResultCodec:
    """Codec for the results of one task's jobs. Without an annotation, a result is any JSON value."""

    __slots__ = ("_annotation", "_machine", "is_secret", "task")

    def __init__(self, task: str, annotation: Any) -> None:
        self.task = task
        self.is_secret, self._annotation = secret_type(annotation)
        self._machine: _Machine | None = None

    @property
    def is_typed(self) -> bool:
        """Whether the function has a return annotation."""
        return self._annotation is not Any

    def dump(self, value: Any) -> str:
        """Encode a result. The error for an invalid one states that the task returned it."""
        if self.is_secret and isinstance(value, Secret):
            value = value.reveal()
        machine = self._machine or self.prepare()
        if machine.short_write is not None:
            try:
                raw = machine.short_write(value)
                if len(raw) < SURELY_READ:
                    return raw.decode()
            except REFUSALS:
                pass  # the long path reports the faults
        text, faults = machine.encode({"result": value})
        if faults and self.is_secret:
            faults = [Fault("result", "the secret value does not fit its type")]
        if faults:
            _refuse(
                f"task {self.task} returned a value that its annotation or JSON does not allow",
                self.task,
                faults,
                _RETURN_TYPED if self.is_typed else _RETURN_JSON,
            )
        return text[len(_OPENING) : -1]

    def short_writer(self) -> Write | None:
        """Return a writer of plain results, which raises one of ``REFUSALS`` for all others; None if the type is not plain."""
        return (self._machine or self.prepare()).short_write

    def load(self, text: str | None, job: UUID | None = None, step: str | None = None) -> Any:
        """Decode a stored result; None if there is none. A secret one needs the id of its job, and the record of a step."""
        if text is None:
            return None
        if self.is_secret and job is not None and text != "null":
            opened = open_result(text, job) if step is None else open_result(text, job, step)
            return opened_secret(self._load(opened))
        return self._load(text)

    def _load(self, text: str) -> Any:
        values, faults = (self._machine or self.prepare()).decode(f"{_OPENING}{text}}}")
        if faults:
            _refuse(f"task {self.task}: the stored result does not fit", self.task, faults)
        return values["result"]

    def schema(self) -> dict[str, Any]:
        """Return a JSON schema of the result."""
        schema = (self._machine or self.prepare()).schema(self.task)
        definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
        return {**schema["properties"]["result"], **definitions}

    def check_types(self) -> None:
        """Refuse a type that JSON cannot represent, as for arguments."""
        if not surely_travels(self._annotation):
            _check_early(self.prepare)

    def prepare(self) -> _Machine:
        """Build the validators now."""
        self._machine = _Machine(self.task, (Parameter("result", self._annotation),), None)
        return self._machine


def arguments_codec(task: str, function: Callable[..., Any], *, method: bool) -> ArgumentsCodec:
    """Return a codec for the parameters of ``function``, without ``self`` and the context."""
    return ArgumentsCodec(task, read_signature(task, function, method=method))


def result_codec(task: str, function: Callable[..., Any]) -> ResultCodec:
    """Return a codec for the return value of ``function``."""
    return ResultCodec(task, read_result(task, function))


class _Machine:
    """Validator and serialiser of one set of named fields. It returns faults instead of raising errors."""

    __slots__ = (
        "_adapter",
        "_checks",
        "_found_kinds",
        "_plain",
        "_python",
        "_read",
        "_required",
        "_write",
        "_write_plain",
        "short_read",
        "short_write",
    )

    def __init__(self, task: str, parameters: Sequence[Parameter], extra: Parameter | None) -> None:
        from pydantic_core import CoreConfig, SchemaSerializer, SchemaValidator, to_json

        config = CoreConfig(
            ser_json_bytes="base64",
            val_json_bytes="base64",
            ser_json_inf_nan="constants",
            allow_inf_nan=False,
        )
        self._adapter = _adapter(task, parameters, extra)
        schema = travelling(self._adapter.core_schema)
        validator = SchemaValidator(schema, config)
        self._python: Callable[..., Any] = partial(validator.validate_python, **_STRICT)
        self._read: Callable[..., Any] = partial(validator.validate_json, **_STRICT)
        self._write: Callable[..., bytes] = partial(SchemaSerializer(schema, config).to_json, **_WHOLE)
        self._write_plain: Callable[..., bytes] = to_json
        self._required = [parameter.name for parameter in parameters if parameter.required]
        fields = schema.get("schema", schema)
        shared = kinds(schema.get("definitions", []))
        found_kinds = {name: kinds(field, shared) for name, field in fields["fields"].items()}
        self._found_kinds = frozenset(found_kinds)
        found_kinds["**"] = kinds(fields.get("extras_schema", {}), shared)
        for name, found in found_kinds.items():
            if "generator" in found:
                raise _unfit(task, name, "an iterable is read lazily and once; use list[...]")
        self.short_read = short_reader(fields, validator.validate_json)
        self.short_write = short_writer(fields["fields"].get("result"), config)
        self._plain = all(found <= _PLAIN for found in found_kinds.values()) and keys_are_texts(schema)
        # Fields that need an additional check, and whether to compare them: a value read back as Any is rarely equal to
        # the original.
        self._checks = {
            name: "any" not in found for name, found in found_kinds.items() if not found <= _SIMPLE
        }

    def encode(self, values: dict[str, Any]) -> tuple[str, list[Fault]]:
        try:
            self._python(values)
            # Values of simple types that passed the validator cannot fail in the serialiser. Checking for that is
            # expensive, and so is any string here: "none" takes six times as long as False, which means the same.
            raw = self._write(values, warnings="error" if self._checks else False)
            if self._plain and len(raw) < SURELY_READ:
                return raw.decode(), []
            loaded = self._read(raw)
        except REFUSALS:
            return self._encode_each(values)
        return raw.decode(), self._review(values, loaded, ()) if self._checks else []

    def decode(self, text: str) -> tuple[dict[str, Any], list[Fault]]:
        try:
            values: dict[str, Any] = self._read(text)
        except REFUSALS as error:
            return {}, _faults(error)
        if self._checks:
            checked = (name for name in values if self._compares(name) is not None)
            return values, [fault for name in checked for fault in problems(values[name], name)]
        return values, []

    def described(self) -> frozenset[str]:
        """Return the fields whose valid values are exactly those of their JSON schema, or more."""
        schema = self._adapter.core_schema
        fields: Any = schema.get("schema", schema)
        shared: Any = schema.get("definitions", [])
        shared_kinds, shared_aliases = kinds(shared), has_aliases(shared)
        return frozenset(
            name
            for name, field in fields["fields"].items()
            if kinds(field, shared_kinds) <= _DESCRIBED
            and not has_aliases(field)
            and not (shared_aliases and "definition-ref" in kinds(field))
        )

    def schema(self, title: str) -> dict[str, Any]:
        from pydantic.json_schema import GenerateJsonSchema

        class Tolerant(GenerateJsonSchema):
            def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
                return {}  # a form accepts any JSON there, and the validator decides

        return {**self._adapter.json_schema(schema_generator=Tolerant), "title": title}

    def _encode_each(self, values: dict[str, Any]) -> tuple[str, list[Fault]]:
        """Encode the fields one by one to name every fault.

        This is slower, and also handles values that are already JSON.
        """
        faults: list[Fault] = []
        pieces: list[str] = []
        as_json: set[str] = set()
        for name, value in values.items():
            raw, wrong = b"", list(problems(value, name))
            if not wrong:
                raw, wrong = self._encode_one(name, value)
                if not raw and is_plain(value):
                    as_json.add(name)
                    raw = self._write_plain({name: value})
                    wrong = self._attempt(self._read, raw, name, value)
            faults += wrong
            pieces.append(raw.decode()[1:-1])
        faults += [Fault(name, _MISSING) for name in self._required if name not in values]
        if faults:
            return "", faults
        text = "{" + ",".join(pieces) + "}"
        loaded, faults = self.decode(text)
        return text, faults or self._review(values, loaded, as_json)

    def _encode_one(self, name: str, value: Any) -> tuple[bytes, list[Fault]]:
        if wrong := self._attempt(self._python, {name: value}, name, value):
            return b"", wrong
        try:
            raw = self._write({name: value}, warnings="error")
            return raw, self._attempt(self._read, raw, name, value)
        except REFUSALS as error:
            unfit = Fault(name, f"{_first_line(error)} {got(value)}")
        try:  # an object with invalid values in its fields: reading its JSON names them
            raw = self._write({name: value}, warnings="none")
        except REFUSALS:
            return b"", [unfit]
        return b"", self._attempt(self._read, raw, name, value) or [unfit]

    def _attempt(self, check: Callable[[Any], Any], given: Any, name: str, value: Any) -> list[Fault]:
        try:
            check(given)
        except REFUSALS as error:
            return _faults(error, name, value)
        return []

    def _compares(self, name: str) -> bool | None:
        return self._checks.get(name if name in self._found_kinds else "**")

    def _review(self, given: dict[str, Any], loaded: dict[str, Any], as_json: Collection[str]) -> list[Fault]:
        faults: list[Fault] = []
        for name, value in given.items():
            compare = self._compares(name)
            if compare is None:
                continue
            value_faults = list(problems(value, name)) or list(problems(loaded[name], name))
            if not value_faults and compare and name not in as_json:
                value_faults = list(differences(value, loaded[name], name))[:1]
            faults += value_faults
        return faults


def _adapter(task: str, parameters: Sequence[Parameter], extra: Parameter | None) -> TypeAdapter[Any]:
    """Build the type adapter of the fields. A TypedDict allows any field name and reports all faults at once."""
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter
    from typing_extensions import TypedDict

    def build(chosen: Sequence[Parameter], others: Parameter | None) -> TypeAdapter[Any]:
        make: Any = TypedDict
        fields = {p.name: p.annotation if p.required else NotRequired[p.annotation] for p in chosen}
        made = make("Arguments", fields, **({"extra_items": others.annotation} if others else {}))
        made.__pydantic_config__ = ConfigDict(
            strict=True,
            extra="allow" if others else "forbid",
            ser_json_bytes="base64",
            val_json_bytes="base64",
            allow_inf_nan=False,
        )
        adapter = TypeAdapter[Any](made)
        adapter.rebuild(raise_errors=True)
        return adapter

    try:
        return build(parameters, extra)
    except (PydanticUserError, NameError, TypeError) as error:
        for parameter in parameters:
            try:
                build((parameter,), None)
            except (PydanticUserError, NameError, TypeError) as cause:
                raise _unfit(task, parameter.name, _why(cause)) from cause
        raise _unfit(task, extra.name if extra else "", _why(error)) from error


def _check_early(prepare: Callable[[], object]) -> None:
    """Raise errors, except for a name that is not defined yet: it may be by the first use."""
    try:
        prepare()
    except BadSettings as error:
        if not isinstance(error.__cause__, NameError):
            raise


def _why(error: Exception) -> str:
    """Explain why pydantic cannot read an annotation, in terms of task declarations."""
    match = _UNKNOWN_TYPE.search(str(error))
    if match is None:
        return _first_line(error)
    name = match["kind"] or match["other"]
    return (
        f"values of {name} cannot be stored as JSON; use plain types, a dataclass or a pydantic model, "
        "or pass an id and load the object in the task"
    )


def _faults(error: Exception, name: str = "", value: Any = None) -> list[Fault]:
    """Convert a validation error to faults; with a ``name``, only those of that field."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return [Fault(name or "arguments", f"{_first_line(error)} {got(value)}")]
    faults: list[Fault] = []
    for problem in error.errors(include_url=False, include_context=False):
        path = [str(part) for part in problem["loc"]]
        if name and path and path[0] != name:
            continue
        message = clip(problem["msg"], _MESSAGE_LENGTH)
        if problem["type"] == "extra_forbidden" and len(path) == 1:
            message = "there is no such argument"
        elif problem["type"] == "missing":
            message = _MISSING
        else:
            message += f" {got(value if name and len(path) <= 1 else problem['input'])}"
        faults.append(Fault(".".join(path) or name or "arguments", message))
    return faults


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message, without pydantic's advice and headings."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = next((line for line in lines if not line.startswith("Pydantic serializer warnings")), "")
    if "Expected `" in text:  # the serialiser found a value of another type inside an object
        return f"a value inside it should be {text.partition('`')[2].partition('`')[0]}"
    if "utf-8" in text and "surrogates" not in text:
        return "bytes that are not text; give its model the config ser_json_bytes='base64', val_json_bytes='base64'"
    return clip(text or type(error).__name__, _MESSAGE_LENGTH)


def _unfit(task: str, parameter: str, why: str) -> BadSettings:
    what = "the result" if parameter == "result" else f"parameter {parameter}"
    return BadSettings(f"task {task}: {what}: {why}", task=task, parameter=parameter)


def _refuse(start: str, task: str, faults: list[Fault], advice: str = "") -> NoReturn:
    shown = "; ".join(f"{fault.field}: {fault.message}" for fault in faults[:SHOWN_FAULTS])
    more = f"; and {len(faults) - SHOWN_FAULTS} more" if len(faults) > SHOWN_FAULTS else ""
    raise BadArguments(
        f"{start}: {shown}{more}{advice}", task=task, errors=[fault._asdict() for fault in faults]
    )


class LenientArguments(ArgumentsCodec):
    """Drops unknown arguments when a job is read. On enqueue, arguments are validated as for any other task."""

    __slots__ = ()

    def _load(self, text: str) -> dict[str, Any]:
        try:
            return super()._load(text)
        except BadArguments:
            given: Any = json.loads(text)
            accepted = {name: value for name, value in given.items() if name in self.names}
            if len(accepted) == len(given):
                raise
            return super()._load(json.dumps(accepted))
