"""Signed exports of the audit log."""

from __future__ import annotations

import json

import pytest

from tidemill import App
from tidemill.client.access import AUDIT_KEY
from tidemill.errors import BadSettings

KEY = "k" * 32


@pytest.fixture
def lines() -> list[str]:
    with App("memory://") as app:
        for name in ("one", "two", "three"):
            app.control.pause("queue", name)
        return list(app.audit.export(KEY))


def checked(lines: list[str], key: str = KEY) -> tuple[bool, str | None]:
    with App("memory://") as app:
        found = app.audit.check_export(lines, key)
    return found.ok, found.problem


def test_an_export_has_every_entry_and_a_signature(lines: list[str]) -> None:
    assert len(lines) == 4
    assert json.loads(lines[-1])["entries"] == 3
    assert checked(lines) == (True, None)


def test_a_changed_export_is_noticed(lines: list[str]) -> None:
    changed = [lines[0], lines[1].replace("two", "owt"), *lines[2:]]
    assert checked(changed) == (False, "entry 2 does not follow from the one before it")
    assert checked(lines[:2] + lines[3:]) == (False, "entries were removed from the end of the file")
    assert checked(lines[:1] + lines[2:])[0] is False
    assert checked(lines[:-1]) == (False, "the file has no signature; its end is missing")
    assert checked([*lines, lines[0]])[0] is False
    assert checked(["nonsense", *lines])[0] is False


def test_another_key_does_not_verify(lines: list[str]) -> None:
    assert checked(lines, "x" * 32) == (False, "the signature is not one of this key")


def test_a_forged_end_is_noticed(lines: list[str]) -> None:
    end = json.loads(lines[-1]) | {"entries": 2, "head": json.loads(lines[1])["hash"]}
    assert checked([*lines[:2], json.dumps(end)]) == (False, "the signature is not one of this key")


def test_a_short_or_missing_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(AUDIT_KEY, raising=False)
    with App("memory://") as app, pytest.raises(BadSettings, match=AUDIT_KEY):
        app.audit.export()
    with App("memory://") as app, pytest.raises(BadSettings, match="has 5 characters"):
        app.audit.export("short")
