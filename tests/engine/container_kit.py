"""Container runtimes for tests: a real one where it works, and a stand-in that runs the command in a child process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tidemill import Container

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "localhost/tidemill-test:latest"

# Older versions of crun refuse a machine that mounts both versions of control groups.
_WITHOUT_UNIFIED = """#!/bin/sh
exec unshare --mount sh -c 'umount /sys/fs/cgroup/unified 2>/dev/null; exec podman "$@"' podman "$@"
"""

_MODEST = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096", "--cgroups=disabled")


def mounted() -> list[str]:
    """Everything that Python and the checkout need in an empty image."""
    places = ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", sys.base_prefix, sys.prefix, str(ROOT)]
    present = [place for place in dict.fromkeys(places) if Path(place).exists()]
    return [place for place in present if place == "/usr" or not place.startswith("/usr/")]


def real_container(folder: Path) -> Container | None:
    """An empty image of a real podman with this checkout mounted, if podman can run containers here."""
    if shutil.which("podman") is None:
        return None
    wrapper = folder / "podman"
    wrapper.write_text(_WITHOUT_UNIFIED)
    wrapper.chmod(0o755)
    empty = subprocess.run(["tar", "-c", "-T", os.devnull], capture_output=True, check=True).stdout
    for runtime in ("podman", str(wrapper)):
        given = Container(
            image=IMAGE,
            runtime=runtime,
            files=mounted(),
            python=sys.executable,
            options=[*_MODEST, f"--env=PYTHONPATH={ROOT}", f"--workdir={ROOT}"],
        )
        made = subprocess.run([runtime, "import", "-", IMAGE], input=empty, capture_output=True, check=False)
        if made.returncode:
            continue
        volumes = [f"--volume={path}:{path}:ro" for path in given.files]
        words = ["run", "--rm", "--network=none", *given.options, *volumes, IMAGE, "/usr/bin/true"]
        tried = subprocess.run([runtime, *words], capture_output=True, check=False, timeout=120)
        if tried.returncode == 0:
            return given
    return None


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
