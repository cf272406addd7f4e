"""Normalisation of mount paths to Starlette's convention.

Starlette keeps the whole path in ``path`` and the mount in ``root_path``. Litestar and many hand-written wrappers
remove the mount from ``path`` instead, and some of them leave ``root_path`` empty. Then only ``raw_path`` contains the
mount.
"""

from __future__ import annotations

from urllib.parse import unquote


def located(path: str, raw_path: bytes | None, root_path: str, prefix: str) -> tuple[str, str]:
    """Return the whole path and the root path of a request, as Starlette defines them.

    >>> located("/ops/jobs", b"/ops/jobs", "/ops", "")  # Starlette
    ('/ops/jobs', '/ops')
    >>> located("/jobs/", b"/ops/jobs", "", "")  # Litestar
    ('/ops/jobs', '/ops')
    >>> located("/jobs/", b"/ops/jobs", "", "/ops")  # Litestar, and a prefix that names the mount
    ('/ops/jobs', '')
    >>> located("/jobs", None, "/ops", "")  # a wrapper that cuts the mount off
    ('/ops/jobs', '/ops')
    """
    root_path = root_path.rstrip("/")
    if root_path and not _below(path, root_path):
        path = root_path + path
    whole = unquote((raw_path or b"").decode("latin-1"))
    inner = path[len(root_path) :].rstrip("/")
    if path == whole or not whole.rstrip("/").endswith(inner):
        return path, root_path
    mount = whole.rstrip("/").removesuffix(inner)
    if "//" in mount or not mount.startswith(root_path):
        return path, root_path
    mount = mount.rstrip("/")
    whole = whole if whole != mount else f"{mount}/"
    if prefix and not _below(inner, prefix):
        mount = mount.removesuffix(prefix)
    return whole, mount


def _below(path: str, base: str) -> bool:
    return path == base or path.startswith(f"{base}/")
