"""The wheel and the source archive: their contents, and a first job in a clean environment."""

from __future__ import annotations

import io
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.services import go_without
from tools import packages
from tools.environment import Environment
from tools.packages import Built
from tools.terminal import Stop

import tidemill

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both files, built from this checkout."""
    try:
        return packages.build(Environment(None), tmp_path_factory.mktemp("packages") / "dist")
    except Stop as stop:
        go_without("package-index", stop)


def test_the_files_have_the_right_names_metadata_and_contents(built: Built) -> None:
    assert packages.mistakes(built) == []


@pytest.mark.parametrize("lowest", [False, True], ids=["newest", "oldest"])
def test_a_first_job_runs_in_a_clean_environment(built: Built, tmp_path: Path, lowest: bool) -> None:
    try:
        installed = packages.try_out(Environment(None), built.wheel, tmp_path, lowest=lowest)
    except Stop as stop:
        if "first program" in stop.args[0] or "imported" in stop.args[0]:
            raise
        go_without("package-index", stop)
    assert (installed.result, installed.version) == (42, tidemill.__version__)
    assert packages.names_of(installed.packages) == {
        "annotated-types", "click", "cronsim", "markdown-it-py", "mdurl", "pydantic", "pydantic-core", "pygments",
        "rich", "typing-extensions", "typing-inspection", "tzdata",
    }  # fmt: skip


def changed(
    wheel: Path, folder: Path, *, drop: str = "", add: str = "", text: tuple[str, str] = ("", "")
) -> Path:
    """A copy of the wheel without one file, with one more, or with other metadata."""
    place = folder / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(place, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("METADATA"):
                content = content.replace(text[0].encode(), text[1].encode(), 1)
            if name != drop:
                new.writestr(name, content)
        if add:
            new.writestr(add, "")
    return place


def test_a_missing_file_a_foreign_file_and_wrong_metadata_are_found(built: Built, tmp_path: Path) -> None:
    short = changed(built.wheel, tmp_path, drop="tidemill/py.typed")
    assert packages.mistakes(built._replace(wheel=short)) == ["the wheel has no tidemill/py.typed"]
    long = changed(built.wheel, tmp_path, add="tests/conftest.py")
    assert packages.mistakes(built._replace(wheel=long)) == [
        "the wheel has tests/conftest.py, which the package does not have"
    ]
    other = changed(built.wheel, tmp_path, text=("Requires-Python: >=3.11", "Requires-Python: >=3.9"))
    assert packages.mistakes(built._replace(wheel=other)) == ["Requires-Python is '>=3.9', expected '>=3.11'"]


def test_an_incomplete_source_archive_is_found(built: Built, tmp_path: Path) -> None:
    place = tmp_path / built.sdist.name
    with tarfile.open(built.sdist) as old, tarfile.open(place, "w:gz") as new:
        for member in old.getmembers():
            if not member.name.endswith("/CHANGELOG.md"):
                content = old.extractfile(member)
                new.addfile(member, io.BytesIO(content.read()) if content else None)
    assert packages.mistakes(built._replace(sdist=place)) == ["the source archive has no CHANGELOG.md"]


def test_a_file_with_another_version_is_found(built: Built, tmp_path: Path) -> None:
    place = tmp_path / "tidemill-9.9-py3-none-any.whl"
    shutil.copyfile(built.wheel, place)
    (wrong,) = packages.mistakes(built._replace(wheel=place))
    assert wrong.startswith(f"the files are {place.name} and")


def test_the_wheel_is_smaller_than_three_megabytes(built: Built) -> None:
    assert built.wheel.stat().st_size < 3_000_000
