"""The files that a sandboxed process sees: a new root with read-only mounts of what it needs."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tidemill.engine.confinement import kernel

PRIVATE = "/tmp"  # noqa: S108  (a directory in memory that only the sandbox has)

_SYSTEM = (
    "/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/local/bin", "/usr/local/lib", "/usr/local/lib64",
    "/usr/share/zoneinfo", "/usr/share/ca-certificates", "/usr/share/locale", "/bin", "/lib", "/lib32", "/lib64", "/libx32",
    "/nix/store", "/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf", "/etc/ssl/certs", "/etc/pki/tls/certs",
    "/etc/ca-certificates",
)  # fmt: skip
_FOR_NETWORK = ("/etc/hosts", "/etc/resolv.conf", "/etc/services", "/etc/gai.conf")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_CODE = (".py", ".so", ".pyc")
_MOST_LINKS = 40


class Tree(NamedTuple):
    """Paths that are mounted at the same place as outside."""

    readable: tuple[str, ...]
    writable: tuple[str, ...]


def tree_of(files: Sequence[str], writable: Sequence[str], *, network: bool) -> Tree:
    """The files of a sandbox: the system's libraries, the interpreter, the code of this process, and the listed files."""
    readable = [
        *_SYSTEM,
        *(_FOR_NETWORK if network else ()),
        *_interpreter(),
        *code_files(sys.path, sys.modules),
        *files,
    ]
    return Tree(tuple(dict.fromkeys(readable)), tuple(dict.fromkeys(writable)))


def _interpreter() -> list[str]:
    """Directories of the interpreter and of its installed packages."""
    places = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    prefixes = [place for place in places if place not in ("/", "/usr", "/usr/local")]
    return sorted({*prefixes, *(library for library in libraries if library)})


def code_files(path: Iterable[str], modules: Mapping[str, ModuleType]) -> list[str]:
    """The modules and packages in the directories of ``sys.path`` that do not belong to the interpreter.

    Other files there may be secret: settings, and the database of a small app.
    """
    prefixes = [Path(place) for place in _interpreter()]
    files: list[str] = []
    for text in path:
        folder = Path(text or Path.cwd()).absolute()
        if os.path.isfile(folder):  # noqa: PTH113  (False without permission)
            files.append(str(folder))
        elif not any(folder.is_relative_to(prefix) for prefix in prefixes):
            files += _code_in(folder, modules)
    return files


def _code_in(folder: Path, modules: Mapping[str, ModuleType]) -> list[str]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []
    return [
        entry.path
        for entry in entries
        if (entry.is_dir() and (_is_package(entry) or _is_imported(entry, modules)))
        or (entry.is_file() and entry.name.endswith(_CODE))
    ]


def _is_package(entry: os.DirEntry[str]) -> bool:
    try:
        return Path(entry.path, "__init__.py").exists()
    except PermissionError:
        return False


def _is_imported(entry: os.DirEntry[str], modules: Mapping[str, ModuleType]) -> bool:
    """Whether a directory is a package without ``__init__.py`` that this process has imported."""
    module = modules.get(entry.name)
    return module is not None and entry.path in map(str, getattr(module, "__path__", ()))


# In the sandbox ----------------------------------------------------------------------------------------------------------


def build(root: str, tree: Tree, *, disk: int, uid: int, gid: int) -> None:
    """Mount the tree on an empty directory. It needs new user and mount namespaces."""
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    # The places of the mounts take almost nothing.
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0755,size=4m")
    # First, as the code may lie below it.
    private = root + PRIVATE
    Path(private).mkdir(parents=True, exist_ok=True)
    kernel.mount(
        "tmpfs",
        private,
        "tmpfs",
        kernel.MS_NOSUID | kernel.MS_NODEV,
        f"mode=0700,size={disk},uid={uid},gid={gid}",
    )
    _Mounts(root).add(tree)
    _add_devices(root)
    _add_accounts(root, uid, gid)
    proc = Path(root, "proc")
    proc.mkdir()
    kernel.mount("proc", str(proc), "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)


def enter(root: str) -> None:
    """Make the tree the root of this process, and change to its private directory."""
    _forbid_namespaces(root)
    proc = f"{root}/proc"
    # Some settings of the kernel belong to the user root, whatever its capabilities are.
    kernel.set_mount_attributes(proc, kernel.MOUNT_ATTR_RDONLY)
    os.chdir(root)
    kernel.pivot_root(".", ".")
    kernel.unmount(".", kernel.MNT_DETACH)
    flags = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount(None, "/", None, flags)
    os.chdir(PRIVATE)


def _forbid_namespaces(root: str) -> None:
    """Refuse further user namespaces, which would give the job new capabilities. The filter of system calls does, too."""
    try:
        Path(root, "proc/sys/user/max_user_namespaces").write_text("0")
    except OSError:
        return


class _Mounts:
    """Mounts of parts of the outer tree, at the same places."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._done: dict[str, bool] = {}

    def add(self, tree: Tree) -> None:
        wanted = dict.fromkeys(tree.readable, False) | dict.fromkeys(tree.writable, True)
        # Parents come first, so that a writable directory can lie in one that is only readable.
        for path in sorted(wanted, key=lambda path: (path.count("/"), path)):
            self._add(path, writable=wanted[path])

    def _add(self, path: str, *, writable: bool) -> None:
        real = self._follow(path)
        if real is None or self._is_done(real, writable):
            return
        try:
            is_folder = stat.S_ISDIR(Path(real).stat().st_mode)
        except OSError:  # nothing is there
            return
        target = self._root + real
        if not os.path.lexists(target):
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            Path(target).mkdir() if is_folder else Path(target).touch()
        kernel.mount(real, target, None, kernel.MS_BIND | kernel.MS_REC)
        protected = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
        kernel.set_mount_attributes(target, protected | (0 if writable else kernel.MOUNT_ATTR_RDONLY))
        self._done[real] = writable

    def _is_done(self, path: str, writable: bool) -> bool:
        """Whether a mounted directory contains the path already."""
        return any(
            (path == done or path.startswith(f"{done}/")) and self._done[done] >= writable
            for done in self._done
        )

    def _follow(self, path: str) -> str | None:
        """Copy the symbolic links on the way to a path, and return where they lead."""
        at, rest, links = "", [part for part in path.split("/") if part], 0
        while rest:
            part = rest.pop(0)
            if part == "..":
                at = at.rpartition("/")[0]
                continue
            if part in (".", ""):
                continue
            at = f"{at}/{part}"
            if not os.path.islink(at):  # noqa: PTH114  (paths are texts here)
                continue
            links += 1
            if links > _MOST_LINKS:
                return None
            leads = os.readlink(at)  # noqa: PTH115
            self._copy_link(at, leads)
            rest = [*leads.split("/"), *rest]
            at = "" if leads.startswith("/") else at.rpartition("/")[0]
        return at or "/"

    def _copy_link(self, at: str, leads: str) -> None:
        target = self._root + at
        if os.path.lexists(target):
            return
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(leads, target)  # noqa: PTH211


def _add_devices(root: str) -> None:
    folder = Path(root, "dev")
    folder.mkdir(exist_ok=True)
    for name in _DEVICES:
        target = folder / name
        target.touch()
        kernel.mount(f"/dev/{name}", str(target), None, kernel.MS_BIND)
    (folder / "fd").symlink_to("/proc/self/fd")
    (folder / "shm").symlink_to(PRIVATE)


def _add_accounts(root: str, uid: int, gid: int) -> None:
    etc = Path(root, "etc")
    etc.mkdir(exist_ok=True)
    (etc / "passwd").write_text(f"job:x:{uid}:{gid}:job:{PRIVATE}:/bin/false\n")
    (etc / "group").write_text(f"job:x:{gid}:\n")
