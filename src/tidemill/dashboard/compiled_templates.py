"""Cache of compiled templates on disk.

Compiling all templates takes more than half a second of CPU time, loading them a few milliseconds. The files are in
``__pycache__`` next to the templates, or where Python keeps the bytecode of this package, and under the same
conditions: nothing is written with ``PYTHONDONTWRITEBYTECODE``, or into a folder that this process may not change.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import sys
import threading
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket, BytecodeCache

from tidemill.dashboard import formats

FOLDER = Path(__file__).parent / "templates"


class CompiledTemplates(BytecodeCache):
    """One file for each template. A file of another source, place, Python, Jinja or set of filters is ignored."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._place = Path(cache_from_source(str(folder / "template.py"))).parent
        self._made_by = f"{folder} {jinja2.__version__} {sys.version}".encode()
        # Jinja evaluates a filter with constant arguments when it compiles.
        with contextlib.suppress(OSError):
            self._made_by += Path(formats.__file__).read_bytes()

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the name of the template as a file name."""
        return name.replace("/", ".")

    def get_source_checksum(self, source: str) -> str:
        """Return a checksum of everything that the compiled template depends on."""
        return hashlib.sha256(self._made_by + b"\0" + source.encode()).hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load a template, unless its file is missing or belongs to something else."""
        with contextlib.suppress(OSError):
            checksum, _, code = self._file(bucket).read_bytes().partition(b"\n")
            if checksum == _checksum(bucket, code):
                bucket.code = marshal.loads(code)  # noqa: S302  (bytecode of this package, as trusted as its .pyc files)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a template, if this process may."""
        if sys.dont_write_bytecode or bucket.code is None:
            return
        code, file = marshal.dumps(bucket.code), self._file(bucket)
        # Other processes and threads read the file while this one writes.
        own = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            own.write_bytes(_checksum(bucket, code) + b"\n" + code)
            own.replace(file)
        except OSError:
            with contextlib.suppress(OSError):
                own.unlink(missing_ok=True)

    def _file(self, bucket: Bucket) -> Path:
        return self._place / f"{bucket.key}.{sys.implementation.cache_tag}.jinja"


def _checksum(bucket: Bucket, code: bytes) -> bytes:
    """Return the first line of a file: ``marshal`` may crash the process on code that is not what was written."""
    return hashlib.sha256(bucket.checksum.encode() + code).hexdigest().encode()
