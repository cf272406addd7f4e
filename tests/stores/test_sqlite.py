"""Tests of the settings of the SQLite store, and of problems with its file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
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

from tidemill.domain.states import JobState
from tidemill.errors import BadSettings, StoreCorrupt, StoreUnavailable, UsageError
from tidemill.stores.sql.sqlite.file_checks import filesystem
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


def test_commits_are_durable_by_default(path: Path) -> None:
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
def test_an_invalid_option_is_refused(path: Path, options: dict[str, str]) -> None:
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


def test_a_relative_path_is_resolved_when_the_store_is_opened(
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


# Problems with a file --------------------------------------------------------------------------------------------------


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="is a directory") as raised:
        put(open_file(tmp_path))
    assert "jobs.db" in one_sentence(raised.value)


def test_a_missing_directory_error_includes_the_mkdir_command(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="does not exist; create it: mkdir -p") as raised:
        put(open_file(tmp_path / "a" / "b" / "jobs.db"))
    assert str(tmp_path / "a" / "b") in one_sentence(raised.value)


def test_a_file_instead_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(StoreUnavailable, match="is not a directory"):
        put(open_file(tmp_path / "a" / "jobs.db"))


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs a directory in which no file can be created"
)
def test_a_directory_in_which_no_file_can_be_created_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match=r"/proc/tidemill\.db") as raised:
        put(open_file("/proc/tidemill.db"))
    one_sentence(raised.value)


@pytest.fixture
def public() -> Iterator[Path]:
    """Create a directory that all users may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def closed_file(path: Path) -> Path:
    store = open_file(path)
    put(store)
    store.close()
    return path


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a second user")
def test_a_file_without_write_permission_error_includes_the_chmod_command(public: Path) -> None:
    path = closed_file(public / "jobs.db")
    path.chmod(0o444)
    message = as_nobody(lambda: put(open_file(path)))
    assert message == (
        f"StoreUnavailable: {path} is not readable and writable for this user; change its permissions: chmod u+rw {path}"
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a second user")
def test_a_directory_without_write_permission_is_named(public: Path) -> None:
    path = closed_file(public / "jobs.db")
    path.chmod(0o666)
    public.chmod(0o555)
    message = as_nobody(lambda: put(open_file(path)))
    public.chmod(0o755)
    assert message.startswith(f"StoreUnavailable: the directory {public} is not writable for this user")


def test_a_text_file_is_refused(path: Path) -> None:
    text = "this is not a database\n" * 100
    path.write_text(text)
    with pytest.raises(StoreCorrupt, match="is not a valid SQLite database") as raised:
        put(open_file(path))
    assert str(path) in one_sentence(raised.value)
    assert path.read_text() == text


def test_a_damaged_file_is_reported(path: Path) -> None:
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


def test_missing_tables_are_reported(store: SqlStore) -> None:
    writer_of(store).execute("drop table tidemill_leases")
    with pytest.raises(StoreCorrupt, match="tidemill_leases"):
        store.leases()


def test_a_full_disk_is_an_error_and_changes_nothing(store: SqlStore) -> None:
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
def test_every_call_fails_after_the_file_is_removed_and_creates_no_file(
    tmp_path: Path, path: Path, fate: str
) -> None:
    store = open_file(path)
    put(store)
    path.rename(tmp_path / "aside.db")
    if fate == "replaced":
        with closing(open_file(path)) as other:
            put(other, 2)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=f"was {fate}") as raised:
            put(store)
        one_sentence(raised.value)
        with pytest.raises(StoreUnavailable, match=f"was {fate}"):
            store.count(EVERY)
        with pytest.raises(StoreUnavailable, match=f"was {fate}"):
            store.check()
    store.close()
    if fate == "deleted":
        assert not path.exists()
        return
    with closing(open_file(path)) as new:
        assert new.count(EVERY) == {JobState.PENDING: 2}
        put(new)
        assert new.count(EVERY) == {JobState.PENDING: 3}


def test_a_store_recovers_when_its_file_is_moved_back(tmp_path: Path, path: Path) -> None:
    with closing(open_file(path)) as store:
        put(store)
        path.rename(tmp_path / "aside.db")
        with pytest.raises(StoreUnavailable, match="moved away"):
            put(store)
        (tmp_path / "aside.db").rename(path)
        put(store)
        assert store.count(EVERY) == {JobState.PENDING: 2}


def test_a_commit_into_a_replaced_file_is_not_reported_as_stored(tmp_path: Path, path: Path) -> None:
    with closing(open_file(path)) as store:
        put(store)
        with closing(open_file(tmp_path / "new.db")) as other:
            put(other)

        def put_and_replace() -> None:
            with store.transaction():
                put(store)
                (tmp_path / "new.db").replace(path)

        with pytest.raises(StoreUnavailable, match="may be in the old file only"):
            put_and_replace()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_store_reopened_after_a_fork_refuses_a_replaced_file(tmp_path: Path, path: Path) -> None:
    with closing(open_file(path)) as store:
        put(store)
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        path.rename(tmp_path / "aside.db")
        with closing(open_file(path)) as other:
            put(other)
        with pytest.raises(StoreUnavailable, match="was replaced"):
            put(store)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_new_files_are_private_to_their_owner_with_any_umask(path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with closing(open_file(path)) as store:
            put(store)
            hold = store.hold("duties")
            assert hold is not None
            modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.glob(f"{path.name}*")}
            hold.release()
    finally:
        os.umask(before)
    assert len(modes) == 4
    assert set(modes.values()) == {0o600}


def test_an_existing_file_keeps_its_permissions(path: Path) -> None:
    path.touch()
    path.chmod(0o660)
    with closing(open_file(path)) as store:
        put(store)
        assert path.stat().st_mode & 0o777 == 0o660
        assert Path(f"{path}-wal").stat().st_mode & 0o777 == 0o660


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


def test_a_network_file_system_is_refused_without_force(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = path.parent / "mounts"
    mounts.write_text(f"nas:/x {os.path.realpath(path.parent)} nfs4 rw 0 0\n")
    monkeypatch.setattr("tidemill.stores.sql.sqlite.file_checks._MOUNTS", mounts)
    with pytest.raises(StoreUnavailable, match=r"network file system \(nfs4\).*\?force=1"):
        put(open_file(path))
    assert not path.exists()
    forced = open_file(path, force="1")
    put(forced)
    forced.close()
