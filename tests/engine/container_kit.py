"""Container runtimes for tests: a real one where it works, and a stand-in that runs the command in a child process."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.processes import ServiceMissing

from tidemill import Container
from tidemill.engine.confinement import containers

ROOT = Path(__file__).resolve().parents[2]

# Older versions of crun refuse a machine that mounts both versions of control groups.
_WITHOUT_UNIFIED = """#!/bin/sh
exec unshare --mount sh -c 'umount /sys/fs/cgroup/unified 2>/dev/null; exec podman "$@"' podman "$@"
"""

# runc accepts such a machine.
_WITH_RUNC = """#!/bin/sh
exec podman --runtime=runc "$@"
"""

# A machine may not let root raise these above its own.
_MODEST = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096")


def mounted() -> list[str]:
    """Everything that Python and the checkout need in an empty image."""
    places = ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", sys.base_prefix, sys.prefix, str(ROOT)]
    present = [place for place in dict.fromkeys(places) if Path(place).exists()]
    return [place for place in present if place == "/usr" or not place.startswith("/usr/")]


class RealRuntime:
    """A real podman. Its images have no files but those given; the containers mount Python and this checkout."""

    def __init__(self, command: str, *, has_limits: bool) -> None:
        self.command = command
        self.has_limits = has_limits  #: whether it has control groups
        self.image = self.add_image("empty", {})

    def _name(self, name: str) -> str:
        return f"localhost/tidemill-test-{os.getpid()}-{name}:1"

    def add_image(self, name: str, files: Mapping[str, str]) -> str:
        """Create an image with these files, and return its name."""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for path, text in files.items():
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        image = self._name(name)
        words = [self.command, "import", "-", image]
        done = subprocess.run(words, input=content.getvalue(), capture_output=True, check=False)
        if done.returncode:
            raise ServiceMissing(done.stderr.decode().strip().splitlines()[-1])
        return image

    def container(self, **given: Any) -> Container:
        """A container of the empty image, or of ``image``."""
        options = [*_MODEST, f"--env=PYTHONPATH={ROOT}", f"--workdir={ROOT}", *given.pop("options", ())]
        if not self.has_limits:
            options.append("--cgroups=disabled")
        files = [*mounted(), *given.pop("files", ())]
        return Container(
            image=given.pop("image", self.image),
            runtime=self.command,
            files=files,
            python=sys.executable,
            options=options,
            **given,
        )

    def running(self) -> list[str]:
        """The names of the containers of this process."""
        words = ["ps", "--all", f"--filter=label={containers.LABEL}", "--format=json"]
        own = containers.runner_label(os.getpid())
        listed = containers._containers(containers._run(self.command, words).stdout)
        return [name for name, label in listed if label == own]

    def close(self) -> None:
        """Remove the images."""
        listed = containers._run(self.command, ["images", "--quiet", f"--filter=reference={self._name('*')}"])
        containers._run(self.command, ["rmi", "--force", *dict.fromkeys(listed.stdout.split())])


@contextmanager
def real_runtime(folder: Path) -> Iterator[RealRuntime]:
    """The podman of this machine. Raise ``ServiceMissing`` if it cannot run containers."""
    if shutil.which("podman") is None:
        raise ServiceMissing("podman is not installed (Debian: apt install podman crun runc)")
    commands = ["podman"]
    for name, text in (("podman-runc", _WITH_RUNC), ("podman", _WITHOUT_UNIFIED)):
        wrapper = folder / name
        wrapper.write_text(text)
        wrapper.chmod(0o755)
        commands.append(str(wrapper))
    problems = []
    for has_limits in (True, False):
        for command in commands:
            runtime = RealRuntime(command, has_limits=has_limits)
            try:
                problem = containers.container_problem(runtime.container())
                if problem is None:
                    yield runtime
                    return
                problems.append(problem)
            finally:
                runtime.close()
    raise ServiceMissing(f"podman cannot run containers here: {problems[0]}")


STAND_IN = '''#!{python}
"""A stand-in for a container runtime: it runs the command of ``run`` in a child process, and remembers its labels."""
import json, os, signal, subprocess, sys
from pathlib import Path

HERE = Path({folder!r})


def main(words):
    if words[0] == "version":
        print(json.dumps({{"Client": {{"Version": "0"}}}}))
        return 0
    if words[0] == "ps":
        print(json.dumps([json.loads(path.read_text()) for path in HERE.glob("*.json")]))
        return 0
    if words[0] == "rm":
        for name in words[2:]:
            path = HERE / (name + ".json")
            if not path.exists():
                continue
            row = json.loads(path.read_text())
            try:
                os.killpg(row["Pid"], signal.SIGKILL)
            except ProcessLookupError:
                pass
            path.unlink(missing_ok=True)
        return 0
    with open(HERE / "commands", "a") as file:
        file.write(json.dumps(words) + "\\n")
    options = [word for word in words[1:] if word.startswith("--")]
    place = next(i for i, word in enumerate(words[1:], 1) if not word.startswith("--"))
    named = dict(word.split("=", 1) for word in options if "=" in word and not word.startswith("--label"))
    labels = dict(word.removeprefix("--label=").split("=", 1) for word in options if word.startswith("--label="))
    env = {{"PATH": os.environ["PATH"], "PYTHONPATH": {root!r}}}
    env.update(word.removeprefix("--env=").split("=", 1) for word in options if word.startswith("--env="))
    # A real runtime has the container in another session, so that it survives the client.
    child = subprocess.Popen(words[place + 1 :], env=env, cwd={root!r}, start_new_session=True)
    path = HERE / (named["--name"] + ".json")
    part = path.with_suffix(".part")
    part.write_text(json.dumps({{"Names": [named["--name"]], "Labels": labels, "Pid": child.pid}}))
    part.rename(path)
    code = child.wait()
    path.unlink(missing_ok=True)
    return code if code >= 0 else 128 - code


sys.exit(main(sys.argv[1:]))
'''


def stand_in(folder: Path) -> Container:
    """A container of the stand-in runtime."""
    program = folder / "runtime"
    program.write_text(STAND_IN.format(python=sys.executable, folder=str(folder), root=str(ROOT)))
    program.chmod(0o755)
    return Container(image="shop:1", runtime=str(program), python=sys.executable)
