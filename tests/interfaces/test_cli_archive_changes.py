"""Tests of ``tidemill archive restore | export | erase | rebuild`` and of ``--tier``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.grounds import new_file
from tests.interfaces.cli_kit import call as run_command

from tidemill import App, ArchivePolicy


@pytest.fixture
def archived(tmp_path: Path) -> tuple[str, list[str]]:
    """A store with one live job and two in files, and the ids."""
    url = new_file(tmp_path)
    with App(stores={"default": url, "archive": f"file://{tmp_path}/archive"}) as app:

        @app.task(name="note")
        def note(text: str) -> str:
            return text

        ids = []
        for number in range(3):
            job = note.using(reference=("user", str(number))).enqueue(text="x")
            app.testing().drain()
            ids.append(str(job.id))
            if number < 2:
                app.archive.run([ArchivePolicy("now", max_age=0, tier="cold")])
        return url, ids


def call(url: str, *words: str, code: int = 0) -> Any:
    done = run_command(*words, "--store", url, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if done.stdout.startswith("{") else done.output


def test_the_tiers_of_a_list_are_chosen(archived: tuple[str, list[str]]) -> None:
    url, ids = archived
    assert [job["id"] for job in call(url, "jobs", "list")["items"]] == ids[2:]
    everything = call(url, "jobs", "list", "--tier", "all")["items"]
    assert [(job["id"], job["tier"]) for job in everything] == [
        (ids[2], None),
        (ids[1], "cold"),
        (ids[0], "cold"),
    ]
    assert call(url, "jobs", "show", ids[0])["tier"] == "cold"
    assert [job["id"] for job in call(url, "archive", "search", "--reference", "user:1")["items"]] == [ids[1]]


def test_jobs_are_restored(archived: tuple[str, list[str]]) -> None:
    url, ids = archived
    missing = "01890a5d-ac96-774b-bcce-b302099a8057"
    done = call(url, "archive", "restore", ids[0], ids[2], missing, code=1)
    assert (done["restored"], done["live"], done["missing"]) == (ids[:1], ids[2:], [missing])
    assert len(call(url, "jobs", "list")["items"]) == 2


def test_jobs_are_exported(archived: tuple[str, list[str]], tmp_path: Path) -> None:
    url, ids = archived
    target = tmp_path / "jobs.jsonl"
    assert call(url, "archive", "export", "--output", str(target))["jobs"] == 2
    assert [json.loads(line)["id"] for line in target.read_text().splitlines()] == ids[:2]
    call(url, "archive", "export", "--format", "parquet", code=2)


def test_jobs_are_erased_after_a_confirmation(archived: tuple[str, list[str]]) -> None:
    url, ids = archived
    planned = call(url, "archive", "erase", "--reference", "user:0", "--dry-run")
    assert planned == {"jobs": 1, "tiers": {"cold": 1}, "dry_run": True}
    assert "pass --yes" in call(url, "archive", "erase", "--reference", "user:0", code=2)
    assert call(url, "archive", "erase", "--reference", "user:0", "--id", ids[0], "--yes")["jobs"] == 1
    assert [job["id"] for job in call(url, "jobs", "list", "--tier", "all")["items"]] == [ids[2], ids[1]]
    assert "specify the jobs" in call(url, "archive", "erase", "--yes", code=2)


def test_the_catalogue_is_rebuilt(archived: tuple[str, list[str]], tmp_path: Path) -> None:
    url, _ = archived
    assert call(url, "archive", "rebuild")["places"] == {f"file://{tmp_path}/archive": 2}
    assert call(url, "archive", "rebuild", f"file://{tmp_path}/archive")["places"] != {}
