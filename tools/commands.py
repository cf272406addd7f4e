"""The commands of ``dev.py``."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, NoReturn

from tools import changes as changelog
from tools import checks, packages, tests
from tools import lowest as oldest
from tools.environment import Environment, become, only_one, package_version
from tools.pythons import SUPPORTED
from tools.terminal import ROOT, Stop

Options = argparse.Namespace


def setup(env: Environment, _options: Options, _rest: list[str]) -> int:
    """Create or update the environment."""
    env.ready()
    print(f"{env.path.name} is ready: Python {env.version}")
    return 0


def check(env: Environment, options: Options, _rest: list[str]) -> int:
    """Check format, lint, types, layers and house rules; --fix applies automatic fixes first."""
    env.ready()
    if options.fix:
        checks.fix(env)
    return checks.run(env)


def test(env: Environment, options: Options, rest: list[str]) -> int:
    """Run the tests; --all adds the long ones and requires every service, --nightly also adds chaos runs of minutes, --cov measures coverage, --rerun runs up to five failed tests once more, alone; other arguments go to pytest."""
    env.ready()
    return tests.run(
        env, rest, every=options.all, nightly=options.nightly, coverage=options.cov, rerun=options.rerun
    )


def bench(env: Environment, _options: Options, rest: list[str]) -> int:
    """Run the benchmark bench/NAME (default: store) with the arguments that follow."""
    name, rest = (rest[0], rest[1:]) if rest and not rest[0].startswith("-") else ("store", rest)
    places = [*(ROOT / "bench").glob("*.py"), *(p.parent for p in (ROOT / "bench").glob("*/__main__.py"))]
    known = sorted(place.stem for place in places)
    if name not in known:
        raise Stop(f"unknown benchmark {name!r}; expected one of {', '.join(known) or 'none yet'}", 2)
    env.ready()
    return become(env, str(env.python), "-m", f"bench.{name}", *rest)


def faults(env: Environment, _options: Options, rest: list[str]) -> int:
    """Inject faults into a running system: [--minutes N] [--store postgres|sqlite|both] [--seed N] [--faults A,B] [--json]."""
    env.ready()
    return become(env, str(env.python), "-m", "tests.faults.chaos", *rest)


def docs(env: Environment, options: Options, rest: list[str]) -> int:
    """Build the documentation into site/; --serve shows it in a browser, --write regenerates the reference pages."""
    env.ready()
    if options.write:
        return become(env, str(env.python), "-m", "tools.reference")
    if options.serve:
        return become(env, str(env.bin / "zensical"), "serve", "-f", "mkdocs.yml", *rest)
    return become(env, str(env.bin / "zensical"), "build", "--strict", "-f", "mkdocs.yml", *rest)


def demo(env: Environment, _options: Options, rest: list[str]) -> int:
    """Run the demo: sample tasks, a worker, the dashboard and the HTTP API; other arguments go to `tidemill demo`."""
    env.ready()
    return become(env, str(env.python), "-m", "tidemill", "demo", *rest)


def changes(_env: Environment, options: Options, _rest: list[str]) -> int:
    """Print the changelog fragments; --release moves them into CHANGELOG.md under the version of the package."""
    if options.release:
        count = changelog.release(package_version(), datetime.now(UTC).date())
        print(f"CHANGELOG.md has version {package_version()} with {count} new entries")
    else:
        print(changelog.collected() or "no fragments in changes/", end="" if changelog.fragments() else "\n")
    return 0


def lock(env: Environment, options: Options, _rest: list[str]) -> int:
    """Regenerate constraints.txt; pins that still fit stay, unless --upgrade is given."""
    with only_one():
        uv = env.get_uv()
    if not uv:
        raise Stop("there is no uv for this platform, and only uv can write constraints.txt")
    target, fresh = ROOT / "constraints.txt", env.path / "constraints.new"
    fresh.write_text("" if options.upgrade or not target.is_file() else target.read_text())
    flags = ["--all-extras", "--group", "dev", "--universal", "--python-version", SUPPORTED[0], "--quiet"]
    bare = ["--no-emit-index-url", "--no-annotate", "--no-header", "-o", str(fresh)]
    if failed := env.attempt([uv, "pip", "compile", "pyproject.toml", *flags, *bare]):
        raise env.diagnosis(failed)
    if "://" in fresh.read_text():
        raise Stop(f"the new pins contain an address, so constraints.txt is unchanged; see {fresh}")
    fresh.replace(target)
    print(f"constraints.txt has {len(target.read_text().splitlines())} pins")
    return 0


def build(env: Environment, _options: Options, _rest: list[str]) -> int:
    """Build the wheel and the source archive into dist/, check both, and run a job with the wheel in a clean environment."""
    env.ready()
    built = packages.build(env, ROOT / "dist")
    wrong = packages.mistakes(built)
    for mistake in wrong:
        print(mistake)
    with tempfile.TemporaryDirectory() as folder:
        installed = packages.try_out(env, built.wheel, Path(folder))
    for path in built:
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:,.0f} kB")
    print(f"{len(installed.packages)} dependencies: {', '.join(installed.packages)}")
    print(f"import tidemill: {installed.import_time * 1000:.0f} ms")
    return bool(wrong)


def lowest(env: Environment, _options: Options, rest: list[str]) -> int:
    """Run tests with the oldest versions of all dependencies that the project accepts; arguments go to pytest."""
    env.ready()
    return oldest.run(env, rest)


class Command(NamedTuple):
    """A command, its flags, and whether it passes other arguments on."""

    run: Callable[[Environment, Options, list[str]], int]
    flags: tuple[str, ...] = ()
    passes_on: bool = False


COMMANDS = (
    Command(setup),
    Command(check, ("--fix",)),
    Command(test, ("--all", "--nightly", "--cov", "--rerun"), passes_on=True),
    Command(bench, passes_on=True),
    Command(faults, passes_on=True),
    Command(docs, ("--serve", "--write"), passes_on=True),
    Command(demo, passes_on=True),
    Command(changes, ("--release",)),
    Command(lock, ("--upgrade",)),
    Command(build),
    Command(lowest, passes_on=True),
)


class Parser(argparse.ArgumentParser):
    """An argument parser that reports a wrong command line in one line."""

    def error(self, message: str) -> NoReturn:
        raise Stop(f"{message}; see {self.prog} --help", 2)


def main(arguments: Sequence[str]) -> int:
    """Parse the command line and run one command."""
    parser = Parser(prog="dev.py", description="Work on Tidemill.", allow_abbrev=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        about = (command.run.__doc__ or "").strip()
        sub = commands.add_parser(command.run.__name__, help=about, description=about, allow_abbrev=False)
        sub.set_defaults(command=command)
        sub.add_argument("--python", metavar="X.Y", help="use this Python, in a separate environment")
        for flag in command.flags:
            sub.add_argument(flag, action="store_true")
    options, rest = parser.parse_known_args(arguments)
    if rest and not options.command.passes_on:
        parser.error("unknown arguments: " + " ".join(rest))
    return int(options.command.run(Environment(options.python), options, rest))
