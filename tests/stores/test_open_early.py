"""Tests of drivers that are imported before their store is opened."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidemill.stores.open import OpenWatch, load_driver, open_store

DRIVERS = {
    "sqlite": "tidemill.stores.sql.sqlite.driver",
    "postgresql": "tidemill.stores.sql.postgres.driver",
    "postgres": "tidemill.stores.sql.postgres.driver",
}


@pytest.mark.parametrize("scheme", DRIVERS)
def test_a_driver_is_imported_ahead_and_alone(scheme: str) -> None:
    code = f"import sys; from tidemill.stores.open import load_driver; load_driver({scheme!r}); print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert {name for name in DRIVERS.values() if name in loaded} == {DRIVERS[scheme]}


def test_an_unknown_scheme_loads_nothing() -> None:
    load_driver("mysql")
    load_driver("memory")


def test_a_runner_announces_the_scheme_of_a_store_before_it_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(OpenWatch, "tell", told.append)
    open_store("memory://").close()
    open_store("postgresql+psycopg://ann@localhost/jobs").close()
    assert told == ["memory", "postgresql"]
