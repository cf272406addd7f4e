"""Tests of processes that must not outlive each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.isolated_kit import is_alive, marked, until

from tidemill.engine.deathwatch import are_gone, descendants, end_families

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can")


PARENT = """
import subprocess, sys, threading
pipe, kept = __import__("os").pipe()
words = [sys.executable, "-c", sys.argv[1], sys.argv[2], str(__import__("os").getpid()), str(pipe)]
child = subprocess.Popen(words, pass_fds=(pipe,), start_new_session=True)
threading.Event().wait()
"""
CHILD = """
import os, re, subprocess, sys
from tidemill.engine.deathwatch import die_with_parent, tie_group
folder, parent, pipe = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
assert {tie}
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(folder + "/other", "w").write(str(other.pid))
open(folder + "/child", "w").write(str(os.getpid()))
re.match(r"(a+)+$", "a" * 64 + "b")
"""


def dies_with_its_parent(tie: str, folder: Path) -> tuple[int, int]:
    words = [sys.executable, "-c", PARENT, CHILD.format(tie=tie), str(folder)]
    with subprocess.Popen(words) as parent:
        try:
            child, other = marked(folder / "child"), marked(folder / "other")
            assert is_alive(child)
        finally:
            parent.kill()
    until(lambda: not is_alive(child), 2)
    return child, other


@linux
def test_a_process_that_holds_the_gil_dies_with_its_parent(tmp_path: Path) -> None:
    _, other = dies_with_its_parent("die_with_parent(parent)", tmp_path)
    os.kill(other, signal.SIGKILL)  # this process is not tied to the parent


@linux
def test_a_tied_group_dies_as_a_whole(tmp_path: Path) -> None:
    _, other = dies_with_its_parent("tie_group(pipe)", tmp_path)
    until(lambda: not is_alive(other), 2)


@linux
@pytest.mark.parametrize("tie", ["tie_group(pipe)", "die_with_parent(1 + os.getppid())"])
def test_a_process_that_ties_itself_too_late_dies_at_once(tie: str) -> None:
    pipe, kept = os.pipe()
    os.close(kept)
    program = (
        "import os, sys, time\nfrom tidemill.engine.deathwatch import *\n"
        f"pipe = int(sys.argv[1])\n{tie}\ntime.sleep(600)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(pipe)], pass_fds=(pipe,), start_new_session=True, check=False
    )
    os.close(pipe)
    assert done.returncode == -signal.SIGKILL


@linux
def test_a_process_tree_is_killed_across_sessions(tmp_path: Path) -> None:
    other = (
        f"import os, time; open({str(tmp_path / 'other')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    leader = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {other!r}], start_new_session=True)"
    )
    with subprocess.Popen([sys.executable, "-c", leader], start_new_session=True) as process:
        below = marked(tmp_path / "other")
        assert descendants(process.pid) == {below}
        assert below in descendants(os.getpid())
        assert end_families([process.pid]) == {below}
        assert process.wait() == -signal.SIGKILL
    assert are_gone([below], 2)
    assert descendants(process.pid) == set()
