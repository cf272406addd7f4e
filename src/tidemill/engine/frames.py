"""Messages between the processes of one worker: JSON over a socket.

Nothing is pickled: data that a child sends can never become code in its runner. This module encodes and decodes
messages and the domain values in them. It does not interpret them.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol, assert_never
from uuid import UUID

from tidemill.domain.job import NO_DETAILS, Claim, Details, ErrorInfo, LogEntry, Progress
from tidemill.domain.outcome import (
    Cancelled,
    Crashed,
    Failed,
    Misfit,
    Outcome,
    Released,
    ReviewRequested,
    Snoozed,
    Succeeded,
    Suspended,
    TimedOut,
)
from tidemill.domain.states import JobState
from tidemill.errors import PayloadTooLarge

LIMIT = 16 * 1024 * 1024
"""Maximum bytes of one message. Arguments and results are limited to 1 MiB, so a larger message is a mistake."""

LOST_WIRE = 70
"""The exit code of a process that lost the connection to its parent."""

_HEAD = struct.Struct(">I")
_WHOLE = 16 * 1024  # bytes that the kernel accepts completely or not at all
_MICROSECOND = timedelta(microseconds=1)

Data = dict[str, Any]


class Connection(Protocol):
    """A connected socket, or a pair of pipes that behaves like one."""

    def fileno(self) -> int: ...

    def sendall(self, data: bytes, /) -> None: ...

    def recv(self, size: int, /) -> bytes: ...

    def shutdown(self, how: int, /) -> None: ...

    def close(self) -> None: ...


class Wire:
    """Messages over a connected socket: four bytes of length, then JSON in UTF-8.

    Any thread may send; one thread receives.
    """

    def __init__(self, connection: Connection) -> None:
        self._socket = connection
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """The socket's file descriptor, to wait for; -1 once closed."""
        return self._socket.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. Raise ``PayloadTooLarge`` before anything is sent, or ``OSError`` if the other end is gone."""
        body = _encode(message).encode("utf-8", "surrogatepass")
        if len(body) > LIMIT:
            raise PayloadTooLarge(
                f"a message of {len(body)} bytes is over the limit of {LIMIT}; store the data elsewhere and pass a reference",
                size=len(body),
                limit=LIMIT,
            )
        with self._sending:
            try:
                self._socket.sendall(_HEAD.pack(len(body)) + body)
            except OSError:
                raise
            except BaseException:
                # A signal handler of the user raised here. Half of a long message may have been sent already, and the
                # receiver would take the next message for its other half.
                if len(body) > _WHOLE:
                    self.hang_up()
                raise

    def receive(self) -> Data | None:
        """The next message, or None if the other end is gone. Raise ``ConnectionError`` if the data is not a message."""
        head = self._exactly(_HEAD.size)
        if head is None:
            return None
        (size,) = _HEAD.unpack(head)
        if size > LIMIT:
            raise ConnectionError(f"a message of {size} bytes exceeds the limit of {LIMIT}")
        body = self._exactly(size)
        if body is None:
            raise ConnectionError("the connection was closed in the middle of a message")
        try:
            message = json.loads(body.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise ConnectionError(f"invalid message: {error}") from None
        if not isinstance(message, dict):
            raise ConnectionError(f"invalid message of type {type(message).__name__}")
        return message

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except ConnectionResetError:
                # The other end is gone and had not read everything.
                part = b""
            if not part:
                if data:
                    raise ConnectionError("the connection was closed in the middle of a message")
                return None
            data += part
        return bytes(data)

    def hang_up(self) -> None:
        """Shut down the connection for both ends, and wake a thread that waits here.

        Data already sent can still be read.
        """
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is shut down already

    def close(self) -> None:
        """Close the socket. Closing twice is harmless."""
        self._socket.close()


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} cannot be sent")


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode


# Instants, durations and ids ---------------------------------------------------------------------------------------------


def instant_to_data(at: datetime | None) -> str | None:
    """Encode an instant as text."""
    return None if at is None else at.isoformat()


def instant_from_data(data: str | None) -> datetime | None:
    """Decode an instant."""
    return None if data is None else datetime.fromisoformat(data)


def span_to_data(span: timedelta | None) -> int | None:
    """Encode a duration as whole microseconds. A float of seconds would lose precision."""
    return None if span is None else span // _MICROSECOND


def span_from_data(data: int | None) -> timedelta | None:
    """Decode a duration."""
    return None if data is None else timedelta(microseconds=data)


def id_to_data(id: UUID | None) -> str | None:
    """Encode an id as text."""
    return None if id is None else str(id)


def id_from_data(data: str | None) -> UUID | None:
    """Decode an id."""
    return None if data is None else UUID(data)


# Messages from a runner to a child ---------------------------------------------------------------------------------------


def claim_to_data(claim: Claim) -> Data:
    """Encode a claim."""
    return claim._asdict() | {
        "id": str(claim.id),
        "run_at": claim.run_at.isoformat(),
        "created_at": claim.created_at.isoformat(),
        "expires_at": instant_to_data(claim.expires_at),
        "timeout": span_to_data(claim.timeout),
        "state": claim.state.value,
        "worker": id_to_data(claim.worker),
    }


def claim_from_data(data: Data) -> Claim:
    """Decode a claim."""
    limits = data["limits"]
    changed = {
        "id": UUID(data["id"]),
        "run_at": datetime.fromisoformat(data["run_at"]),
        "created_at": datetime.fromisoformat(data["created_at"]),
        "expires_at": instant_from_data(data["expires_at"]),
        "timeout": span_from_data(data["timeout"]),
        "limits": None if limits is None else tuple(limits),
        "state": JobState(data["state"]),
        "worker": id_from_data(data["worker"]),
    }
    return Claim(**data | changed)


def details_to_data(details: Details) -> Data | None:
    """Encode a job's details; None for empty ones, which most jobs have."""
    if details is NO_DETAILS or details == NO_DETAILS:
        return None
    return {
        "correlation_id": details.correlation_id,
        "parent_id": id_to_data(details.parent_id),
        "reference": details.reference,
        "tags": details.tags,
        "metadata": details.metadata,
        "headers": details.headers,
        "options": details.options,
        "definition_id": id_to_data(details.definition_id),
        "definition_version": details.definition_version,
        "schedule_id": id_to_data(details.schedule_id),
        "fire_at": instant_to_data(details.fire_at),
        "flow_id": id_to_data(details.flow_id),
        "node": details.node,
        "position": details.position,
        "group_id": id_to_data(details.group_id),
        "group_shard": details.group_shard,
        "may_fail": details.may_fail,
    }


def details_from_data(data: Data | None) -> Details:
    """Decode a job's details."""
    if data is None:
        return NO_DETAILS
    reference = data["reference"]
    changed = {
        "parent_id": id_from_data(data["parent_id"]),
        "reference": None if reference is None else tuple(reference),
        "tags": tuple(data["tags"]),
        "definition_id": id_from_data(data["definition_id"]),
        "schedule_id": id_from_data(data["schedule_id"]),
        "fire_at": instant_from_data(data["fire_at"]),
        "flow_id": id_from_data(data["flow_id"]),
        "group_id": id_from_data(data["group_id"]),
    }
    return Details(**data | changed)


# Messages from a child to its runner -------------------------------------------------------------------------------------


def progress_to_data(progress: Progress) -> Data:
    """Encode the progress of a job."""
    return {
        "fraction": progress.fraction,
        "step": progress.step,
        "total": progress.total,
        "message": progress.message,
        "stage": progress.stage,
        "at": instant_to_data(progress.at),
    }


def progress_from_data(data: Data) -> Progress:
    """Decode the progress of a job."""
    return Progress(**data | {"at": instant_from_data(data["at"])})


def entry_to_data(entry: LogEntry) -> Data:
    """Encode a log line."""
    return {
        "job_id": str(entry.job_id),
        "number": entry.number,
        "at": entry.at.isoformat(),
        "message": entry.message,
        "level": entry.level,
        "stage": entry.stage,
        "details": entry.details,
        "duration": span_to_data(entry.duration),
    }


def entry_from_data(data: Data) -> LogEntry:
    """Decode a log line."""
    changed = {
        "job_id": UUID(data["job_id"]),
        "at": datetime.fromisoformat(data["at"]),
        "duration": span_from_data(data["duration"]),
    }
    return LogEntry(**data | changed)


def outcome_to_data(outcome: Outcome) -> Data:
    """Encode the outcome of an execution."""
    match outcome:
        case Succeeded(result):
            return {"is": "succeeded", "result": result}
        case Failed(error, permanent, retryable, retry_after):
            return {
                "is": "failed",
                "error": [error.type, error.message, error.traceback],
                "permanent": permanent,
                "retryable": retryable,
                "retry_after": span_to_data(retry_after),
            }
        case TimedOut(limit, retryable, retry_after):
            return {
                "is": "timed_out",
                "limit": span_to_data(limit),
                "retryable": retryable,
                "retry_after": span_to_data(retry_after),
            }
        case Cancelled(reason):
            return {"is": "cancelled", "reason": reason}
        case Crashed(reason, alone):
            return {"is": "crashed", "reason": reason, "alone": alone}
        case Released(reason):
            return {"is": "released", "reason": reason}
        case Snoozed(delay, reason):
            return {"is": "snoozed", "delay": span_to_data(delay), "reason": reason}
        case Suspended(reason, delay):
            return {"is": "suspended", "reason": reason, "delay": span_to_data(delay)}
        case ReviewRequested(reason, output):
            return {"is": "review", "reason": reason, "output": output}
        case Misfit(error, problem, times, since, wait):
            return {
                "is": "misfit",
                "error": [error.type, error.message, error.traceback],
                "problem": problem,
                "times": times,
                "since": instant_to_data(since),
                "wait": span_to_data(wait),
            }
        case _:
            assert_never(outcome)


def _failed_from_data(data: Data) -> Failed:
    return Failed(
        ErrorInfo(*data["error"]),
        data["permanent"],
        data["retryable"],
        span_from_data(data["retry_after"]),
    )


_OUTCOMES: dict[str, Callable[[Data], Outcome]] = {
    "succeeded": lambda data: Succeeded(data["result"]),
    "failed": _failed_from_data,
    "timed_out": lambda data: TimedOut(
        timedelta(microseconds=data["limit"]), data["retryable"], span_from_data(data["retry_after"])
    ),
    "cancelled": lambda data: Cancelled(data["reason"]),
    "crashed": lambda data: Crashed(data["reason"], data["alone"]),
    "released": lambda data: Released(data["reason"]),
    "snoozed": lambda data: Snoozed(timedelta(microseconds=data["delay"]), data["reason"]),
    "suspended": lambda data: Suspended(data["reason"], span_from_data(data["delay"])),
    "review": lambda data: ReviewRequested(data["reason"], data["output"]),
    "misfit": lambda data: Misfit(
        ErrorInfo(*data["error"]),
        data["problem"],
        data["times"],
        instant_from_data(data["since"]),
        timedelta(microseconds=data["wait"]),
    ),
}


def outcome_from_data(data: Data) -> Outcome:
    """Decode an outcome. Raises ``KeyError`` for an unknown kind."""
    return _OUTCOMES[data["is"]](data)
