"""Imports of every module without the POSIX names that Windows lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WINDOWS = """
import asyncio, concurrent.futures, importlib, logging.handlers, multiprocessing, os, pkgutil, select, signal, socket
import subprocess, sys, tempfile, threading, tty, urllib.request, uuid, zoneinfo
import click.testing, httpx, hypothesis, itsdangerous, jinja2, psycopg, pydantic, pytest, rich.live, rich.table
import mcp.server.mcpserver, starlette.testclient, uvicorn

for module, names in {
    signal: "SIGKILL SIGHUP SIGALRM SIGCHLD SIGUSR1 SIGUSR2 SIGTSTP SIGTTIN SIGTTOU SIGCONT SIGSTOP SIGQUIT SIGPIPE "
    "pthread_sigmask sigwait alarm setitimer ITIMER_REAL",
    os: "fork forkpty killpg getpgrp getpgid setsid waitid waitpid WNOHANG P_PID WEXITED WNOWAIT CLD_EXITED "
    "register_at_fork sched_getaffinity pidfd_open getuid geteuid getgid sysconf uname fchmod chown mkfifo",
    select: "poll epoll",
    socket: "AF_UNIX SO_REUSEPORT",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
for name in "fcntl resource pwd grp termios tty pty syslog".split():
    sys.modules[name] = None
"""

EVERY = """
import traceback
import django
import tidemill
from django.conf import settings

# Models can be imported only in a Django project.
installed = ["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.messages"]
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=[*installed, "tidemill.contrib.django"],
)
django.setup()

for found in pkgutil.walk_packages(tidemill.__path__, "tidemill."):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except BaseException:
            traceback.print_exc()
            print(found.name)
"""


def run(source: str, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WINDOWS + source, *words],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        check=False,
    )


def test_every_module_can_be_imported_without_posix_names() -> None:
    done = run(EVERY)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-4_000:]
