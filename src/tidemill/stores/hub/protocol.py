"""The requests of hands and the answers of hubs, as JSON.

A request names a verb of the store contract with its arguments, or ``ask``: the claim of a hand whose lanes the hub chooses.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from tidemill import errors
from tidemill.errors import StoreUnavailable, TidemillError
from tidemill.stores.base import Store
from tidemill.stores.hub.codec import Decoder, decoder, encode, hints_of

PROTOCOL = 2
"""Changes when a class that travels between hands and hubs gets or loses a field. Hubs answer hands of the same protocol."""

ASK = "ask"

MERGED = frozenset(
    {
        "start",
        "report",
        "log",
        "save_checkpoints",
        "record_steps",
        "write_streams",
        "finish",
        "beat",
        "retire",
    }
)
"""Verbs that take a batch: a hub joins the batches of several hands into one call."""

FENCED = frozenset(
    {
        "start", "report", "log", "save_checkpoints", "record_steps", "write_streams", "finish", "step", "claim", "redate",
        "take_signal", "register", "beat", "retire", "held",
    }
)  # fmt: skip
"""Verbs that name workers: only those of the request's key are allowed."""

OF_A_TENANT = frozenset(
    {
        "get", "checkpoints", "executions", "flow", "group_results", "group_jobs", "events",
    }
)  # fmt: skip
"""Reads with an argument ``tenant``."""

OTHERS = frozenset(
    {
        "append_events", "blob_parts", "change_breaker", "declared_tasks", "depth", "enqueue", "group_counts", "job_starts", "notify", "now", "orders",
        "put_blob", "rules", "settings", "uses",
    }
)  # fmt: skip

VERBS = FENCED | OF_A_TENANT | OTHERS
"""The verbs of the store contract that hands use."""

PROTOCOL_VERBS = VERBS | {ASK, "check"}

Data = dict[str, Any]


class HubRefusal(Exception):
    """The hub does not serve this request: the key is not valid, or must not do this."""


class HubBusy(Exception):
    """The hub has too many requests; nothing happened. ``seconds`` is the time until the next try."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the hub is busy for {seconds:g} s")
        self.seconds = seconds


class HubRequest(NamedTuple):
    """A request, decoded as far as every verb needs it."""

    key: str
    verb: str
    args: Data
    address: UUID | None = None  #: where to reach the hand


class VerbCodec:
    """The encoding of one verb of the store contract."""

    def __init__(self, name: str) -> None:
        function = getattr(Store, name)
        hints = hints_of(function)
        self._signature = inspect.signature(function)
        self._result = decoder(hints["return"])
        self._parameters: dict[str, Decoder] = {
            parameter: decoder(hint) for parameter, hint in hints.items() if parameter != "return"
        }

    def encode_call(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> Data:
        """The arguments of a call as data."""
        bound = self._signature.bind(None, *args, **options)
        return {name: encode(value) for name, value in bound.arguments.items() if name != "self"}

    def decode_call(self, data: Data) -> Data:
        """The arguments as values by name. Raises ``ValueError``, ``TypeError`` or ``KeyError`` for anything else."""
        return {
            name: None if value is None else self._parameters[name](value) for name, value in data.items()
        }

    def decode_result(self, data: Any) -> Any:
        """The result of the verb."""
        return None if data is None else self._result(data)


@cache
def codec_of(verb: str) -> VerbCodec:
    """The encoding of a verb."""
    return VerbCodec(verb)


# Requests ----------------------------------------------------------------------------------------------------------------


def request_bytes(key: str, verb: str, args: Data) -> bytes:
    """A request as bytes."""
    return _dump({"p": PROTOCOL, "k": key, "v": verb, "a": args})


def read_request(data: bytes, address: UUID | None = None) -> HubRequest:
    """A request. Raises ``HubRefusal`` for data that is none."""
    try:
        message = json.loads(data.decode("utf-8", "surrogatepass"))
        protocol, key, verb, args = message["p"], message["k"], message["v"], message["a"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise HubRefusal("this is no request of a hand") from None
    if protocol != PROTOCOL:
        raise HubRefusal(
            f"the hand uses protocol {protocol} and this hub {PROTOCOL}; run the same release of Tidemill on both"
        )
    if verb not in PROTOCOL_VERBS or not isinstance(key, str) or not isinstance(args, dict):
        raise HubRefusal(f"a hub has no verb {verb!r}")
    return HubRequest(key, verb, args, address)


# Answers -----------------------------------------------------------------------------------------------------------------


def result_bytes(result: Any) -> bytes:
    """The result of a verb as bytes."""
    return _dump({"r": encode(result)})


def error_bytes(error: Exception) -> bytes:
    """An error as bytes. Errors that are not Tidemill's are described, and look like a store that does not answer."""
    if isinstance(error, HubBusy):
        return _dump({"b": error.seconds})
    if isinstance(error, HubRefusal):
        return _dump({"d": str(error)})
    if not isinstance(error, TidemillError):
        return _dump({"e": ["StoreUnavailable", f"the hub failed: {type(error).__name__}: {error}", {}]})
    details = {name: encode(value) for name, value in error.details.items() if _travels(value)}
    return _dump({"e": [type(error).__name__, error.message, details]})


def _travels(value: object) -> bool:
    try:
        json.dumps(encode(value))
    except (TypeError, ValueError):
        return False
    return True


def read_answer(data: bytes) -> Any:
    """The data of a result. Raises the error that the hub reports."""
    message = json.loads(data.decode("utf-8", "surrogatepass"))
    if "r" in message:
        return message["r"]
    if "b" in message:
        raise HubBusy(float(message["b"]))
    if "d" in message:
        raise HubRefusal(message["d"])
    name, message, details = message["e"]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, TidemillError)):
        raise StoreUnavailable(f"the hub reported {name}: {message}")
    if "ids" in details:
        details["ids"] = frozenset(map(UUID, details["ids"]))
    raise kind(message, **details)


# Notices -----------------------------------------------------------------------------------------------------------------


def notice_bytes(topics: frozenset[str]) -> bytes:
    """Wake-ups for hands."""
    return _dump({"t": sorted(topics)})


def read_notice(data: bytes) -> frozenset[str]:
    """The wake-ups of a notice; none if it is not valid."""
    try:
        topics = json.loads(data)["t"]
    except (ValueError, KeyError, TypeError):
        return frozenset()
    return frozenset(topic for topic in topics if isinstance(topic, str))


def _dump(data: Data) -> bytes:
    return _encode(data).encode("utf-8", "surrogatepass")


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
