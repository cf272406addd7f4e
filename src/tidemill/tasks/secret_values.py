"""Secret arguments and results: the ``Secret`` type, and their encryption in the store.

A sealed value is ``{"$sealed": "KEY:…"}``: the id of a key, and AES-256-GCM over the value's JSON. The job's id and the
field are authenticated with it, so a value that is copied to another job or field does not open.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import os
import re
import threading
import types
import typing
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, final
from uuid import UUID
from weakref import WeakValueDictionary

from tidemill.configuration import value_of
from tidemill.domain.masks import HIDDEN
from tidemill.domain.sealed_values import RESULT_FIELD, SEALED, is_sealed, key_of, owner_of
from tidemill.domain.unique import Unique
from tidemill.errors import BadArguments, BadSettings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

T = TypeVar("T")

KEYS = "TIDEMILL_ENCRYPTION_KEYS"
"""Environment variable with the keys: ``NAME:BASE64``, separated by commas. The first one seals, all of them open."""

NONCE_BYTES = 12
KEY_BYTES = 32

LEAST_SCRUBBED = 4
"""Shortest text that is removed from messages; shorter ones occur in ordinary words."""

MOST_SCRUBBED = 1_000
"""How many recently opened texts are removed from messages, besides those of secrets in use."""

_KEY = re.compile(r"([A-Za-z0-9_-]{1,32}):([A-Za-z0-9+/_-]{43}=?)")


@final
class Secret(Generic[T]):
    """A value that is encrypted in the store and never shown. Annotate an argument or a result with ``Secret[str]``.

    >>> pin = Secret("4711")
    >>> pin, pin.reveal()
    (Secret(***), '4711')
    """

    __slots__ = ("__weakref__", "_texts", "_value")

    def __init__(self, value: T) -> None:
        self._value = value
        self._texts: tuple[str, ...] = ()

    def reveal(self) -> T:
        """Return the value itself."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, format_spec: str) -> str:
        return format(HIDDEN, format_spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))


def secret_type(annotation: Any) -> tuple[bool, Any]:
    """Whether an annotation is ``Secret[T]`` or ``Secret[T] | None``, and the annotation of the value inside.

    >>> secret_type(Secret[str]), secret_type(int)
    ((True, <class 'str'>), (False, <class 'int'>))
    """
    origin = typing.get_origin(annotation)
    if annotation is Secret:
        return True, Any
    if origin is Secret:
        return True, typing.get_args(annotation)[0]
    if origin is typing.Annotated:
        is_secret, inner = secret_type(typing.get_args(annotation)[0])
        return is_secret, inner if is_secret else annotation
    if origin in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(annotation) if part is not type(None)]
        if len(parts) == 1 and (only := secret_type(parts[0]))[0]:
            return True, only[1] | None
    return False, annotation


def holds_secret(annotation: Any) -> bool:
    """Whether ``Secret`` occurs anywhere inside an annotation."""
    return annotation is Secret or any(
        holds_secret(part) for part in (typing.get_origin(annotation), *typing.get_args(annotation)) if part
    )


# Key ring ----------------------------------------------------------------------------------------------------------------


class KeyRing:
    """The keys of this process, by name; the first one seals."""

    def __init__(self, keys: dict[str, AESGCM]) -> None:
        self._keys = keys
        self.active = next(iter(keys))
        self.names = tuple(keys)

    def seal(self, text: str, job: UUID, field: str) -> dict[str, str]:
        """Encrypt the JSON text of a field."""
        nonce = os.urandom(NONCE_BYTES)
        made = self._keys[self.active].encrypt(nonce, text.encode(), _bound_to(job, field))
        return {SEALED: f"{self.active}:{base64.b64encode(nonce + made).decode()}"}

    def open(self, sealed: str, job: UUID, field: str) -> str:
        """Decrypt a sealed field. Raise ``BadArguments`` if it was changed, moved, or sealed with another key."""
        from cryptography.exceptions import InvalidTag

        name, content = key_of(sealed), sealed.partition(":")[2]
        key = self._keys.get(name)
        if key is None:
            raise BadArguments(
                f"{field} of job {job} is sealed with the key {name[:40]!r}, which this process does not have; "
                f"add it to {KEYS}",
                field=field,
            )
        try:
            raw = base64.b64decode(content, validate=True)
            return key.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], _bound_to(job, field)).decode()
        except (InvalidTag, ValueError, binascii.Error):
            raise BadArguments(
                f"{field} of job {job} cannot be opened: it was changed, or belongs to another job or field",
                field=field,
            ) from None


def _bound_to(job: UUID, field: str) -> bytes:
    return job.bytes + field.encode()


class Seals(Protocol):
    """Seals and opens fields of jobs."""

    def seal(self, text: str, job: UUID, field: str) -> dict[str, str]: ...

    def open(self, sealed: str, job: UUID, field: str) -> str: ...


class Remote:
    """The seals of a process that has no keys: its runner has them, and answers for the running job only."""

    seals: Seals | None = None


def seals() -> Seals:
    """Return the keys of this process, or its way to those of its runner."""
    return Remote.seals or key_ring()


def key_ring() -> KeyRing:
    """Return the keys of the environment. Raise ``BadSettings`` if there are none."""
    return _ring(value_of(KEYS) or "")


@lru_cache(maxsize=4)
def _ring(text: str) -> KeyRing:
    if not text.strip():
        raise BadSettings(
            f"there is no encryption key for secret values; create one with tidemill keys encryption, and set {KEYS}",
            setting=KEYS,
        )
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError:
        raise BadSettings(
            "secret values need the package cryptography; install it: pip install 'tidemill[crypto]'",
            setting=KEYS,
        ) from None
    keys: dict[str, AESGCM] = {}
    for place, part in enumerate(text.split(","), 1):
        match = _KEY.fullmatch(part.strip())
        if match is None or match[1] in keys:
            why = "is not NAME:BASE64 of 32 bytes" if match is None else f"repeats the name {match[1]}"
            raise BadSettings(f"{KEYS}: key {place} {why}", setting=KEYS)
        keys[match[1]] = AESGCM(base64.urlsafe_b64decode(match[2].translate(_URL_SAFE).rstrip("=") + "="))
    return KeyRing(keys)


_URL_SAFE = str.maketrans("+/", "-_")


def new_key(name: str) -> str:
    """Return a new key in the form of the environment variable."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,32}", name) is None:
        raise BadSettings(
            f"{name!r} is not a name of a key; give 1 to 32 letters, digits, - or _", option="name"
        )
    return f"{name}:{base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode()}"


# Fields of a job ---------------------------------------------------------------------------------------------------------


def seal_arguments(text: str, names: Collection[str], job: UUID) -> str:
    """Seal these arguments in the JSON of all. Arguments that are left out or null stay so."""
    return _replaced(text, names, lambda name, value: seals().seal(json.dumps(value), job, name))


def seal_parameters(text: str, names: Collection[str], definition: UUID) -> str:
    """Seal these parameters of a definition. Every job of the definition can open them."""
    sealed: Any = json.loads(seal_arguments(text, names, definition))
    for name in names:
        if is_sealed(value := sealed.get(name)):
            key, _, content = value[SEALED].partition(":")
            sealed[name] = {SEALED: f"{key}@{definition.hex}:{content}"}
    return json.dumps(sealed, ensure_ascii=False, separators=(",", ":"))


def open_arguments(text: str, names: Collection[str], job: UUID, definition: UUID | None = None) -> str:
    """Open the sealed arguments in the JSON of all. Those of a definition open only for its own jobs."""
    return _replaced(text, names, lambda name, value: _opened(value, _owner(value, job, definition), name))


def _owner(value: Any, job: UUID, definition: UUID | None) -> UUID:
    owner = owner_of(value[SEALED]) if is_sealed(value) else None
    return definition if owner is not None and owner == definition else job


def resealed(sealed: str, owner: UUID, field: str) -> str:
    """The same value, sealed with the first key."""
    ring = key_ring()
    made = ring.seal(ring.open(sealed, owner, field), owner, field)[SEALED]
    _, _, content = made.partition(":")
    of = owner_of(sealed)
    return made if of is None else f"{ring.active}@{of.hex}:{content}"


def _replaced(text: str, names: Collection[str], change: Callable[[str, Any], Any]) -> str:
    values: Any = json.loads(text)
    if not isinstance(values, dict):
        return text
    for name in names:
        if values.get(name) is not None:
            values[name] = change(name, values[name])
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def seal_result(text: str, job: UUID, field: str = RESULT_FIELD) -> str:
    """Seal the JSON of a result; ``field`` names that of a step."""
    return text if text == "null" else json.dumps(seals().seal(text, job, field))


def open_result(text: str, job: UUID, field: str = RESULT_FIELD) -> str:
    """Open the JSON of a sealed result."""
    value = json.loads(text)
    return text if value is None else json.dumps(_opened(value, job, field))


def _opened(value: Any, job: UUID, field: str) -> Any:
    if not is_sealed(value):
        raise BadArguments(f"{field} of job {job} is a secret, but is not sealed", field=field)
    opened = json.loads(seals().open(value[SEALED], job, field))
    _remember(_texts_of(opened))
    return opened


def opened_secret(value: T) -> Secret[T]:
    """Return an opened value as a task gets it. Its texts are removed from messages while the task has it, and later
    until many others were opened.
    """
    secret = Secret(value)
    secret._texts = tuple(_texts_of(value))
    if secret._texts:
        _in_use[next(_numbers)] = secret
    return secret


def masked_seals(value: Any) -> Any:
    """Replace sealed values at the top level of a payload by ``***``.

    >>> masked_seals({"to": "ada", "pin": {"$sealed": "k1:AAAA"}})
    {'to': 'ada', 'pin': '***'}
    """
    if not isinstance(value, dict):
        return value
    if is_sealed(value):
        return HIDDEN
    return {name: HIDDEN if is_sealed(item) else item for name, item in value.items()}


# Texts to remove from messages -------------------------------------------------------------------------------------------

_lock = threading.Lock()
_opened_texts: OrderedDict[str, None] = OrderedDict()
_in_use: WeakValueDictionary[int, Secret[Any]] = WeakValueDictionary()
_numbers = itertools.count()


def _texts_of(value: Any) -> Iterator[str]:
    """The texts in a value, in each form in which a message may contain them."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts_of(part)
        return
    text = value if isinstance(value, str) else _plain_text(value)
    if len(text) >= LEAST_SCRUBBED and text not in ("true", "false", "null"):
        yield from dict.fromkeys((text, json.dumps(text)[1:-1], repr(text)[1:-1]))


def _plain_text(value: Any) -> str:
    try:
        return json.dumps(value)
    except TypeError:  # validated to a type of its own; its JSON was remembered when it was opened
        return str(value)


def _remember(forms: Iterable[str]) -> None:
    """Remove these texts from later messages of this process."""
    with _lock:
        for form in forms:
            _opened_texts[form] = None
            _opened_texts.move_to_end(form)
        while len(_opened_texts) > MOST_SCRUBBED:
            _opened_texts.popitem(last=False)


def without_opened(text: str) -> str:
    """Replace the texts of opened secrets by ``***``."""
    if not _opened_texts:
        return text
    with _lock:
        forms = {form for form in _opened_texts if form in text}
    forms.update(form for secret in _in_use.values() for form in secret._texts if form in text)
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return text


# Declarations ------------------------------------------------------------------------------------------------------------


def check_secret_unique(task: str, unique: Unique | None, secrets: Collection[str]) -> None:
    """Refuse a unique rule over a secret argument: its key would be a digest of the value."""
    wrong = [] if unique is None else [name for name in secrets if not unique.by or name in unique.by]
    if wrong:
        raise BadSettings(
            f"task {task}: a unique key is a digest of arguments, and {wrong[0]!r} is secret; "
            "name other arguments: Unique(by=(…,))",
            task=task,
        )


def check_limit_key(task: str, key: object, secrets: Collection[str]) -> None:
    """Refuse a limit by a secret argument: its name would contain the value."""
    if isinstance(key, str) and key in secrets:
        raise BadSettings(
            f"task {task}: a limit cannot have the secret argument {key!r} as its key; choose another one",
            task=task,
        )
