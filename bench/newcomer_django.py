"""How long a newcomer takes with Django: from an empty environment to a job that the admin retries.

    python3 dev.py bench newcomer_django [--django 6.1] [--database postgresql://…] [--keep]

It installs this checkout, makes a project with ``tidemill init --django``, clones it and follows its README: migrate, test,
server, worker, an order that a view places inside ``atomic()``. Then it breaks the task, corrects it, and retries the failed
job in the admin. It prints the seconds of each step; reading and typing are not included.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 120.0
PASSWORD = "correct horse"
LINE = "    Order.objects.filter"


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def until(done: Callable[[], bool], pause: float = 0.05) -> None:
    """Wait until it is true."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(pause)


class Browser:
    """A person with cookies who fills in forms of the admin."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()))

    def get(self, path: str) -> str:
        """The text of a page."""
        with self._opener.open(self.base + path, timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    def post(self, path: str, **fields: str) -> str:
        """The text of the page after a form is sent."""
        body = urlencode(fields).encode()
        request = Request(self.base + path, body, headers={"Referer": self.base + path})
        with self._opener.open(request, timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    def token(self, path: str) -> str:
        """The CSRF token in a page."""
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.get(path))
        assert found is not None, path
        return found[1]

    def answers(self) -> bool:
        """Does the server answer?"""
        try:
            self.get("/admin/login/")
        except OSError:
            return False
        return True


class Newcomer:
    """The steps, and their seconds."""

    def __init__(self, folder: Path, database: str | None) -> None:
        self.folder, self.database, self.total = folder, database, 0.0
        self.programs = folder / ".venv" / ("Scripts" if os.name == "nt" else "bin")
        self.site = folder / "site"
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL")
        }

    def timed(self, name: str, act: Callable[[], object]) -> None:
        """Take a step and print its seconds."""
        began = time.perf_counter()
        act()
        took = time.perf_counter() - began
        self.total += took
        print(f"{took:8.1f} s  {name}", flush=True)

    def run(self, *words: str, cwd: Path | None = None, **more: str) -> str:
        """The output of a command."""
        done = subprocess.run(
            words,
            cwd=cwd or self.folder,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def manage(self, *words: str, **more: str) -> str:
        """The output of ``manage.py``."""
        return self.run(str(self.programs / "python"), "manage.py", *words, cwd=self.site, **more)

    @contextmanager
    def running(self, log: Path, *words: str) -> Iterator[None]:
        """Run a command of ``manage.py`` in the background."""
        with log.open("w") as output:
            process = subprocess.Popen(
                [str(self.programs / "python"), "-u", "manage.py", *words],
                cwd=self.site,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE)

    def install(self, django: str | None) -> None:
        """The environment with this checkout."""
        venv.create(self.folder / ".venv", with_pip=True)
        wanted = [f"django~={django}.0"] if django else []
        self.run(
            str(self.programs / "pip"), "install", "-q", f"{ROOT}[django,postgres]", *wanted, cwd=self.folder
        )

    def make(self) -> None:
        """The project, in a Git repository."""
        self.run(str(self.programs / "tidemill"), "init", "--django", "shopsite")
        origin = self.folder / "shopsite"
        if self.database is not None:
            place = urlsplit(self.database)
            values = {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": place.path[1:],
                "USER": place.username or "",
                "PASSWORD": place.password or "",
                "HOST": place.hostname or "",
                "PORT": str(place.port or ""),
            }
            with (origin / "shopsite" / "settings.py").open("a", encoding="utf-8") as settings:
                settings.write(f'\nDATABASES = {{"default": {values!r}}}\n')
        for words in ("init -q", "add .", "-c user.name=ada -c user.email=ada@example.com commit -qm start"):
            self.run("git", *words.split(), cwd=origin)

    def status(self, job: str) -> str:
        """The status of a job."""
        return str(json.loads(self.manage("tidemill", "jobs", "show", job, "--json"))["status"])

    def follow(self) -> None:
        """Clone the project, and work with it."""
        self.timed(
            "git clone",
            lambda: self.run("git", "clone", "-q", str(self.folder / "shopsite"), str(self.site)),
        )
        self.timed("manage.py migrate", lambda: self.manage("migrate"))
        self.timed("manage.py test", lambda: self.manage("test"))
        words = ("createsuperuser", "--noinput", "--username=ada", "--email=ada@example.com")
        self.timed(
            "manage.py createsuperuser", lambda: self.manage(*words, DJANGO_SUPERUSER_PASSWORD=PASSWORD)
        )
        port = free_port()
        browser = Browser(f"http://127.0.0.1:{port}")
        log = self.folder / "worker.log"
        with ExitStack() as stack:
            serve = self.running(self.folder / "server.log", "runserver", "--noreload", str(port))
            work = self.running(log, "tidemill", "worker", "--reload")

            def start_server() -> None:
                stack.enter_context(serve)
                until(browser.answers)

            def start_worker() -> None:
                stack.enter_context(work)
                until(lambda: " ready\n" in log.read_text())

            self.timed("manage.py runserver: the first page", start_server)
            self.timed("manage.py tidemill worker: ready", start_worker)
            self.work(browser, log)

    def work(self, browser: Browser, log: Path) -> None:
        """Place an order, break the task, correct it and retry the job in the admin."""
        placed: dict[str, str] = {}

        def place(customer: str) -> None:
            placed.update(json.loads(browser.post(f"/orders/{customer}")))

        def edit(text: str, reloads: int) -> None:
            tasks.write_text(text, encoding="utf-8")
            until(lambda: log.read_text().count("has ended") == reloads)

        def retry() -> None:
            jobs = "/admin/tidemill/storedjob/"
            fields = {"username": "ada", "password": PASSWORD}
            token = browser.token("/admin/login/")
            browser.post("/admin/login/?next=/admin/", csrfmiddlewaretoken=token, **fields)
            token = browser.token(jobs)
            chosen = {"action": "retry", "_selected_action": placed["job"]}
            assert "1 job retried" in browser.post(jobs, csrfmiddlewaretoken=token, **chosen)

        self.timed("an order from a view inside atomic()", lambda: place("ada"))
        self.timed("its job is completed", lambda: until(lambda: self.status(placed["job"]) == "completed"))
        tasks = self.site / "orders" / "tasks.py"
        right = tasks.read_text(encoding="utf-8")
        lines = (
            "    from tidemill import PermanentError",
            '    raise PermanentError("no stamps")',
            LINE,
        )
        wrong = right.replace(LINE, "\n".join(lines))
        assert wrong != right
        self.timed("the task is broken, the worker has reloaded it", lambda: edit(wrong, 1))
        self.timed("a second order", lambda: place("bob"))
        self.timed("its job has failed", lambda: until(lambda: self.status(placed["job"]) == "failed"))
        self.timed("the task is corrected, the worker has reloaded it", lambda: edit(right, 2))
        self.timed("sign in to the admin and retry the job", retry)
        self.timed(
            "the retried job is completed", lambda: until(lambda: self.status(placed["job"]) == "completed")
        )


def main() -> None:
    """Take every step and print how long it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--django", help="version, such as 6.1; by default the newest for this Python")
    parser.add_argument("--database", help="an empty PostgreSQL database; by default an SQLite file")
    parser.add_argument("--keep", action="store_true", help="keep the directory")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tidemill-newcomer-"))
    newcomer = Newcomer(folder, options.database)
    try:
        newcomer.timed("pip install '.[django,postgres]'", lambda: newcomer.install(options.django))
        newcomer.timed("tidemill init --django", newcomer.make)
        newcomer.total = 0.0
        newcomer.follow()
        print(f"{newcomer.total:8.1f} s  from the clone to the end")
    finally:
        if options.keep:
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
