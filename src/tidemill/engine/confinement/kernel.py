"""System calls of Linux that Python does not offer: namespaces, mounts and capabilities."""

from __future__ import annotations

import ctypes
import os
import platform
import sys

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR = 442

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION = 0x20080522
_LAST_CAPABILITY = 63

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _call(name: str, *arguments: object) -> int:
    if _libc is None:
        raise OSError("this system is not Linux")
    result: int = getattr(_libc, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Move this process, or its later children, into new namespaces."""
    _call("unshare", ctypes.c_int(flags))


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount a file system."""
    _call(
        "mount",
        None if source is None else source.encode(),
        target.encode(),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        None if data is None else data.encode(),
    )


def unmount(target: str, flags: int) -> None:
    """Unmount a file system."""
    _call("umount2", target.encode(), ctypes.c_int(flags))


def set_mount_attributes(path: str, attributes: int) -> None:
    """Set attributes of a mount and of all mounts below it."""
    given = _MountAttributes(attributes, 0, 0, 0)
    _call(
        "syscall",
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        path.encode(),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.byref(given),
        ctypes.c_size_t(ctypes.sizeof(given)),
    )


def pivot_root(new: str, old: str) -> None:
    """Make a mount the root of this mount namespace."""
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(f"the machine type {platform.machine()} is not supported")
    _call("syscall", ctypes.c_long(number), new.encode(), old.encode())


def _prctl(option: int, *values: int) -> int:
    padded = (*values, 0, 0, 0, 0)[:4]
    return _call("prctl", ctypes.c_int(option), *(ctypes.c_ulong(value) for value in padded))


def die_with_parent(sign: int) -> None:
    """Have the kernel signal this process when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, sign)


def set_dumpable(on: bool) -> None:
    """Set whether other processes of the user may look into this one."""
    _prctl(_PR_SET_DUMPABLE, int(on))


def gain_no_privileges() -> None:
    """Give up that a program which is started gains privileges."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_bounding_set() -> None:
    """Give up that this process or its children ever gain a capability."""
    for number in range(_LAST_CAPABILITY + 1):
        try:
            _prctl(_PR_CAPBSET_DROP, number)
        except OSError:  # the first number that this kernel does not have
            return


def drop_capabilities() -> None:
    """Give up every capability of this process."""
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())
