"""Settings from options, the environment, files, pyproject.toml and DATABASE_URL, and ``tidemill config show``."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.interfaces.cli_kit import call

from tidemill import App
from tidemill.configuration import store_url
from tidemill.errors import BadSettings

SOURCES = ("option", "environment", "file", "project")
"""The sources of a setting, the strongest first."""

EXPECTED = {
    "option": (1, "option --threads"),
    "environment": ("2", "TIDEMILL_WORKER_THREADS"),
    "file": ("3", "TIDEMILL_WORKER_THREADS_FILE"),
    "project": (4, "[tool.tidemill.worker]"),
}


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIDEMILL_STORE", "TIDEMILL_APP", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'shop'\n")
    monkeypatch.chdir(tmp_path)


def shown(*words: str, env: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """The settings by name."""
    done = call("config", "show", "--json", *words, env=env)
    assert done.exit_code == 0, done.output
    return {setting["name"]: setting for setting in json.loads(done.stdout)}


@pytest.mark.parametrize(
    "given", [some for count in range(5) for some in combinations(SOURCES, count)], ids="-".join
)
def test_the_strongest_source_wins(given: tuple[str, ...], tmp_path: Path) -> None:
    env: dict[str, str] = {}
    words = ["worker"]
    if "option" in given:
        words += ["--threads", "1"]
    if "environment" in given:
        env["TIDEMILL_WORKER_THREADS"] = "2"
    if "file" in given:
        (tmp_path / "threads").write_text("3\n")
        env["TIDEMILL_WORKER_THREADS_FILE"] = str(tmp_path / "threads")
    if "project" in given:
        (tmp_path / "pyproject.toml").write_text("[tool.tidemill.worker]\nthreads = 4\n")
    setting = shown(*words, env=env)["threads"]
    value, source = EXPECTED[given[0]] if given else (None, "default")
    assert setting["value"] == value
    assert source in setting["source"]
    assert setting["variable"] == "TIDEMILL_WORKER_THREADS"


def test_the_store_comes_from_database_url_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_url() is None
    monkeypatch.setenv("DATABASE_URL", "mysql://db/shop")
    assert store_url() is None
    with App() as app:
        assert app.store_url() == "memory://"

    def check(url: str) -> None:
        found = store_url()
        assert found is not None
        assert found.value == url
        with App() as app:
            assert str(app.store_url()).endswith(url.rpartition("/")[2])

    monkeypatch.setenv("DATABASE_URL", "sqlite:///d.db")
    check("sqlite:///d.db")
    (tmp_path / "pyproject.toml").write_text("[tool.tidemill]\nstore = 'sqlite:///c.db'\n")
    check("sqlite:///c.db")
    (tmp_path / "url").write_text("sqlite:///b.db\n")
    monkeypatch.setenv("TIDEMILL_STORE_FILE", str(tmp_path / "url"))
    check("sqlite:///b.db")
    monkeypatch.setenv("TIDEMILL_STORE", "sqlite:///a.db")
    check("sqlite:///a.db")


def test_the_store_of_an_app_without_one_is_shown_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``tidemill worker`` has no option for it: it uses the store of the app."""
    setting = shown("worker")["store"]
    assert (setting["value"], setting["source"]) == ("memory://", "default")
    monkeypatch.setenv("DATABASE_URL", "postgresql://ann:pw-1234@db/shop")
    setting = shown("worker")["store"]
    assert (setting["value"], setting["source"]) == ("postgresql://ann:***@db/shop", "DATABASE_URL")
    (tmp_path / "pyproject.toml").write_text("[tool.tidemill]\nstore = 'sqlite:///c.db'\n")
    setting = shown("worker")["store"]
    assert setting["value"] == "sqlite:///c.db"
    assert setting["source"].endswith("[tool.tidemill]")
    done = call("config", "show", "jobs", "list", "--json")
    assert [each["name"] for each in json.loads(done.stdout)].count("store") == 1


def test_commands_take_the_settings(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.tidemill]\nstore = 'sqlite:///jobs.db'\n[tool.tidemill.jobs.list]\njson = true\nlimit = 3\n"
    )
    done = call("jobs", "list")
    assert (done.exit_code, json.loads(done.stdout)["items"]) == (0, [])
    assert (tmp_path / "jobs.db").exists()


def test_secrets_are_masked() -> None:
    env = {
        "TIDEMILL_STORE": "postgresql://ann:pw-1234@db/jobs",
        "TIDEMILL_SESSION_SECRET": "s-1234",
        "TIDEMILL_ENCRYPTION_KEYS": "k-1234",
        "TIDEMILL_KEY": "tm_1234",
    }
    found = shown("jobs", "list", env=env)
    assert found["store"]["value"] == "postgresql://ann:***@db/jobs"
    assert found["session-secret"]["value"] == found["encryption-keys"]["value"] == "***"
    assert "1234" not in call("config", "show", "jobs", "list", env=env).stdout
    assert "1234" not in json.dumps(found)


def test_wrong_settings_are_refused_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.tidemill.worker]\nthread = 4\n")
    done = call("worker", "shop:app")
    assert done.exit_code == 2
    assert "[tool.tidemill.worker] has an unknown option 'thread'" in done.stderr
    (tmp_path / "pyproject.toml").write_text("[tool.tidemill\n")
    assert "cannot be read" in call("jobs", "list").stderr
    (tmp_path / "pyproject.toml").write_text("")
    missing = call("jobs", "list", env={"TIDEMILL_STORE_FILE": str(tmp_path / "none")})
    assert "TIDEMILL_STORE_FILE names" in missing.stderr
    with pytest.raises(BadSettings, match="cannot be read"):
        _read_missing(tmp_path)


def _read_missing(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMILL_STORE_FILE", str(folder / "none"))
        App()
