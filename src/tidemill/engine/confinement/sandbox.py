"""Entry of a process into a sandbox of namespaces, limits and a filter of system calls.

Three processes run for one job. The outer one belongs to the runner, which kills it to end everything. The second is
the first process of a new process namespace: if it dies, the kernel kills all processes of the sandbox. The third runs
the job. It can neither signal nor inspect the other two.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from tidemill.engine.confinement import file_tree, kernel, seccomp
from tidemill.engine.confinement.output import relay

NOBODY = 65534
"""User and group of the jobs of a worker that runs as root."""

OVER_MEMORY = 72
"""The exit code of a sandbox whose processes together used more memory than allowed."""

NOT_ENTERED = 73
"""The exit code of a process that could not enter its sandbox."""

_LOOK = 0.2  # seconds between two looks at the memory of several processes
_ISOLATED = kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWCGROUP


class Rules(NamedTuple):
    """The settings of a sandbox, as the runner passes them to its child."""

    root: str  #: an empty directory of this machine, where the tree is mounted
    tree: file_tree.Tree
    memory: int | None
    cpu: int | None
    processes: int
    disk: int
    network: bool

    def text(self) -> str:
        """The rules as JSON."""
        return json.dumps(self)

    @classmethod
    def read(cls, text: str) -> Rules:
        """The rules from JSON."""
        root, (readable, writable), *rest = json.loads(text)
        return cls(root, file_tree.Tree(tuple(readable), tuple(writable)), *rest)


def limit(memory: int | None, cpu: int | None) -> None:
    """Limit the address space and the processor time of this process and of its later children."""
    import resource

    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_AS, memory)
    if cpu is not None:
        # The first limit ends the process with SIGXCPU, which names the reason; a job may ignore that signal.
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        hard = cpu + 1 if most == resource.RLIM_INFINITY else min(most, cpu + 1)
        resource.setrlimit(resource.RLIMIT_CPU, (min(cpu, hard), hard))


def _set_limit(which: int, most: int | None) -> None:
    import resource

    if most is None:
        return
    _, hard = resource.getrlimit(which)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (value, value))


def enter(rules: Rules, closed: Sequence[int]) -> None:
    """Enter the sandbox. Only the process that runs the job returns; the two others end with it.

    ``closed`` are descriptors of the job, which the two others close.
    """
    is_root = os.getuid() == 0
    uid, gid = (NOBODY, NOBODY) if is_root else (os.getuid(), os.getgid())
    _enter_user_namespace(uid, gid, is_root=is_root)
    told, tell = os.pipe()
    written, output = os.pipe()
    first = os.fork()
    if first:
        for number in (tell, output, *closed):
            os.close(number)
        _attend(first, told, written)
    os.close(told)
    os.close(written)
    try:
        kernel.die_with_parent(signal.SIGKILL)
        _check_outer(tell)
        _become_first(rules, uid, gid, is_root=is_root)
    except OSError as error:
        _complain(error)
    job = os.fork()
    if job:
        for number in (output, *closed):
            os.close(number)
        _watch(job, tell, rules.memory)
    os.close(tell)
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    kernel.set_dumpable(True)


def _complain(error: OSError) -> NoReturn:
    os.write(2, f"cannot enter the sandbox: {error}\n".encode())
    os._exit(NOT_ENTERED)


def _enter_user_namespace(uid: int, gid: int, *, is_root: bool) -> None:
    """Enter a new user namespace. Later children of this process are in a new process namespace."""
    waits, go = os.pipe()
    outer = os.getpid()
    helper = os.fork()
    if helper == 0:
        # Only a process outside of the namespace may map more than its own user.
        os.close(go)
        os.read(waits, 1)
        try:
            _write_maps(outer, uid, gid, is_root=is_root)
        except OSError:
            os._exit(1)
        os._exit(0)
    os.close(waits)
    try:
        # Children are killed with this process as soon as they exist.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID)
    except OSError as error:
        _complain(error)
    finally:
        os.close(go)
    if os.waitpid(helper, 0)[1]:
        _complain(OSError("the users of the namespace cannot be mapped"))


def _write_maps(pid: int, uid: int, gid: int, *, is_root: bool) -> None:
    folder = Path(f"/proc/{pid}")
    if not is_root:
        (folder / "setgroups").write_text("deny")
    for name, number in (("uid_map", uid), ("gid_map", gid)):
        lines = ["0 0 1\n"] if is_root else []
        (folder / name).write_text("".join([*lines, f"{number} {number} 1\n"]))


def _check_outer(tell: int) -> None:
    """End if the outer process died before this one asked for a signal."""
    waiting = select.poll()
    waiting.register(tell, 0)
    if waiting.poll(0):
        os._exit(NOT_ENTERED)


def _become_first(rules: Rules, uid: int, gid: int, *, is_root: bool) -> None:
    """Build the sandbox around this process, which is the first one of its process namespace."""
    import resource

    os.setsid()
    kernel.unshare(_ISOLATED | (0 if rules.network else kernel.CLONE_NEWNET))
    file_tree.build(rules.root, rules.tree, disk=rules.disk, uid=uid, gid=gid)
    file_tree.enter(rules.root)
    kernel.drop_bounding_set()
    if is_root:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        # A change of the user clears the parent-death signal.
        kernel.die_with_parent(signal.SIGKILL)
    kernel.drop_capabilities()
    kernel.gain_no_privileges()
    seccomp.install(network=rules.network)
    limit(rules.memory, rules.cpu)
    _set_limit(resource.RLIMIT_FSIZE, rules.disk)
    _set_limit(resource.RLIMIT_NOFILE, 1024)
    # This process counts, too.
    _set_limit(resource.RLIMIT_NPROC, rules.processes + 1)


def _attend(first: int, told: int, written: int) -> NoReturn:
    """Pass on the output of the sandbox, and end in the way its job ends."""
    relay(written, 2)
    os.waitpid(first, 0)
    status = os.read(told, 16)
    code = int(status) if status else -signal.SIGKILL
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)


def _watch(job: int, tell: int, memory: int | None) -> NoReturn:
    """Reap processes until the job ends. The kernel kills the others with this process."""
    kernel.set_dumpable(False)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pid, status = job, 0
        if pid == job:
            _end(tell, os.waitstatus_to_exitcode(status))
        if pid == 0:
            signal.sigtimedwait({signal.SIGCHLD}, _LOOK)
            if memory is not None and _used() > memory:
                _end(tell, OVER_MEMORY)


def _end(tell: int, code: int) -> NoReturn:
    os.write(tell, str(code).encode())
    os._exit(0)


def _used() -> int:
    """Bytes of memory of all processes here, if there are several; one alone is limited by its address space."""
    pids = [name for name in os.listdir("/proc") if name.isdigit() and name != "1"]  # noqa: PTH208
    return sum(map(_resident, pids)) if len(pids) > 1 else 0


def _resident(pid: str) -> int:
    """Bytes of memory of a process, with its part of the pages that several share.

    A process can hide that part from this one; then it is charged for all of them.
    """
    import resource

    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024
    with contextlib.suppress(OSError, ValueError):
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(resident) - int(shared)) * resource.getpagesize()
    return 0
