"""An app is found by its name, and its name by the app; what is wrong is said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill import App
from tidemill.engine.locate import find_app, importing, whereabouts
from tidemill.errors import BadSettings

APP = "from tidemill import App\napp = App('memory://')\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project folder, which is the current directory; its modules are forgotten afterwards."""
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
        (None, "shop/jobs.py:app", "a module is named with dots, perhaps shop.jobs"),
        (APP, "shop:jobs:app", "no 'jobs:app'; write shop:app"),
        (APP, "shop:other", "module 'shop' has no 'other'; write shop:app"),
        ("x = 1", "shop:other", "has no 'other'; it holds no App"),
        ("x = 1", "shop:x", "shop:x is a int, no App; it holds no App"),
        ("x = 1", "shop", "'shop' does not say which app is meant; it holds no App"),
        (APP + "b = App('memory://')", "shop", "which app is meant; write shop:app or shop:b"),
        ("import not_there_at_all", "shop:app", "it needs 'not_there_at_all', which is not installed"),
        ("1 / 0", "shop:app", "cannot be imported: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "shop:app", "cannot be imported: SystemExit: 3"),
        ("def f(:", "shop:app", "cannot be imported: SyntaxError"),
        (APP, "", "names no app"),
        (APP, "shop:", "names no app"),
        (APP, ":app", "names no app"),
    ],
)
def test_what_is_wrong_with_a_name_is_said(here: Path, source: str | None, where: str, message: str) -> None:
    if source is not None:
        (here / "shop.py").write_text(source)
    with pytest.raises(BadSettings) as caught:
        find_app(where)
    assert message in str(caught.value)


def test_one_app_under_two_names_is_one_app(here: Path) -> None:
    (here / "shop_three.py").write_text(APP + "application = app\n")
    assert isinstance(find_app("shop_three"), App)


def test_an_app_knows_whether_it_is_being_imported(here: Path) -> None:
    (here / "shop_four.py").write_text(
        "from tidemill.engine.locate import importing\nthen = importing()\n" + APP
    )
    find_app("shop_four")
    assert sys.modules["shop_four"].then is True
    assert importing() is False


def test_an_app_is_named_after_the_module_that_holds_it(here: Path) -> None:
    (here / "shop_five").mkdir()
    (here / "shop_five" / "__init__.py").write_text("from shop_five.jobs import app as _app\n")
    (here / "shop_five" / "jobs.py").write_text(APP)
    app = find_app("shop_five.jobs:app")
    where = whereabouts(app)
    assert where is not None
    assert find_app(where) is app


def test_an_app_that_no_module_holds_has_no_name(here: Path) -> None:
    with App("memory://") as app:
        assert whereabouts(app) is None


def test_a_module_that_cannot_be_imported_again_gives_no_name(here: Path) -> None:
    (here / "shop_six.py").write_text(APP)
    app = find_app("shop_six:app")
    (here / "shop_six.py").unlink()
    sys.path_importer_cache.clear()
    assert whereabouts(app) is None


MAIN = APP + "from tidemill.engine.locate import whereabouts\nprint(whereabouts(app))\n"


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
