"""Tests of finding an app by its path, and the path of an app."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill import App
from tidemill.engine.app_lookup import find_app, whereabouts
from tidemill.errors import BadSettings

APP = "from tidemill import App\napp = App('memory://')\n"

MAKE = "from tidemill import App\ndef make({}):\n    return App('memory://')\n"

SITE = """
from starlette.applications import Starlette
from starlette.routing import Mount
from tidemill import App
from tidemill.dashboard import create_site

def site_of(*apps):
    return Starlette(routes=[Mount(f"/jobs{n}", create_site(app)) for n, app in enumerate(apps)])
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project folder as the current directory. Its modules are unloaded afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_app_is_found_in_the_current_directory(here: Path) -> None:
    (here / "shop_one.py").write_text(APP + "class inner:\n    other = app\n")
    app = find_app("shop_one:app")
    assert isinstance(app, App)
    assert find_app("shop_one") is app
    assert find_app("shop_one:inner.other") is app


def test_a_module_in_a_package_is_named_with_dots(here: Path) -> None:
    (here / "shop_two").mkdir()
    (here / "shop_two" / "__init__.py").touch()
    (here / "shop_two" / "jobs.py").write_text(APP)
    assert isinstance(find_app("shop_two.jobs:app"), App)


@pytest.mark.parametrize(
    ("source", "where", "message"),
    [
        (None, "no_such_shop:app", "there is no module 'no_such_shop'"),
        (None, "no_such_shop.jobs:app", "there is no module 'no_such_shop'"),
        (None, "shop/jobs.py:app", "'shop/jobs.py:app' is a file, not a module; write shop.jobs:app"),
        (APP, "shop:jobs:app", "no 'jobs:app'; write shop:app"),
        (APP, "shop:other", "module 'shop' has no 'other'; write shop:app"),
        ("x = 1", "shop:other", "has no 'other'; it holds no App"),
        ("x = 1", "shop:x", "shop:x is an int, not an App; it holds no App"),
        ("x = 1", "shop", "'shop' does not specify the app; it holds no App"),
        (APP + "b = App('memory://')", "shop", "does not specify the app; write shop:app or shop:b"),
        (
            "import not_there_at_all",
            "shop:app",
            "it needs 'not_there_at_all', which is not installed (shop.py, line 1)",
        ),
        ("1 / 0", "shop:app", "cannot be imported: ZeroDivisionError: division by zero (shop.py, line 1)"),
        ("raise SystemExit(3)", "shop:app", "cannot be imported: SystemExit: 3"),
        ("def f(:", "shop:app", "cannot be imported: SyntaxError"),
        (
            APP + "app.worker().start()",
            "shop:app",
            'move the lines that start it under `if __name__ == "__main__":`',
        ),
        (APP + "app.tick()", "shop:app", "module 'shop' starts a worker when it is imported"),
        (None, "./shop.py:app", "'./shop.py:app' is a file, not a module; write shop:app"),
        (None, "shop.py", "'shop.py' is a file, not a module; write shop"),
        (None, "/srv/shop.py:app", "is a file, not a module; change to /srv and write shop:app"),
        (MAKE.format("x"), "shop:make", "shop:make is a function with required arguments (x)"),
        (
            MAKE.format("*, x, y=1"),
            "shop:make",
            "required arguments (x); a factory is called without arguments",
        ),
        ("def make(): return 7", "shop:make", "shop:make returns an int; a factory must return an App"),
        (
            "def make(): 1 / 0",
            "shop:make",
            "shop:make() failed: ZeroDivisionError: division by zero (shop.py, line 1)",
        ),
        ("async def make(): pass", "shop:make", "shop:make is an async function"),
        (
            APP + "@app.task\ndef talk(): 1 / 0\n",
            "shop:talk",
            "shop:talk is a BoundTask, not an App; write shop:app",
        ),
        (APP, "shop:App", "shop:App is a type, not an App; write shop:app"),
        (SITE + "site = site_of(App(), App())", "shop:site", "shop:site is a Starlette with 2 apps"),
        (SITE + "site = site_of()", "shop:site", "shop:site is a Starlette, not an App"),
        (APP, "", "names no app"),
        (APP, "shop:", "names no app"),
        (APP, ":app", "names no app"),
    ],
)
def test_a_wrong_path_raises_a_clear_error(here: Path, source: str | None, where: str, message: str) -> None:
    if source is not None:
        (here / "shop.py").write_text(source)
    with pytest.raises(BadSettings) as caught:
        find_app(where)
    assert message in str(caught.value)


def test_one_app_under_two_names_is_one_app(here: Path) -> None:
    (here / "shop_three.py").write_text(APP + "application = app\n")
    assert isinstance(find_app("shop_three"), App)


@pytest.mark.parametrize("parameters", ["", "url=None", "*args, **more"])
def test_a_factory_is_called_for_its_app_and_gives_it_its_name(here: Path, parameters: str) -> None:
    (here / "shop_made.py").write_text(MAKE.format(parameters))
    app = find_app("shop_made:make")
    assert isinstance(app, App)
    assert (whereabouts(app), app.name) == ("shop_made:make", "shop_made:make")


def test_for_a_web_application_the_app_with_a_mounted_dashboard_is_found(here: Path) -> None:
    (here / "shop_site.py").write_text(
        SITE
        + "app = App()\nsite = site_of(app)\nalone = create_site(app)\ndef make(): return site_of(app, app)\n"
    )
    app = find_app("shop_site:app")
    assert [find_app(f"shop_site:{name}") for name in ("site", "alone", "make")] == [app] * 3


def test_an_app_is_named_after_the_module_that_defines_it(here: Path) -> None:
    (here / "shop_five").mkdir()
    (here / "shop_five" / "__init__.py").write_text("from shop_five.jobs import app as _app\n")
    (here / "shop_five" / "jobs.py").write_text(APP)
    app = find_app("shop_five.jobs:app")
    where = whereabouts(app)
    assert where is not None
    assert find_app(where) is app


def test_an_app_outside_modules_has_no_name(here: Path) -> None:
    with App("memory://") as app:
        assert whereabouts(app) is None


def test_a_module_that_cannot_be_imported_again_gives_no_name(here: Path) -> None:
    (here / "shop_six.py").write_text(APP)
    app = find_app("shop_six:app")
    (here / "shop_six.py").unlink()
    sys.path_importer_cache.clear()
    assert whereabouts(app) is None


MAIN = APP + "from tidemill.engine.app_lookup import whereabouts\nprint(whereabouts(app))\n"


def run(here: Path, *words: str) -> str:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.long
def test_the_app_of_a_program_is_named_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(MAIN)
    (tmp_path / "with-dash.py").write_text(MAIN)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(MAIN)
    (tmp_path / "package" / "part.py").write_text(MAIN)
    assert run(tmp_path, "program.py") == "program:app"
    assert run(tmp_path.parent, f"{tmp_path.name}/with-dash.py") == "with-dash:app"
    assert run(tmp_path, "-m", "program") == "program:app"
    assert run(tmp_path, "-m", "package") == "package.__main__:app"
    assert run(tmp_path, "-m", "package.part") == "package.part:app"
    assert run(tmp_path, "-c", MAIN) == "None"
