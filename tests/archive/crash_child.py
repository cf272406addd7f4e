"""An archive run into files that kills its own process at one point.

Arguments: the URL of the jobs, the URL of the files, the number of the point, and the command (run or erase). Each call of the
store and of the object store passes a point before and one after it. With number 0, it prints how many points there are.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tidemill import App
from tidemill.archive.objects import Objects

passed: list[str] = []


def watch(owner: Any, name: str, kill_at: int) -> None:
    """Count a point before and after each call of a method, and die at the chosen one."""
    original: Callable[..., Any] = getattr(owner, name)

    def point(when: str) -> None:
        passed.append(f"{when} {name}")
        if len(passed) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def called(*args: Any, **kwargs: Any) -> Any:
        point("before")
        answer = original(*args, **kwargs)
        point("after")
        return answer

    setattr(owner, name, called)


def main() -> None:
    """Run the command, and print the points that it passed."""
    jobs, files, number, command, *ids = sys.argv[1:]
    with App(stores={"default": jobs, "archive": files}) as app:
        for name in ("create", "read", "delete"):
            watch(Objects, name, int(number))
        for name in ("add_archive_file", "remove_archive_files", "forget", "erase_archived", "delete"):
            watch(app.store, name, int(number))
        if command == "run":
            app.archive.run(older_than=0)
        else:
            app.archive.erase(ids=ids, tenant="*")
    print(*passed, sep="\n")


main()
