"""The cache of compiled templates."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
from jinja2 import Environment, FileSystemLoader

from tidemill import App
from tidemill.dashboard import compiled_templates, create_site, formats
from tidemill.dashboard.compiled_templates import CompiledTemplates
from tidemill.dashboard.site import Site


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one template, in which Python may write bytecode."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    (tmp_path / "page.html").write_text("one")
    return tmp_path


def compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """Render the template in a new environment, and count the compilations."""
    environment = Environment(
        loader=FileSystemLoader(folder), bytecode_cache=CompiledTemplates(folder), autoescape=True
    )
    sources: list[Any] = []
    compiling = environment.compile

    def compile_and_note(*values: Any) -> Any:
        sources.append(values)
        return compiling(*values)

    monkeypatch.setattr(environment, "compile", compile_and_note)
    return environment.get_template("page.html").render(), len(sources)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "page.html"]


def test_a_template_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled(folder, monkeypatch) == ("one", 1)
    assert compiled(folder, monkeypatch) == ("one", 0)
    (file,) = files(folder)
    assert file.parent == folder / "__pycache__"


def test_a_changed_template_is_compiled_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(folder, monkeypatch)
    (folder / "page.html").write_text("two")
    assert compiled(folder, monkeypatch) == ("two", 1)
    assert len(files(folder)) == 1


@pytest.mark.parametrize("changed", ["jinja", "python", "filters"])
def test_a_template_compiled_by_other_code_is_compiled_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    compiled(folder, monkeypatch)
    if changed == "jinja":
        monkeypatch.setattr(jinja2, "__version__", "0")
    elif changed == "python":
        monkeypatch.setattr(sys, "version", "0")
    else:
        other = folder / "formats.py"
        other.write_text("")
        monkeypatch.setattr(formats, "__file__", str(other))
    assert compiled(folder, monkeypatch)[1] == 1


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped"])
def test_a_damaged_file_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    compiled(folder, monkeypatch)
    (file,) = files(folder)
    content = file.read_bytes()
    file.write_bytes({"cut": content[:-1], "empty": b"", "flipped": content[:-1] + b"\xff"}[damage])
    assert compiled(folder, monkeypatch) == ("one", 1)
    assert compiled(folder, monkeypatch) == ("one", 0)


def test_python_s_settings_for_bytecode_apply(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    compiled(folder, monkeypatch)
    assert files(folder) == []
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(folder / "elsewhere"))
    compiled(folder, monkeypatch)
    (file,) = files(folder)
    assert file.is_relative_to(folder / "elsewhere")


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A file in the place of the folder also stops root.
    (folder / "__pycache__").write_text("")
    assert compiled(folder, monkeypatch) == ("one", 1)
    assert compiled(folder, monkeypatch) == ("one", 1)


def test_a_failed_write_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", full)
    assert compiled(folder, monkeypatch) == ("one", 1)
    assert files(folder) == []


def test_a_server_loads_all_templates_before_the_first_request() -> None:
    with App("memory://") as app:
        web_app = create_site(app)
        site: Site = web_app.state.dashboard
        loaded = site.views._environment.cache
        assert loaded is not None
        # The environment belongs to all sites of this process.
        loaded.clear()

        async def start() -> None:
            async with web_app.router.lifespan_context(web_app):
                pass

        asyncio.run(start())
        assert len(loaded) == len(list(compiled_templates.FOLDER.rglob("*.html")))
