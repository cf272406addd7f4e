"""Limits, files, network and environment of jobs in separate processes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from tidemill.domain.durations import Duration, read_duration
from tidemill.errors import BadSettings

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
LEAST_MEMORY = 64 * 1024**2
"""A Python process with an app needs about this much."""

ALWAYS_KEPT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "PYTHONPATH",
    "PYTHONUTF8",
    "PYTHONHASHSEED",
    "VIRTUAL_ENV",
)
"""Environment variables that a confined process keeps without being asked, as it needs them to find its code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A child process for the task's jobs, with limits: ``isolation=Process(memory="512M")``.

    It protects other jobs against an accident. It is no protection against hostile code; see ``Sandbox``.
    """

    memory: int | str | None = None  #: bytes of address space of each process, such as ``"512M"``
    cpu: Duration | None = None  #: processor time of one job
    env: Sequence[str] | None = None  #: names of environment variables that it gets; None: all of them
    own_folder: bool = False  #: whether each job has a new, empty working directory, which is removed later

    def __post_init__(self) -> None:
        _read_common(self)
        if not isinstance(self.own_folder, bool):
            raise BadSettings(f"Process: own_folder is {self.own_folder!r}; give True or False")

    @property
    def is_plain(self) -> bool:
        """Whether a warm child that serves all tasks without limits can run the jobs."""
        return self == Process()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A child process for code that you do not trust: ``isolation=Sandbox(memory="256M", files=["/srv/models"])``.

    It has no network, sees no other process, and reads no file except the code, the interpreter and ``files``. It
    writes only to a private directory in memory, which is its working directory, and to ``writable``.
    """

    memory: int | str | None = "512M"  #: bytes of memory of the job, with all its processes
    cpu: Duration | None = None  #: processor time of one job
    processes: int = 32  #: processes and threads that a job has at most
    disk: int | str = "64M"  #: bytes of the private directory
    files: Sequence[str] = ()  #: absolute paths of files and directories that the job may read
    writable: Sequence[str] = ()  #: absolute paths that the job may read and change
    network: bool = False  #: whether the job uses the network of the worker
    env: Sequence[str] = ()  #: names of environment variables that it gets
    strict: bool = True  #: whether jobs are left alone where the system lacks a protection

    def __post_init__(self) -> None:
        _read_common(self)
        object.__setattr__(self, "disk", read_size("Sandbox: disk", self.disk))
        if not _is_whole(self.processes) or not 4 <= self.processes <= 10_000:
            raise BadSettings(
                f"Sandbox: processes is {self.processes!r}; give 4 to 10000, as the threads of Python count"
            )
        for name in ("files", "writable"):
            object.__setattr__(self, name, _paths(f"Sandbox: {name}", getattr(self, name)))
        for name in ("network", "strict"):
            if not isinstance(getattr(self, name), bool):
                raise BadSettings(f"Sandbox: {name} is {getattr(self, name)!r}; give True or False")


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container for each job: ``isolation=Container(image="shop:3")``.

    The image has Python, Tidemill and the code of the app; the worker needs the command ``docker`` or ``podman``.
    """

    image: str  #: name of the image
    memory: int | str | None = None  #: bytes of memory of the container
    cpus: float | None = None  #: processors that it may use, such as 1.5
    processes: int | None = None  #: processes and threads that it has at most
    network: str = "none"  #: ``"none"``, or the name of a network of the runtime
    files: Sequence[str] = ()  #: absolute paths of this machine that the job may read, at the same place
    writable: Sequence[str] = ()  #: absolute paths that the job may read and change
    env: Sequence[str] = ()  #: names of environment variables that it gets
    python: str = "python3"  #: the interpreter in the image
    options: Sequence[str] = ()  #: further options of the runtime's ``run`` command
    runtime: str | None = None  #: the runtime's command; None: the first of podman and docker that works

    def __post_init__(self) -> None:
        _read_common(self)
        if not _IMAGE.fullmatch(str(self.image)):
            raise BadSettings(f"Container: image is {self.image!r}; give the name of an image")
        if self.cpus is not None and (not _is_number(self.cpus) or self.cpus <= 0):
            raise BadSettings(f"Container: cpus is {self.cpus!r}; give a number above zero")
        if self.processes is not None and (not _is_whole(self.processes) or self.processes < 4):
            raise BadSettings(f"Container: processes is {self.processes!r}; give 4 or more")
        for name in ("network", "python"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text or text.startswith("-"):
                raise BadSettings(f"Container: {name} is {text!r}; give a name")
        for name in ("files", "writable"):
            paths = _paths(f"Container: {name}", getattr(self, name))
            if wrong := [path for path in paths if ":" in path or "," in path]:
                raise BadSettings(f"Container: {name} has {wrong[0]!r}; a path has no colon and no comma")
            object.__setattr__(self, name, paths)
        object.__setattr__(self, "options", _texts("Container: options", self.options))


Confinement: TypeAlias = Process | Sandbox | Container


def _read_common(given: Confinement) -> None:
    """Normalise the fields that the classes share."""
    place = type(given).__name__
    values: dict[str, Any] = {field.name: getattr(given, field.name) for field in fields(given)}
    memory, cpu, env = values["memory"], values.get("cpu"), values["env"]
    if memory is not None:
        size = read_size(f"{place}: memory", memory)
        if size < LEAST_MEMORY:
            raise BadSettings(f"{place}: memory is {memory!r}; give 64M or more, which Python itself needs")
        object.__setattr__(given, "memory", size)
    if cpu is not None:
        span = read_duration(f"{place}: cpu", cpu)
        if span < timedelta(seconds=1):
            raise BadSettings(f"{place}: cpu is {cpu!r}; give one second or more")
        object.__setattr__(given, "cpu", span)
    if env is not None:
        names = _texts(f"{place}: env", env)
        if wrong := [name for name in names if not _ENV_NAME.fullmatch(name)]:
            raise BadSettings(f"{place}: env has {wrong[0]!r}; give names of environment variables")
        object.__setattr__(given, "env", names)


def read_size(name: str, value: object) -> int:
    """Bytes of a size as users write it.

    >>> read_size("memory", "512M"), read_size("memory", "1.5 GiB"), read_size("memory", 1000)
    (536870912, 1610612736, 1000)
    """
    if _is_whole(value) and isinstance(value, int) and value > 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    size = 0 if match is None else int(float(match[1]) * _UNITS[match[2].upper()])
    if size <= 0:
        raise BadSettings(f"{name} is {value!r}; give bytes, or text such as '512M' or '2G'")
    return size


def _texts(name: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadSettings(f"{name} is {given!r}; give a list of texts")
    if wrong := [text for text in given if not isinstance(text, str) or not text or "\0" in text]:
        raise BadSettings(f"{name} has {wrong[0]!r}; give texts")
    return tuple(given)


def _paths(name: str, given: object) -> tuple[str, ...]:
    texts = _texts(name, given)
    for text in texts:
        path = PurePosixPath(text)
        if not path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
            raise BadSettings(f"{name} has {text!r}; give absolute paths other than /")
    return texts


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
