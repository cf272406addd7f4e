"""An app with well-behaved and misbehaving jobs for child processes."""

from __future__ import annotations

import asyncio
import ctypes
import locale
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from tidemill import App, Cancel, Context, PermanentError, Review, Snooze

app = App("memory://")
seen: list[str] = []


@contextmanager
def noted(job: Any) -> Iterator[None]:
    seen.append(job.task)
    yield


app.around(execute=noted)


def _mark(sign: str | None) -> None:
    if sign is not None:
        Path(sign).write_text(str(os.getpid()))


# Well-behaved jobs -------------------------------------------------------------------------------------------------------


@app.task
def nothing() -> None: ...


@app.task
def add(one: int, other: int) -> int:
    return one + other


@app.task
def who() -> int:
    return os.getpid()


@app.task
def steps_seen() -> list[str]:
    return seen


@app.task
async def a_add(one: int, other: int) -> int:
    await asyncio.sleep(0)
    return one + other


@app.task
def talk(ctx: Context, before: str) -> list[str | None]:
    ctx.progress(1, 2, "half")
    ctx.log("a line", level="warning", size=before, odd=object())
    found = ctx.checkpoint("place")
    ctx.save_checkpoint("place", before)
    with ctx.stage("copy"):
        pass
    return [found, ctx.checkpoint("place"), ctx.tenant, ctx.correlation_id, str(ctx.attempt)]


@app.task
def long_line(ctx: Context) -> None:
    ctx.log("x" * 1_000_000, blob="y" * 20_000_000)


@app.task
def huge_checkpoint(ctx: Context) -> None:
    ctx.save_checkpoint("huge", "z" * 20_000_000)


@app.task
def chatter(ctx: Context, lines: int) -> None:
    for number in range(lines):
        ctx.log(f"line {number}")


@app.task
def huge_output(size: int) -> None:
    sys.stdout.write("o" * size)
    sys.stderr.write("e" * size)
    sys.stdout.flush()


@app.task
def waits_politely(ctx: Context, sign: str) -> None:
    _mark(sign)
    while True:
        ctx.check()
        time.sleep(0.01)


@app.task
async def waits_asleep(sign: str) -> None:
    _mark(sign)
    await asyncio.sleep(3600)


@app.task
def enqueues() -> None:
    nothing.enqueue()


# Misbehaving jobs --------------------------------------------------------------------------------------------------------


@app.task
def kills_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def exits(code: int) -> None:
    os._exit(code)


@app.task
def segfault() -> None:
    ctypes.string_at(0)


@app.task
def spins(sign: str | None = None) -> None:
    _mark(sign)
    while True:
        pass


@app.task
def holds_the_gil(sign: str | None = None) -> None:
    _mark(sign)
    re.match(r"(a+)+$", "a" * 64 + "b")


@app.task
def ignores_everything(sign: str | None = None) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _mark(sign)
    while True:
        try:
            time.sleep(3600)
        except BaseException:  # noqa: BLE001
            continue


@app.task
async def ignores_cancelling(sign: str) -> None:
    _mark(sign)
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:  # noqa: BLE001
            continue


_DAEMON = "import os,sys,time\nopen(sys.argv[1] + str(os.getpid()), 'w').close()\ntime.sleep(600)"


def _daemons(folder: str) -> None:
    """Start one process in the job's group, one in its own session, and one that has left its parent too."""
    program = [sys.executable, "-c", _DAEMON, folder]
    subprocess.Popen(program)
    subprocess.Popen(program, start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, program)
        os._exit(0)
    while len(list(Path(folder).iterdir())) < 3:
        time.sleep(0.01)


@app.task
def leaves_daemons(folder: str) -> int:
    _daemons(folder)
    return os.getpid()


@app.task
def daemons_and_spins(folder: str, sign: str) -> None:
    _daemons(folder)
    _mark(sign)
    while True:
        pass


@app.task
def waits_for_a_program(sign: str, program_sign: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as program:
        Path(program_sign).write_text(str(program.pid))
        _mark(sign)


@app.task
def reaped_child() -> int:
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    subprocess.Popen(["true"])  # not waited for, but it exits
    time.sleep(0.2)
    return os.getpid()


@app.task
def dies_with_a_fork_holding_on(sign: str) -> None:
    if os.fork() == 0:
        os.setsid()
        _mark(sign)
        time.sleep(600)
        os._exit(0)
    while not Path(sign).exists():
        time.sleep(0.01)
    os._exit(5)


@app.task
def vandal() -> int:
    os.chdir(tempfile.gettempdir())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(9))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.umask(0)
    locale.setlocale(locale.LC_ALL, "C")
    sys.stdout = None
    return os.getpid()


@app.task
def probe(wait: float) -> list[Any]:
    time.sleep(wait)
    mask = os.umask(0o022)
    os.umask(mask)
    return [
        os.getpid(),
        str(Path.cwd()),
        signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        not signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        mask,
        sys.stdout is not None,
    ]


@app.task
def changes_its_process(hard: bool = False) -> int:
    """Change the environment, the module path and a resource limit. With ``hard``, the limit cannot be raised again."""
    os.environ["LEFT_BY_A_JOB"] = "yes"
    os.environ.pop("PATH", None)
    sys.path.insert(0, "/left/by/a/job")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64 if hard else most))
    return os.getpid()


@app.task
def process_as_found() -> list[Any]:
    return [
        os.getpid(),
        "LEFT_BY_A_JOB" in os.environ,
        "PATH" in os.environ,
        "/left/by/a/job" in sys.path,
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    ]


@app.task
def forks_and_returns(sign: str) -> str:
    """Return from the handler in the parent and in a fork; the fork returns first."""
    if os.fork() == 0:
        return "the fork"
    Path(sign).touch()
    time.sleep(0.5)
    return "the job"


@app.task
def closes_everything() -> None:
    os.closerange(3, 256)


@app.task
def closes_output() -> int:
    os.close(1)
    return os.getpid()


@app.task
def writes_rubbish() -> None:
    for number in range(3, 64):
        try:
            os.write(number, b"\x00\x00\x00\x05hello")
        except OSError:
            continue
    time.sleep(600)


@app.task
def speaks_after_the_end(ctx: Context) -> None:
    def later() -> None:
        for number in range(40):
            time.sleep(0.01)
            ctx.log(f"late {number}")
            ctx.progress(0.9)

    threading.Thread(target=later, daemon=True).start()


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


_NASTY: dict[str, Any] = {
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
    "base": lambda: BaseException("base"),
    "group": lambda: ExceptionGroup("two", [ValueError("one"), KeyError("other")]),
    "base group": lambda: BaseExceptionGroup("one", [SystemExit(1)]),
    "unspeakable": Unspeakable,
    "cancelled": asyncio.CancelledError,
    "memory": MemoryError,
    "recursion": RecursionError,
    "surrogates": lambda: ValueError("\ud800 \udfff"),
    "huge": lambda: ValueError("x" * 5_000_000),
    "permanent": lambda: PermanentError("never"),
    "cancel": lambda: Cancel("by itself"),
    "snooze": lambda: Snooze(timedelta(seconds=7), "later"),
    "review": lambda: Review("look", {"a": 1}),
    "huge reason": lambda: Cancel("r" * 20_000_000),
}


@app.task
def raises(which: str) -> None:
    error = _NASTY[which]()
    raise error


@app.task
async def a_raises(which: str) -> None:
    error = _NASTY[which]()
    raise error


@app.task
def interrupts_itself() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)


def drop_the_right_to_raise_limits() -> None:
    """Give up CAP_SYS_RESOURCE and keep everything else, such as access to a checkout that only root can read."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    cap_sys_resource = 1 << 24
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    for place in (0, 1):  # effective and permitted
        sets[place] &= 0xFFFFFFFF ^ cap_sys_resource
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


if os.environ.get("ISOLATED_APP_UNPRIVILEGED") and os.getuid() == 0:
    drop_the_right_to_raise_limits()
