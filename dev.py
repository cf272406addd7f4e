#!/usr/bin/env python3
"""Everything a contributor does, from a machine that has only Python.

Standard library only. It makes its own environment in `.venv` (`.venv-X.Y` for `--python X.Y`), installs
what `pyproject.toml` asks for at the versions of `constraints.txt`, and runs the tools there. The file is
written so that an old Python can still parse it: its owner then reads one sentence, not a syntax error.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import NoReturn

if sys.platform != "win32":
    import fcntl

ROOT = Path(__file__).resolve().parent
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
UV = "uv==0.13.7"
EXTRAS = "postgres,fast,server"
BIN = "Scripts" if os.name == "nt" else "bin"
HERE = "{}.{}".format(*sys.version_info[:2])
NO_NETWORK = re.compile(
    r"(?i)NewConnectionError|failed to establish a new connection|connection refused|name resolution|dns error"
    r"|name or service not known|getaddrinfo failed|nodename nor servname|network is unreachable|ProxyError"
    r"|error sending request|client error \(connect\)|connect(ion)? timed? ?out|max retries exceeded"
)
NOT_BUILT = re.compile(r"(?i)(?:to build|building wheel for|could not build wheels for):? [`'\"]?(\w[\w.-]*)")
NO_FIT = re.compile(r"(?i)no solution found|no matching distribution|ResolutionImpossible|conflicting")


class Stop(Exception):
    """Ends the program with one line for a person; `code` is 2 when the command line was wrong."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def colour() -> bool:
    """Whether the reader's screen shows colours and wants them."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def paint(text: str, code: str) -> str:
    """`text` in an ANSI colour, or as it is when nobody would see it."""
    return f"\033[{code}m{text}\033[0m" if colour() else text


def heading(text: str) -> None:
    """A short line that says what happens next."""
    print(paint("── " + text, "1;36"), flush=True)


def probe(python: str) -> str | None:
    """The X.Y of an interpreter, or None when it does not run (pyenv's shims exist without one behind)."""
    command = [python, "-c", "import sys; print('{}.{}'.format(*sys.version_info[:2]))"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def candidates(version: str) -> Iterator[str]:
    """Places where an interpreter X.Y may be, the nearest first."""
    if version == HERE:
        yield sys.executable
    if on_path := shutil.which("python" + version):
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    patches = [d for d in pyenv.glob(version + ".*") if d.name.rpartition(".")[2].isdigit()]
    for folder in sorted(patches, key=lambda d: int(d.name.rpartition(".")[2]), reverse=True):
        yield str(folder / "bin" / "python")
    if uv := shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".venv" / BIN)):
        ask = [uv, "python", "find", "--system", "--no-python-downloads", "--no-project", version]
        found = subprocess.run(ask, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            yield found.stdout.strip()


def find_python(version: str) -> str:
    """The path of an interpreter of this version."""
    for python in candidates(version):
        if probe(python) == version:
            return python
    raise Stop(
        f"no Python {version} found: looked for python{version} on PATH, in pyenv's versions and with uv; "
        f"`uv python install {version}` or `pyenv install {version}` gets one"
    )


class Environment:
    """One virtual environment of this checkout, made and kept fresh on demand."""

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
        """The process environment for tools that run in here."""
        env = dict(os.environ, VIRTUAL_ENV=str(self.path), PIP_DISABLE_PIP_VERSION_CHECK="1")
        env["PATH"] = str(self.bin) + os.pathsep + env.get("PATH", os.defpath)
        env["PYTHONPYCACHEPREFIX"] = str(self.path / "bytecode")  # compiled once, none beside the sources
        return {k: v for k, v in env.items() if k not in ("PYTHONHOME", "PYTHONDONTWRITEBYTECODE")}

    def fingerprint(self) -> str:
        """Changes whenever the environment has to be installed again."""
        digest = hashlib.sha256(f"{self.version} {UV} {EXTRAS} {ROOT}".encode())
        for name in ("pyproject.toml", "constraints.txt"):
            digest.update((ROOT / name).read_bytes())
        return digest.hexdigest()

    def is_ready(self) -> bool:
        """Whether what is installed is what the files ask for."""
        return self.python.exists() and self.stamp.is_file() and self.stamp.read_text() == self.fingerprint()

    def ready(self) -> None:
        """Make or refresh the environment if it needs it."""
        if not self.is_ready():
            with only_one():
                if not self.is_ready():  # another dev.py may have done it while we waited
                    self.install()

    def create(self) -> None:
        """An empty environment with pip, in place of what is there."""
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
        """The pinned uv in a healthy environment; None where there is no uv for this platform."""
        uv = self.bin / ("uv.exe" if os.name == "nt" else "uv")
        birth = f"{self.version} {UV} {ROOT}"  # the folder too: an environment does not survive being moved
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
            print("uv is not available for this platform; pip does the work, more slowly")
            command = [str(self.python), "-m", "pip", "install", "--quiet", "--retries", "1", *wanted]
        if failed := self.attempt(command):
            raise self.diagnosis(failed)
        self.stamp.write_text(self.fingerprint())
        print(f"installed in {time.monotonic() - began:.1f} s", flush=True)

    def attempt(self, command: Sequence[str]) -> str:
        """Run an installer; the empty string when it worked, else everything it said, which is also kept."""
        env = self.variables()
        if "UV_DEFAULT_INDEX" not in env and "UV_INDEX_URL" not in env:
            # uv does not read pip's settings; people who work behind a mirror have told only pip about it.
            ask = [str(self.python), "-m", "pip", "config", "get", "global.index-url"]
            told = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()
            if index := env.get("PIP_INDEX_URL") or told:
                env["UV_DEFAULT_INDEX"] = index
        env.setdefault("UV_HTTP_RETRIES", "1")
        code, output = quietly(command, env)
        self.log.write_text(output, encoding="utf-8")
        return (output or f"exit code {code}") if code else ""

    def diagnosis(self, output: str) -> Stop:
        """What an installer's complaint means to the person at the keyboard."""
        where = f" (all of it: {self.log.relative_to(ROOT)})"
        if NO_NETWORK.search(output):
            return Stop("the package index cannot be reached; check network, proxy and index" + where)
        built = NOT_BUILT.search(output)
        if built and built[1] != "tidemill":
            return Stop(
                f"{built[1]} has no ready-made wheel for Python {self.version} on {sys.platform} and building it failed; "
                f"wheels exist for {SUPPORTED[0]}–{SUPPORTED[-1]} on common platforms, so try --python X.Y, or install "
                f"a C compiler (Debian: apt install build-essential python{self.version}-dev)" + where
            )
        if NO_FIT.search(output):
            return Stop("pyproject.toml and constraints.txt do not fit together: run `dev.py lock`" + where)
        return Stop("installing failed: " + last_line(output) + where)


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Let one dev.py install at a time; the lock is on the checkout's folder and leaves no file behind."""
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
    """The requirements of `[dependency-groups] dev`, read here because older pips cannot."""
    import tomllib

    return list(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]["dev"])


def last_line(text: str) -> str:
    """The last line that says something."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def quietly(command: Sequence[str], env: dict[str, str]) -> tuple[int, str]:
    """Run a program to its end; its exit code and everything it said."""
    done = subprocess.run(command, env=env, cwd=ROOT, check=False, stdout=PIPE, stderr=STDOUT)
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()


def become(env: Environment, *command: str, **extra: str) -> int:
    """Turn into a tool, so that its exit code, its terminal and every signal are its own."""
    sys.stdout.flush()
    os.chdir(ROOT)
    variables = dict(env.variables(), **extra)
    if os.name != "nt":
        os.execve(command[0], command, variables)
    return subprocess.call(command, env=variables)


def setup(env: Environment, _options: argparse.Namespace, _rest: list[str]) -> int:
    """Make or refresh the environment."""
    env.ready()
    print(f"{env.path.name} is ready: Python {env.version}")
    return 0


def check(env: Environment, options: argparse.Namespace, _rest: list[str]) -> int:
    """Check format, lint, types, layers and house rules; --fix repairs what a tool can repair."""
    env.ready()
    python = str(env.python)
    parts = [part for part in ("src", "tests", "bench", "examples", "dev.py") if (ROOT / part).exists()]
    if options.fix:
        quietly([python, "-m", "ruff", "check", "--fix-only", "."], env.variables())
        quietly([python, "-m", "ruff", "format", "."], env.variables())
    tools = {
        "ruff format": [python, "-m", "ruff", "format", "--check", "."],
        "ruff check": [python, "-m", "ruff", "check", "."],
        "mypy --strict": [python, "-m", "mypy", "--strict", *parts],
        "lint-imports": [str(env.bin / "lint-imports"), "--no-cache"],
        "house tests": [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/house"],
    }
    loud = {"FORCE_COLOR": "1", "MYPY_FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"} if colour() else {}
    variables = dict(env.variables(), **loud)

    def one(command: list[str]) -> tuple[int, str, float]:
        began = time.monotonic()
        return (*quietly(command, variables), time.monotonic() - began)

    worst, complaints = 0, []
    with concurrent.futures.ThreadPoolExecutor(len(tools)) as pool:
        running = {pool.submit(one, command): name for name, command in tools.items()}
        for future in concurrent.futures.as_completed(running):
            name, (code, output, seconds) = running[future], future.result()
            mark = paint("✗", "31") if code else paint("✓", "32")
            print(f"{mark} {name:<14} {seconds:5.1f} s", flush=True)
            if code:
                worst = max(worst, abs(code))
                complaints.append((name, output))
    for name, output in complaints:
        heading(name)
        print(output)
    return worst


def test(env: Environment, options: argparse.Namespace, rest: list[str]) -> int:
    """Run the tests (--all: a missing service is a failure); other arguments go to pytest."""
    env.ready()
    heading(f"tests on Python {env.version}" + (", every service required" if options.all else ""))
    alone = any(arg.startswith(("-n", "--numprocesses", "--pdb", "--trace")) or "::" in arg for arg in rest)
    workers = [] if alone else ["-n", str(min(8, (os.cpu_count() or 2) + 1))]  # many tests only wait
    wish = {"TIDEMILL_TEST_ALL": "1"} if options.all else {}
    return become(env, str(env.python), "-m", "pytest", *workers, *rest, **wish)


def bench(env: Environment, _options: argparse.Namespace, rest: list[str]) -> int:
    """Run bench/NAME.py or the folder bench/NAME (store unless named) with the arguments that follow."""
    name, rest = (rest[0], rest[1:]) if rest and not rest[0].startswith("-") else ("store", rest)
    places = [*(ROOT / "bench").glob("*.py"), *(p.parent for p in (ROOT / "bench").glob("*/__main__.py"))]
    known = sorted(place.stem for place in places)
    if name not in known:
        raise Stop(f"there is no benchmark {name!r}; there is: {', '.join(known) or 'none yet'}", 2)
    env.ready()
    return become(env, str(env.python), "-m", f"bench.{name}", *rest)


def faults(env: Environment, _options: argparse.Namespace, rest: list[str]) -> int:
    """Hurt a running system: [--minutes N] [--store postgres|sqlite|both] [--seed N] [--faults A,B] [--json]; 1 if a promise breaks."""
    env.ready()
    return become(env, str(env.python), "-m", "tests.faults.chaos", *rest)


def docs(env: Environment, options: argparse.Namespace, rest: list[str]) -> int:
    """Build the documentation into site/; --serve shows it in the browser and follows your edits."""
    env.ready()
    verb = "serve" if options.serve else "build"
    return become(env, str(env.bin / "zensical"), verb, "-f", "mkdocs.yml", *rest)


def demo(env: Environment, _options: argparse.Namespace, rest: list[str]) -> int:
    """Show Tidemill at work: sample tasks, a worker and the HTTP API; the arguments of `tidemill demo` may follow."""
    env.ready()
    return become(env, str(env.python), "-m", "tidemill", "demo", *rest)


def lock(env: Environment, options: argparse.Namespace, _rest: list[str]) -> int:
    """Re-make constraints.txt; pins that still fit stay, unless --upgrade is given."""
    with only_one():
        uv = env.get_uv()
    if not uv:
        raise Stop("there is no uv for this platform, and only uv can make constraints.txt")
    target, fresh = ROOT / "constraints.txt", env.path / "constraints.new"
    fresh.write_text("" if options.upgrade or not target.is_file() else target.read_text())
    flags = ["--all-extras", "--group", "dev", "--universal", "--python-version", SUPPORTED[0], "--quiet"]
    bare = ["--no-emit-index-url", "--no-annotate", "--no-header", "-o", str(fresh)]
    if failed := env.attempt([uv, "pip", "compile", "pyproject.toml", *flags, *bare]):
        raise env.diagnosis(failed)
    if "://" in fresh.read_text():
        raise Stop("an address came into the pins, so constraints.txt was left alone; see " + str(fresh))
    fresh.replace(target)
    print(f"constraints.txt holds {len(target.read_text().splitlines())} pins")
    return 0


class Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line in one line."""

    def error(self, message: str) -> NoReturn:
        raise Stop(f"{message}; see {self.prog} --help", 2)


def main(arguments: Sequence[str]) -> int:
    """Read the command line and run one command."""
    if HERE not in SUPPORTED:
        others = (p for version in reversed(SUPPORTED) for p in candidates(version) if probe(p) == version)
        hint = next((f"; try: {python} dev.py" for python in others), "")
        raise Stop(f"Python {SUPPORTED[0]} to {SUPPORTED[-1]} is needed, and this is {HERE}{hint}")
    parser = Parser(prog="dev.py", description="Work on Tidemill.", allow_abbrev=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    flags = {check: "--fix", test: "--all", docs: "--serve", lock: "--upgrade"}
    for command in (setup, check, test, bench, faults, docs, demo, lock):
        about = (command.__doc__ or "").strip()
        sub = commands.add_parser(command.__name__, help=about, description=about, allow_abbrev=False)
        sub.set_defaults(command=command, takes_more=command not in (setup, check, lock))
        sub.add_argument("--python", metavar="X.Y", help="use this Python, in an environment of its own")
        if command in flags:
            sub.add_argument(flags[command], action="store_true")
    options, rest = parser.parse_known_args(arguments)
    if rest and not options.takes_more:
        parser.error("unknown arguments: " + " ".join(rest))
    return int(options.command(Environment(options.python), options, rest))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Stop as stop:
        print(f"dev.py: {stop}", file=sys.stderr)
        sys.exit(stop.code)
    except OSError as problem:
        sys.exit(f"dev.py: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
