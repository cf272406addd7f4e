"""The store of a command when the app, ``--store`` and ``TIDEMILL_STORE`` differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, call, make_shop

OTHER = "postgresql://shop:secret@db.example/shop"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    return make_shop(tmp_path)


def test_a_command_warns_if_tidemill_store_differs_from_the_store_of_the_app(shop: Shop) -> None:
    done = shop.run("jobs", "list", env={"TIDEMILL_STORE": OTHER})
    assert done.exit_code == 0
    assert done.stderr == (
        f"tidemill: TIDEMILL_STORE is postgresql://shop@db.example/shop and is not used: {shop.where} names its own "
        f"store, {shop.url}; write App() without a store to use the variable\n"
    )


@pytest.mark.parametrize("value", ["", "the same"])
def test_there_is_no_warning_without_a_difference(shop: Shop, value: str) -> None:
    done = shop.run("jobs", "list", env={"TIDEMILL_STORE": shop.url if value else ""})
    assert (done.exit_code, done.stderr) == (0, "")


def test_an_app_without_a_store_uses_tidemill_store(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"{shop.name}.py"
    file.write_text(file.read_text().replace(f"App({shop.url!r})", "App()"))
    other = f"sqlite:///{tmp_path}/other.db"
    monkeypatch.setenv("TIDEMILL_STORE", other)
    done = shop.run("jobs", "enqueue", "send", "to=ann", env={"TIDEMILL_STORE": other})
    assert (done.exit_code, done.stderr) == (0, "")
    assert (tmp_path / "other.db").exists()


def test_an_app_and_a_store_together_are_rejected(shop: Shop) -> None:
    done = shop.run("jobs", "list", "--store", f"{shop.url}x")
    assert done.exit_code == 2
    assert "give --app or --store, not both: an app names its own store" in done.stderr


def test_a_store_option_overrides_the_app_of_the_environment(shop: Shop, tmp_path: Path) -> None:
    shop.json("jobs", "enqueue", "send", "to=ann")
    found = [call("jobs", "list", "--json", "--store", url, env={"TIDEMILL_APP": shop.where})
             for url in (shop.url, f"sqlite:///{tmp_path}/empty.db")]  # fmt: skip
    assert [len(json.loads(done.stdout)["items"]) for done in found] == [1, 0]


@pytest.mark.long
def test_a_worker_warns_once_about_tidemill_store(shop: Shop, tmp_path: Path) -> None:
    given = {**os.environ, "TIDEMILL_STORE": OTHER, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-m", "tidemill", "worker", shop.where, "--processes", "2", "--json"]
    with subprocess.Popen(
        words, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        try:
            assert "started" in worker.stdout.readline()
        finally:
            worker.terminate()
        said = worker.communicate(timeout=60)[1]
    assert said.count("TIDEMILL_STORE is postgresql://shop@db.example/shop and is not used") == 1
    assert "secret" not in said
