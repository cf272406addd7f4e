"""The virtual environments of a checkout.

Standard library only: this module creates the environment that other tools need.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from tools.pythons import BIN, HERE, SUPPORTED, find_python
from tools.terminal import ROOT, Stop, heading, last_line, quietly

if sys.platform != "win32":
    import fcntl

UV = "uv==0.13.7"
EXTRAS = "postgres,fast,server"
NO_NETWORK = re.compile(
    r"(?i)NewConnectionError|failed to establish a new connection|connection refused|name resolution|dns error"
    r"|name or service not known|getaddrinfo failed|nodename nor servname|network is unreachable|ProxyError"
    r"|error sending request|client error \(connect\)|connect(ion)? timed? ?out|max retries exceeded"
)
NOT_BUILT = re.compile(r"(?i)(?:to build|building wheel for|could not build wheels for):? [`'\"]?(\w[\w.-]*)")
NO_FIT = re.compile(r"(?i)no solution found|no matching distribution|ResolutionImpossible|conflicting")


class Environment:
    """One virtual environment of this checkout, created and updated on demand."""

    def __init__(self, version: str | None) -> None:
        if version and version not in SUPPORTED:
            raise Stop(f"Python {version} is not supported; choose one of {', '.join(SUPPORTED)}", 2)
        self.version = version or HERE
        self.path = ROOT / (".venv-" + version if version else ".venv")
        self.bin = self.path / BIN
        self.python = self.bin / ("python.exe" if os.name == "nt" else "python")
        self.birth = self.path / "made-by-dev-py"
        self.stamp = self.path / "installed-by-dev-py"
        self.log = self.path / "install.log"

    def variables(self) -> dict[str, str]:
        """The process environment of the tools in this virtual environment."""
        env = dict(os.environ, VIRTUAL_ENV=str(self.path), PIP_DISABLE_PIP_VERSION_CHECK="1")
        env["PATH"] = str(self.bin) + os.pathsep + env.get("PATH", os.defpath)
        # One bytecode cache per environment, and none in the source folders.
        env["PYTHONPYCACHEPREFIX"] = str(self.path / "bytecode")
        return {k: v for k, v in env.items() if k not in ("PYTHONHOME", "PYTHONDONTWRITEBYTECODE")}

    def fingerprint(self) -> str:
        """A digest that changes whenever the environment must be installed again."""
        digest = hashlib.sha256(f"{self.version} {UV} {EXTRAS} {ROOT}".encode())
        for name in ("pyproject.toml", "constraints.txt"):
            digest.update((ROOT / name).read_bytes())
        digest.update(package_version().encode())
        return digest.hexdigest()

    def is_ready(self) -> bool:
        """Whether the environment matches the requirement files."""
        return self.python.exists() and self.stamp.is_file() and self.stamp.read_text() == self.fingerprint()

    def ready(self) -> None:
        """Create or update the environment if necessary."""
        if not self.is_ready():
            with only_one():
                # Another dev.py may have installed it during the wait for the lock.
                if not self.is_ready():
                    self.install()

    def create(self) -> None:
        """Replace the environment with an empty one that has pip."""
        base = find_python(self.version)
        needs = subprocess.run([base, "-c", "import venv, ensurepip"], capture_output=True, check=False)
        if needs.returncode:
            package = f"python{self.version}-venv"
            raise Stop(f"{base} lacks venv or ensurepip; on Debian and Ubuntu: apt install {package}")
        heading(f"making {self.path.name} with Python {self.version}")
        code, output = quietly([base, "-m", "venv", "--clear", str(self.path)], dict(os.environ))
        if code:
            raise Stop(f"cannot make {self.path.name}: {last_line(output)}")

    def get_uv(self) -> str | None:
        """The pinned uv, or None if there is no uv for this platform."""
        uv = self.bin / ("uv.exe" if os.name == "nt" else "uv")
        # The folder is part of it, because an environment does not work after a move.
        birth = f"{self.version} {UV} {ROOT}"
        if not (self.python.exists() and self.birth.is_file() and self.birth.read_text() == birth):
            self.create()
            failed = self.attempt([str(self.python), "-m", "pip", "install", "--quiet", "--retries", "1", UV])
            if NO_NETWORK.search(failed):
                raise self.diagnosis(failed)
            self.birth.write_text(birth)
        return str(uv) if uv.exists() else None

    def install(self) -> None:
        """Install the package (editable), its extras and the dev group at the pinned versions."""
        uv = self.get_uv()
        wanted = ["-c", "constraints.txt", "-e", f".[{EXTRAS}]", *dev_group()]
        heading(f"installing into {self.path.name}")
        began = time.monotonic()
        if uv:
            command = [uv, "pip", "install", "--quiet", "--python", str(self.python), *wanted]
        else:
            print("uv is not available for this platform; pip installs the packages, more slowly")
            command = [str(self.python), "-m", "pip", "install", "--quiet", "--retries", "1", *wanted]
        if failed := self.attempt(command):
            raise self.diagnosis(failed)
        self.stamp.write_text(self.fingerprint())
        print(f"installed in {time.monotonic() - began:.1f} s", flush=True)

    def attempt(self, command: Sequence[str]) -> str:
        """Run an installer and return its output if it failed, else an empty string; the log file keeps the output."""
        env = self.variables()
        if "UV_DEFAULT_INDEX" not in env and "UV_INDEX_URL" not in env:
            # uv does not read pip's settings, and users behind a mirror often configure only pip.
            ask = [str(self.python), "-m", "pip", "config", "get", "global.index-url"]
            configured = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()
            if index := env.get("PIP_INDEX_URL") or configured:
                env["UV_DEFAULT_INDEX"] = index
        env.setdefault("UV_HTTP_RETRIES", "1")
        code, output = quietly(command, env)
        self.log.write_text(output, encoding="utf-8")
        return (output or f"exit code {code}") if code else ""

    def diagnosis(self, output: str) -> Stop:
        """The cause of a failed installation, and what to do about it."""
        where = f" (all of it: {self.log.relative_to(ROOT)})"
        if NO_NETWORK.search(output):
            return Stop("the package index cannot be reached; check network, proxy and index" + where)
        built = NOT_BUILT.search(output)
        if built and built[1] != "tidemill":
            return Stop(
                f"{built[1]} has no wheel for Python {self.version} on {sys.platform} and building it failed; "
                f"wheels exist for {SUPPORTED[0]}–{SUPPORTED[-1]} on common platforms, so try --python X.Y, or install "
                f"a C compiler (Debian: apt install build-essential python{self.version}-dev)" + where
            )
        if NO_FIT.search(output):
            return Stop("pyproject.toml and constraints.txt do not fit together: run `dev.py lock`" + where)
        return Stop("installing failed: " + last_line(output) + where)


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Let one dev.py install at a time. The lock is on the checkout's folder, so it leaves no file behind."""
    if sys.platform == "win32":
        yield
        return
    folder = os.open(str(ROOT), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def dev_group() -> list[str]:
    """The requirements of ``[dependency-groups] dev``, which older versions of pip cannot read."""
    import tomllib

    return list(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]["dev"])


def package_version() -> str:
    """The version of the package, whose only source is ``tidemill.__version__``."""
    text = (ROOT / "src" / "tidemill" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, flags=re.MULTILINE)
    if found is None:
        raise Stop('src/tidemill/__init__.py has no line __version__ = "…"')
    return found[1]


def become(env: Environment, *command: str, **extra: str) -> int:
    """Replace this process with a tool, so that exit code, terminal and signals are the tool's own."""
    sys.stdout.flush()
    os.chdir(ROOT)
    variables = dict(env.variables(), **extra)
    if os.name != "nt":
        os.execve(command[0], command, variables)
    return subprocess.call(command, env=variables)
