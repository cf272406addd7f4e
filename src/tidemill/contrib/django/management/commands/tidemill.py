"""``manage.py tidemill``: the command line of Tidemill with the app of the project."""

from __future__ import annotations

import os
import sys
from argparse import REMAINDER
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

APP = "tidemill.contrib.django:app"
_OF_DJANGO = ("--settings", "--pythonpath")


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Runs ``tidemill`` commands, such as ``manage.py tidemill worker``."""

    help = "Runs a tidemill command with the app of this project: worker, up, jobs, schedules, …"
    requires_system_checks: Sequence[str] = ()

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("words", nargs=REMAINDER, help="The tidemill command and its options.")

    def run_from_argv(self, argv: Sequence[str]) -> None:
        """Pass all arguments on, because Django's parser would refuse unknown options."""
        words = _without_django_options(argv[2:])
        program = f"{Path(argv[0]).name} {argv[1]}"
        if words[:1] == ["import-beat"]:
            from tidemill.contrib.django.beat_command import import_beat_command

            import_beat_command.main(args=words[1:], prog_name=f"{program} import-beat")
        else:
            run(words, program)

    def handle(self, *args: str, **options: Any) -> None:
        from tidemill.contrib.django.project import PROJECT

        try:
            run([*args, *options.get("words", ())], "manage.py tidemill", standalone=False)
        finally:
            # A command closes the app, and the calling program still needs it.
            PROJECT.reopen()


def run(words: Sequence[str], program: str, *, standalone: bool = True) -> None:
    """Run a command. Its processes find the project as this one does."""
    from tidemill.cli import commands

    os.environ["TIDEMILL_APP"] = APP
    # ``manage.py`` may run from another directory than the one that contains the project.
    where = [path for path in (sys.path[0], os.environ.get("PYTHONPATH")) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(where)
    commands.main(args=list(words), prog_name=program, standalone_mode=standalone)


def _without_django_options(words: Sequence[str]) -> list[str]:
    """Remove the options that Django reads itself from the front of the arguments."""
    rest = list(words)
    while rest and rest[0].partition("=")[0] in _OF_DJANGO:
        del rest[: 1 if "=" in rest[0] else 2]
    return rest
