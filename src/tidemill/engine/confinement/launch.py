"""Command lines of child processes, by what their jobs may use."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from tidemill.engine.confinement import containers
from tidemill.engine.confinement.output import relay
from tidemill.engine.confinement.protection import missing_protection
from tidemill.engine.log_formats import output_words
from tidemill.errors import BadSettings
from tidemill.tasks.confinement import ALWAYS_KEPT, Confinement, Container, Process, Sandbox

_log = logging.getLogger("tidemill.engine")
_MODULE = "tidemill.engine.executors.child_main"


@dataclass
class Launch:
    """A started program, with the cleanup after its end."""

    process: subprocess.Popen[bytes]
    stop: Callable[[], None] = lambda: None  #: ends parts that are not descendants of the process
    folders: list[str] = field(default_factory=list)  #: directories to remove
    relay: threading.Thread | None = None  #: passes on the output of a container

    def clean(self) -> None:
        """Remove what the program leaves behind."""
        self.stop()
        if self.relay is not None:
            self.relay.join(5)
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
        self.folders = []


def start(
    confinement: Confinement | None, app_path: str, store_name: str | None, wire: socket.socket, life: int
) -> Launch:
    """Start a child process that serves jobs over a socket, and dies when the other end of ``life`` is closed."""
    words = [
        "--app",
        app_path,
        *(() if store_name is None else ("--store-name", store_name)),
        *output_words(),
    ]
    match confinement:
        case Container():
            return _container(confinement, words, wire)
        case Sandbox() if missing_protection(confinement) is None:
            return _sandbox(confinement, words, wire, life)
        case Sandbox() if confinement.strict:
            raise BadSettings(f"sandboxed jobs cannot run here: {missing_protection(confinement)}")
        case Sandbox():
            plain = Process(
                memory=confinement.memory, cpu=confinement.cpu, env=confinement.env, own_folder=True
            )
            return _process(plain, words, wire, life)
        case _:
            return _process(confinement or Process(), words, wire, life)


def is_detached(confinement: Confinement | None) -> bool:
    """Whether a child has neither the store's address nor the encryption keys, so that its runner does both."""
    return isinstance(confinement, Sandbox | Container) or (
        isinstance(confinement, Process) and confinement.env is not None
    )


def _local(words: Sequence[str], wire: socket.socket, life: int) -> list[str]:
    tied = ["--fd", str(wire.fileno()), "--life", str(life), "--parent", str(os.getpid())]
    # The child may begin in another directory, where "" and other relative paths would lead elsewhere.
    path = [os.path.abspath(place) for place in sys.path]  # noqa: PTH100  (resolves no links)
    return [sys.executable, "-m", _MODULE, *tied, *words, "--path", json.dumps(path)]


def _process(given: Process, words: Sequence[str], wire: socket.socket, life: int) -> Launch:
    limits = _limits(given.memory, given.cpu)
    detached = ["--detached"] if given.env is not None else []
    folder = tempfile.mkdtemp(prefix="tidemill-job-") if given.own_folder else None
    folders = [] if folder is None else [folder]
    env = None if given.env is None else _environment(given.env)
    if folder is not None:
        env = {**(os.environ if env is None else env), "TMPDIR": folder}
    return _started(
        [*_local(words, wire, life), *limits, *detached], (wire.fileno(), life), folders, env, folder
    )


def _limits(memory: object, cpu: object) -> list[str]:
    seconds = cpu.total_seconds() if isinstance(cpu, timedelta) else None
    return [
        *(() if memory is None else ("--memory", str(memory))),
        *(() if seconds is None else ("--cpu", str(round(seconds)))),
    ]


def _sandbox(given: Sandbox, words: Sequence[str], wire: socket.socket, life: int) -> Launch:
    from tidemill.engine.confinement.file_tree import PRIVATE, tree_of
    from tidemill.engine.confinement.sandbox import Rules

    root = tempfile.mkdtemp(prefix="tidemill-sandbox-")
    cpu = None if given.cpu is None else round(_seconds(given.cpu))
    rules = Rules(
        root,
        tree_of(given.files, given.writable, network=given.network),
        None if given.memory is None else int(given.memory),
        cpu,
        given.processes,
        int(given.disk),
        given.network,
    )
    env = _environment(given.env) | {"HOME": PRIVATE, "TMPDIR": PRIVATE}
    command = [*_local(words, wire, life), "--detached", "--sandbox", rules.text()]
    return _started(command, (wire.fileno(), life), [root], env, "/")


def _seconds(span: object) -> float:
    assert isinstance(span, timedelta)
    return span.total_seconds()


def _environment(names: Sequence[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in (*ALWAYS_KEPT, *names) if name in os.environ}


def _started(
    command: Sequence[str],
    numbers: tuple[int, ...],
    folders: list[str],
    env: Mapping[str, str] | None,
    folder: str | None,
) -> Launch:
    try:
        process = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
            command, stdin=subprocess.DEVNULL, pass_fds=numbers, start_new_session=True, env=env, cwd=folder
        )
    except BaseException:
        for made in folders:
            shutil.rmtree(made, ignore_errors=True)
        raise
    return Launch(process, folders=folders)


def _container(given: Container, words: Sequence[str], wire: socket.socket) -> Launch:
    runtime = containers.runtime_of(given)
    name = containers.new_name()
    command = [
        *containers.run_command(given, runtime, name, _environment(given.env)),
        given.python,
        "-m",
        _MODULE,
        "--stdio",
        "--detached",
        *words,
    ]
    # Podman's monitor writes a file named oom into its working directory when a container exceeds its memory.
    folder = tempfile.mkdtemp(prefix="tidemill-container-")
    number = wire.fileno()
    try:
        process = subprocess.Popen(  # noqa: S603  (the runtime that the worker's owner installed)
            command, stdin=number, stdout=number, stderr=subprocess.PIPE, start_new_session=True, cwd=folder
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    assert process.stderr is not None
    errors = os.dup(process.stderr.fileno())
    process.stderr.close()
    passing = threading.Thread(target=_pass_on, args=(errors,), name=f"tidemill-{name}", daemon=True)
    passing.start()
    return Launch(process, folders=[folder], stop=lambda: containers.remove(runtime, [name]), relay=passing)


def _pass_on(source: int) -> None:
    with contextlib.suppress(OSError):
        relay(source, 2)
