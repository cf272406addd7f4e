"""Filter of system calls for sandboxed processes.

The filter refuses calls that jobs do not need and that have opened ways out of namespaces before.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
import sys
from collections.abc import Sequence
from typing import NamedTuple

_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW… flag


class _Numbers(NamedTuple):
    """Numbers of system calls on one machine type."""

    architecture: int
    clone: int
    clone3: int
    socket: int
    refused: tuple[int, ...]


# open_tree, move_mount, fsopen, fsconfig, fsmount, fspick; io_uring; pidfd_getfd; mount_setattr
_EVERYWHERE = (428, 429, 430, 431, 432, 433, 425, 426, 427, 438, 442)

# In this order: mount, umount2, pivot_root, chroot, unshare, setns, ptrace, process_vm_readv, process_vm_writev, bpf,
# perf_event_open, keyctl, add_key, request_key, kexec_load, kexec_file_load, init_module, finit_module, delete_module,
# userfaultfd, open_by_handle_at, name_to_handle_at, reboot, swapon, swapoff, syslog, acct, quotactl, settimeofday,
# clock_settime, adjtimex, clock_adjtime, vhangup
_MACHINES = {
    "x86_64": _Numbers(
        0xC000003E,
        56,
        435,
        41,
        (
            165, 166, 155, 161, 272, 308, 101, 310, 311, 321, 298, 250, 248, 249, 246, 320, 175, 313, 176, 323, 304,
            303, 169, 167, 168, 103, 163, 179, 164, 227, 159, 305, 153,
        ),
    ),
    "aarch64": _Numbers(
        0xC00000B7,
        220,
        435,
        198,
        (
            40, 39, 41, 51, 97, 268, 117, 270, 271, 280, 241, 219, 217, 218, 104, 294, 105, 273, 106, 282, 265, 264,
            142, 224, 225, 116, 89, 60, 170, 112, 171, 266, 58,
        ),
    ),
}  # fmt: skip


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def families(*, network: bool) -> tuple[int, ...]:
    """Families of sockets that a job may open. Sockets of virtual machines ignore network namespaces."""
    local = (int(socket.AF_UNIX),)
    return (*local, int(socket.AF_INET), int(socket.AF_INET6), 16) if network else local


def install(*, network: bool) -> None:
    """Filter the system calls of this process and of its later children."""
    if sys.platform != "linux":
        raise OSError("this system is not Linux")
    numbers = _MACHINES.get(platform.machine())
    if numbers is None:
        raise OSError(f"no filter of system calls for the machine type {platform.machine()}")
    code = b"".join(instructions(numbers, families(network=network)))
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel refuses a filter of system calls")


def instructions(numbers: _Numbers, allowed: Sequence[int]) -> list[bytes]:
    """The filter as instructions of the Berkeley packet filter. Jumps skip forward by a number of instructions."""
    refuse = _step(_RETURN, _ERRNO | errno.EPERM)
    code = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, numbers.architecture, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if numbers.architecture == _MACHINES["x86_64"].architecture:
        # The x32 numbers name the same calls again.
        code += [_step(_AT_LEAST, _X32, 0, 1), refuse]
    for number in (*numbers.refused, *_EVERYWHERE):
        code += [_step(_EQUAL, number, 0, 1), refuse]
    # The flags of clone3 are out of reach of a filter; libc falls back to clone.
    code += [_step(_EQUAL, numbers.clone3, 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    code += [
        _step(_EQUAL, numbers.clone, 0, 4),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        refuse,
        _step(_RETURN, _ALLOW),
    ]
    code += [_step(_EQUAL, numbers.socket, 0, 2 + len(allowed)), _step(_LOAD, _FIRST_ARGUMENT)]
    for place, family in enumerate(allowed):
        code.append(_step(_EQUAL, family, len(allowed) - place, 0))
    return [*code, _step(_RETURN, _ERRNO | errno.EAFNOSUPPORT), _step(_RETURN, _ALLOW)]


def _step(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)
