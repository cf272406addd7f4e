"""Size limits of payloads, and the truncation of long texts."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.domain.job import ErrorInfo
from tidemill.errors import BadSettings, PayloadTooLarge

KIB = 1024
DEFAULT_ARGS_LIMIT = 256 * KIB
DEFAULT_RESULT_LIMIT = 256 * KIB
CEILING = 1024 * KIB
ERROR_MESSAGE_LENGTH = 2_000
TRACEBACK_LENGTH = 4_000
ERROR_TYPE_LENGTH = 200
_CUT = "…"


@dataclass(frozen=True, slots=True)
class PayloadLimits:
    """Maximum bytes of JSON for arguments and results; both are capped at 1 MiB."""

    args: int = DEFAULT_ARGS_LIMIT
    result: int = DEFAULT_RESULT_LIMIT

    def __post_init__(self) -> None:
        for name, value in (("args", self.args), ("result", self.result)):
            if not 1 <= value <= CEILING:
                raise BadSettings(f"the payload limit for {name} is {value}; give 1 to {CEILING} bytes")

    def check_args(self, task: str, text: str) -> None:
        _check(task, "arguments", text, self.args, "App(args_limit=…)")

    def check_result(self, task: str, text: str) -> None:
        _check(task, "result", text, self.result, "result_limit= of the task or the App")


def _check(task: str, what: str, text: str, limit: int, setting: str) -> None:
    # ASCII text has as many bytes as characters, so the common payload need not be encoded.
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise PayloadTooLarge(
            f"the {what} of task {task} {'is' if what == 'result' else 'are'} {size:,} bytes, and the limit is {limit:,}; "
            f"store the data elsewhere and pass a reference, or raise the limit with {setting}, 1 MiB at most",
            task=task,
            size=size,
            limit=limit,
        )


def clip(text: str, length: int, *, keep_end: bool = False) -> str:
    """The text truncated to ``length`` characters with a mark. NUL, which no database holds, becomes U+FFFD."""
    text = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    if len(text) <= length:
        return text
    if length < 1:
        return ""
    return _CUT + text[len(text) - length + 1 :] if keep_end else text[: length - 1] + _CUT


def cut(text: str, length: int) -> str:
    """The text truncated to ``length`` characters, with the number of bytes cut. Characters that no store holds are replaced.

    >>> cut("abcdef", 4)
    'abcd… (2 bytes cut)'
    """
    kept = clip(text[:length], length)
    rest = text[length:]
    return f"{kept}… ({len(rest.encode('utf-8', 'replace')):,} bytes cut)" if rest else kept


def clip_error(error: ErrorInfo) -> ErrorInfo:
    """An error truncated for storage: the start of the message, the end of the traceback."""
    traceback = None if error.traceback is None else clip(error.traceback, TRACEBACK_LENGTH, keep_end=True)
    return ErrorInfo(
        clip(error.type, ERROR_TYPE_LENGTH), clip(error.message, ERROR_MESSAGE_LENGTH), traceback
    )
