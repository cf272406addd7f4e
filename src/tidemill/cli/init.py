"""``tidemill init``: a new project with tasks, tests and instructions."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from tidemill.cli.screen import print_json, print_lines
from tidemill.errors import UsageError

_NAME = "@name@"
_SUFFIX = ".tmpl"
_RESERVED = {"django", "fastapi", "orders", "tests", "tidemill"}
_NEXT = {
    "plain": ("pytest", "tidemill up {name}.jobs:app"),
    "fastapi": ("pytest", "uvicorn {name}.web:site"),
    "django": ("python manage.py migrate", "python manage.py test", "python manage.py tidemill worker"),
}


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path())
@click.option("--fastapi", "kind", flag_value="fastapi", help="A FastAPI site with an embedded worker.")
@click.option("--django", "kind", flag_value="django", help="A Django project.")
@click.option("--name", metavar="NAME", help="Name of the Python package; by default that of the folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def init(folder: Path, kind: str | None, name: str | None, as_json: bool) -> None:
    """Create a project in FOLDER, with tasks and their tests.

    Existing files are never overwritten: if one is in the way, nothing is written.
    """
    chosen, package = kind or "plain", _package_name(folder, name)
    contents = {
        path: text.replace(_NAME, package)
        for source in ("common", chosen)
        for path, text in _templates(files("tidemill.cli") / "templates" / source, Path(), package)
    }
    taken = sorted(str(path) for path in contents if (folder / path).exists())
    if taken:
        raise UsageError(f"{folder / taken[0]} exists already; nothing was written", path=taken[0])
    for path, text in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    steps = [step.format(name=package) for step in _NEXT[chosen]]
    if folder.resolve() != Path.cwd():
        steps.insert(0, f"cd {folder}")
    if as_json:
        print_json({"name": package, "kind": chosen, "files": sorted(map(str, contents)), "next": steps})
        return
    print_lines([(f"{len(contents)} files are in {folder}; README.md explains them. Next:", "")])
    print_lines([(f"  {step}", "") for step in steps])


def _package_name(folder: Path, name: str | None) -> str:
    package = name or re.sub(r"\W", "_", folder.resolve().name.lower()).strip("_")
    if not package.isidentifier() or keyword.iskeyword(package) or package in _RESERVED:
        raise UsageError(f"{package!r} cannot be the name of the package; give another one with --name")
    return package


def _templates(folder: Traversable, path: Path, package: str) -> list[tuple[Path, str]]:
    """Return the files below a folder of templates, with their paths in the project."""
    templates: list[tuple[Path, str]] = []
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        name = item.name.replace(_NAME, package)
        if item.is_dir():
            templates += _templates(item, path / name, package)
        elif name.endswith(_SUFFIX):
            templates.append((path / name.removesuffix(_SUFFIX), item.read_text(encoding="utf-8")))
    return templates
