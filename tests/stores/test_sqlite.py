"""What is true of the SQLite store alone: its settings, and everything that can be wrong with its file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.stores.sqlite_kit import (
    EVERY,
    as_nobody,
    claim,
    driver_of,
    one_sentence,
    open_file,
    pragma,
    put,
    writer_of,
)

from tidemill.clock import ManualClock
from tidemill.domain.states import JobState
from tidemill.errors import BadSettings, StoreCorrupt, StoreUnavailable, UsageError
from tidemill.stores.sql.sqlite.place import filesystem
from tidemill.stores.sql.store import SqlStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    store = open_file(path, synchronous="normal")
    yield store
    store.close()


# Settings and files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "number"), [("full", 2), ("normal", 1)])
def test_the_pragmas_are_in_force(path: Path, option: str, number: int) -> None:
    store = open_file(path, synchronous=option)
    writer = writer_of(store)
    wanted = {
        "journal_mode": "wal", "synchronous": number, "busy_timeout": 0, "cache_size": -65536, "temp_store": 2,
        "foreign_keys": 1, "wal_autocheckpoint": 4000, "mmap_size": 0,
    }  # fmt: skip
    assert {name: pragma(writer, name) for name in wanted} == wanted
    reader = driver_of(store)._session.reader()
    wanted = {"journal_mode": "wal", "busy_timeout": 0, "query_only": 1, "wal_autocheckpoint": 0}
    assert {name: pragma(reader, name) for name in wanted} == wanted
    store.close()


def test_what_is_accepted_is_durable_unless_asked_otherwise(path: Path) -> None:
    store = open_file(path)
    assert pragma(writer_of(store), "synchronous") == 2
    store.close()


@pytest.mark.parametrize(
    "options",
    [
        {"synchronous": "off"}, {"busy_timeout": "long"}, {"busy_timeout": "-1"}, {"busy_timeout": "nan"}, {"busy_timeout": "1e12"},
        {"shared": "perhaps"}, {"cache": "1"},
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_is_refused(path: Path, options: dict[str, str]) -> None:
    with pytest.raises(BadSettings, match=next(iter(options))):
        open_file(path, None, **options)


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_store_without_a_file_is_refused(path: str) -> None:
    with pytest.raises(BadSettings, match="memory://"):
        open_file(path)


def test_nothing_is_opened_before_the_first_verb(path: Path) -> None:
    store = open_file(path)
    assert store.schema().version == 0
    assert not path.exists()
    put(store)
    assert path.exists()
    store.close()


def test_a_relative_path_is_meant_from_where_the_store_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_file("jobs.db")
    monkeypatch.chdir("/")
    put(store)
    store.close()
    assert (tmp_path / "jobs.db").exists()


def test_a_closed_store_leaves_one_file(store: SqlStore, path: Path) -> None:
    put(store, 100)
    store.close()
    assert [file.name for file in path.parent.iterdir()] == ["jobs.db"]
    again = open_file(path)
    assert again.count(EVERY) == {JobState.PENDING: 100}
    again.close()


def test_a_store_is_not_closed_inside_its_own_transaction(store: SqlStore) -> None:
    with pytest.raises(UsageError), store.transaction():
        store.close()
    put(store)


# What can be wrong with a file -----------------------------------------------------------------------------------------


def test_a_directory_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="is a directory") as raised:
        put(open_file(tmp_path))
    assert "jobs.db" in one_sentence(raised.value)


def test_a_missing_directory_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="does not exist; create it: mkdir -p") as raised:
        put(open_file(tmp_path / "a" / "b" / "jobs.db"))
    assert str(tmp_path / "a" / "b") in one_sentence(raised.value)


def test_a_file_in_the_place_of_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(StoreUnavailable, match="is not a directory"):
        put(open_file(tmp_path / "a" / "jobs.db"))


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="there is no place here where no file can be made"
)
def test_a_place_where_no_file_can_be_made_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match=r"/proc/tidemill\.db") as raised:
        put(open_file("/proc/tidemill.db"))
    one_sentence(raised.value)


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory everybody may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def closed_file(path: Path) -> Path:
    store = open_file(path)
    put(store)
    store.close()
    return path


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a second user")
def test_a_file_without_the_right_to_write_is_named_with_the_remedy(public: Path) -> None:
    path = closed_file(public / "jobs.db")
    path.chmod(0o444)
    told = as_nobody(lambda: put(open_file(path)))
    assert told == (
        f"StoreUnavailable: {path} may not be read and written by this user; give it the rights: chmod u+rw {path}"
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a second user")
def test_a_directory_without_the_right_to_write_is_named(public: Path) -> None:
    path = closed_file(public / "jobs.db")
    path.chmod(0o666)
    public.chmod(0o555)
    told = as_nobody(lambda: put(open_file(path)))
    public.chmod(0o755)
    assert told.startswith(f"StoreUnavailable: the directory {public} may not be written by this user")


def test_a_text_file_is_no_database(path: Path) -> None:
    text = "this is not a database\n" * 100
    path.write_text(text)
    with pytest.raises(StoreCorrupt, match="is not a sound SQLite database") as raised:
        put(open_file(path))
    assert str(path) in one_sentence(raised.value)
    assert path.read_text() == text


def test_a_damaged_file_is_told(path: Path) -> None:
    store = open_file(path)
    put(store, 2000)
    store.close()
    data = bytearray(path.read_bytes())
    for place in range(200, len(data), 97):
        data[place] ^= 0xFF
    path.write_bytes(data)
    store = open_file(path)
    with pytest.raises(StoreCorrupt) as raised:
        claim(store)
    one_sentence(raised.value)
    store.close()


def test_missing_tables_are_told(store: SqlStore) -> None:
    writer_of(store).execute("drop table tidemill_leases")
    with pytest.raises(StoreCorrupt, match="tidemill_leases"):
        store.leases()


def test_a_full_disk_refuses_and_harms_nothing(store: SqlStore) -> None:
    kept = put(store, 10)
    writer = writer_of(store)
    pages = pragma(writer, "page_count")
    writer.execute(f"pragma max_page_count = {pages}")

    def fill() -> None:
        for _ in range(1000):
            put(store, 100)

    with pytest.raises(StoreUnavailable, match="is full; nothing was changed") as raised:
        fill()
    one_sentence(raised.value)
    before = store.count(EVERY)
    assert before[JobState.PENDING] % 100 == len(kept)
    writer.execute("pragma max_page_count = 1000000")
    assert pragma(writer, "integrity_check") == "ok"
    put(store)
    assert store.count(EVERY) == {JobState.PENDING: before[JobState.PENDING] + 1}


@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_a_file_that_is_gone_while_it_is_open_is_told(tmp_path: Path, path: Path, fate: str) -> None:
    clock = ManualClock(datetime.now(UTC))
    store = open_file(path, clock)
    put(store)
    path.rename(tmp_path / "aside.db")
    if fate == "replaced":
        other = open_file(path, clock)
        put(other)
        other.close()
    clock.advance(timedelta(seconds=2))
    with pytest.raises(StoreUnavailable, match=f"was {fate}") as raised:
        put(store)
    one_sentence(raised.value)
    with pytest.raises(StoreUnavailable, match=f"was {fate}"):
        store.check()
    store.close()


MOUNTS = """\
sysfs /sys sysfs rw 0 0
/dev/sda1 / ext4 rw 0 0
nas:/export /mnt/nas nfs4 rw 0 0
/dev/sdb1 /mnt/nas/local xfs rw 0 0
//box/share /mnt/my\\040share cifs rw 0 0
tmpfs /srv tmpfs rw 0 0
host: /srv fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/jobs.db", "ext4"), ("/mnt/nas/jobs.db", "nfs4"), ("/mnt/nas/local/jobs.db", "xfs"),
        ("/mnt/nas2/jobs.db", "ext4"), ("/mnt/my share/jobs.db", "cifs"), ("/srv/jobs.db", "fuse.sshfs"),
        ("/mnt/nas", "nfs4"),
    ],
)  # fmt: skip
def test_the_file_system_of_a_path_is_that_of_the_longest_mount(path: str, kind: str) -> None:
    assert filesystem(MOUNTS, path) == kind
    assert filesystem("", path) is None


def test_a_network_file_system_is_refused_unless_forced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = path.parent / "mounts"
    mounts.write_text(f"nas:/x {os.path.realpath(path.parent)} nfs4 rw 0 0\n")
    monkeypatch.setattr("tidemill.stores.sql.sqlite.place._MOUNTS", mounts)
    with pytest.raises(StoreUnavailable, match=r"network file system \(nfs4\).*\?force=1"):
        put(open_file(path))
    assert not path.exists()
    forced = open_file(path, force="1")
    put(forced)
    forced.close()
