"""Size limits of payloads, and the truncation of long texts."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.domain.job import ErrorInfo
from tidemill.errors import BadSettings, PayloadTooLarge

KIB = 1024
DEFAULT_ARGS_LIMIT = 256 * KIB
DEFAULT_RESULT_LIMIT = 256 * KIB
CEILING = 1024 * KIB
DEFAULT_MAX = 64 * KIB * KIB
HIGHEST_MAX = 512 * KIB * KIB
ERROR_MESSAGE_LENGTH = 2_000
TRACEBACK_LENGTH = 4_000
ERROR_TYPE_LENGTH = 200
_CUT = "…"


@dataclass(frozen=True, slots=True)
class PayloadLimits:
    """Maximum bytes of JSON in the row of a job, and the maximum beyond which a value is refused."""

    args: int = DEFAULT_ARGS_LIMIT
    result: int = DEFAULT_RESULT_LIMIT
    max_args: int = DEFAULT_MAX

    def __post_init__(self) -> None:
        for name, value in (("args", self.args), ("result", self.result)):
            if not 1 <= value <= CEILING:
                raise BadSettings(f"the payload limit for {name} is {value}; give 1 to {CEILING} bytes")
        check_max("max_args", self.max_args)

    def check_args(self, task: str, text: str) -> None:
        """Refuse arguments that do not fit into a row, such as those of a schedule."""
        if (size := size_of(text)) > self.args:
            raise PayloadTooLarge(
                f"the arguments of task {task} are {size:,} bytes, and the limit is {self.args:,}; "
                "store the data elsewhere and pass a reference, or raise App(args_limit=…), 1 MiB at most",
                task=task,
                size=size,
                limit=self.args,
            )

    def is_large(self, task: str, text: str) -> bool:
        """Whether arguments do not fit into a row. Those beyond ``max_args`` raise ``PayloadTooLarge``."""
        size = size_of(text)
        if size > max(self.args, self.max_args):
            raise PayloadTooLarge(
                f"the arguments of task {task} are {size:,} bytes, and the limit is {self.max_args:,}; "
                "store the data elsewhere and pass a reference, or raise App(max_args=…)",
                task=task,
                size=size,
                limit=self.max_args,
            )
        return size > self.args


def check_max(name: str, value: object) -> None:
    """Check a maximum size of values outside the rows of jobs."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= HIGHEST_MAX:
        raise BadSettings(f"{name} is {value!r}; give 1 to {HIGHEST_MAX:,} bytes", option=name)


def size_of(text: str) -> int:
    """The bytes of a text in UTF-8."""
    # ASCII text has as many bytes as characters, so the common payload need not be encoded.
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


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
