"""Tests of ``app.keys``: API keys, their roles and their expiry."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.client.schedules_kit import on_each_store

from tidemill import App, ManualClock
from tidemill.client import access as module
from tidemill.client.access import FRESH, Keys, acting
from tidemill.client.core import client_of
from tidemill.domain.access import Identity, Role
from tidemill.domain.access import identify as identify_key
from tidemill.errors import BadSettings, KeyNotFound

HOUR = timedelta(hours=1)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An app on each store with a manual clock."""
    with on_each_store(request, tmp_path) as app:
        yield app


def advance(app: App, seconds: float) -> None:
    assert isinstance(app.clock, ManualClock)
    app.clock.advance(timedelta(seconds=seconds))


def neighbour(app: App) -> Keys:
    """The keys as another process sees them: the same store, with a separate cache."""
    return Keys(client_of(app))


def count_reads(app: App, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record every read of keys from the store."""
    asked: list[Any] = []
    real = app.store.keys

    def keys(ids: Collection[str] | None = None) -> Any:
        asked.append(ids)
        return real(ids)

    monkeypatch.setattr(app.store, "keys", keys)
    return asked


def test_a_new_key_identifies_with_its_role_and_tenant(app: App) -> None:
    with acting("ann"):
        made = app.keys.create("ci", role="operator", tenant="acme", expires=HOUR)
    assert app.keys.identify(made.secret) == Identity(f"key:{made.key.id} (ci)", Role.OPERATOR, "acme")
    assert (made.key.created_by, made.key.created_at) == ("ann", app.clock.now())
    assert made.key.expires_at == app.clock.now() + HOUR
    assert app.keys.list() == [made.key]
    plain = app.keys.create("reader")
    assert app.keys.identify(plain.secret) == Identity(f"key:{plain.key.id} (reader)", Role.VIEWER, "*")


def test_the_store_holds_no_secret(app: App) -> None:
    made = app.keys.create("ci")
    secret = made.secret.partition(".")[2]
    assert secret not in repr(app.store.keys())
    assert secret not in str([key.hash for key in app.keys.list()])
    assert secret not in repr(app.store.audit(tenant="*"))


@pytest.mark.parametrize("wrong", ["", "tm_", "Bearer x", "tm_00000000." + "A" * 43, "tm_é.x", "\udcff"])
def test_an_invalid_key_is_rejected(app: App, wrong: str) -> None:
    made = app.keys.create("ci")
    assert app.keys.identify(wrong) is None
    assert app.keys.identify(made.secret[:-1]) is None
    assert app.keys.identify(made.secret + "A") is None


def test_a_revoked_key_is_rejected_at_once_here_and_within_5_s_elsewhere(app: App) -> None:
    made, other = app.keys.create("ci"), neighbour(app)
    assert app.keys.identify(made.secret) is not None
    assert other.identify(made.secret) is not None
    revoked = app.keys.revoke(made.key.id)
    assert revoked.revoked_at == app.clock.now()
    assert app.keys.identify(made.secret) is None
    advance(app, FRESH)
    assert other.identify(made.secret) is None
    advance(app, 1)
    assert app.keys.revoke(made.key.id) == revoked


def test_an_expired_key_is_rejected_even_while_it_is_cached(app: App) -> None:
    made = app.keys.create("ci", expires=timedelta(seconds=2))
    advance(app, 1)
    assert app.keys.identify(made.secret) is not None
    advance(app, 1)
    assert app.keys.identify(made.secret) is None


def test_a_key_is_read_from_the_store_once_in_five_seconds(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    made, face = app.keys.create("ci"), neighbour(app)
    asked = count_reads(app, monkeypatch)
    for _ in range(20):
        assert face.identify(made.secret) is not None
        assert face.identify("tm_00000000." + "A" * 43) is None
    assert sorted(map(str, asked)) == sorted([str([made.key.id]), str(["00000000"])])
    advance(app, FRESH)
    assert face.identify(made.secret) is not None
    assert len(asked) == 3


def test_a_wrong_secret_and_an_unknown_id_take_the_same_path(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, face = app.keys.create("ci"), neighbour(app)
    asked = count_reads(app, monkeypatch)
    compared: list[Any] = []
    real = identify_key

    def identify(key: Any, text: str, now: datetime) -> Identity | None:
        compared.append(key)
        return real(key, text, now)

    monkeypatch.setattr(module, "identify", identify)
    assert face.identify(f"tm_{made.key.id}." + "A" * 43) is None
    assert face.identify("tm_00000000." + "A" * 43) is None
    assert [key is None for key in compared] == [False, True]
    assert len(asked) == 2


def test_many_unknown_ids_neither_grow_the_cache_nor_evict_known_keys(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CACHE_SIZE", 10)
    made, face = app.keys.create("ci"), neighbour(app)
    assert face.identify(made.secret) is not None
    for number in range(50):
        assert face.identify(f"tm_{number:08x}." + "A" * 43) is None
    assert len(face._unknown) == 10
    asked = count_reads(app, monkeypatch)
    assert face.identify(made.secret) is not None
    assert asked == []
    for each in range(20):
        assert face.identify(app.keys.create(f"k{each}").secret) is not None
    assert len(face._keys_by_id) == 10


def test_whether_a_live_key_exists_is_known_within_five_seconds(app: App) -> None:
    other = neighbour(app)
    assert not app.keys.any()
    assert not other.any()
    made = app.keys.create("ci", expires=HOUR)
    assert app.keys.any()
    advance(app, FRESH)
    assert other.any()
    app.keys.revoke(made.key.id)
    assert not app.keys.any()
    app.keys.create("short", expires=timedelta(seconds=60))
    assert app.keys.any()
    advance(app, 60)
    assert not app.keys.any()


def test_a_key_id_that_is_taken_is_drawn_again(app: App) -> None:
    throws = [b"\1" * 4, b"a" * 32, b"\1" * 4, b"b" * 32, b"\2" * 4, b"c" * 32]
    face = Keys(client_of(app), dice=lambda _: throws.pop(0))
    first, second = face.create("one"), face.create("two")
    assert (first.key.id, second.key.id) == ("01010101", "02020202")
    assert face.identify(second.secret) is not None
    assert len(app.audit.list(tenant="*", action="key.created")) == 2


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"name": ""}, "key's name"),
        ({"role": "root"}, "there is no role 'root'; there are viewer"),
        ({"tenant": ""}, "tenant's name"),
        ({"expires": timedelta(0)}, "which has passed"),
        ({"expires": datetime(2020, 1, 1, tzinfo=UTC)}, "which has passed"),
        ({"expires": datetime(2030, 1, 1)}, "aware datetime"),  # noqa: DTZ001
        ({"expires": "soon"}, "aware datetime"),
        ({"expires": timedelta.max}, "a hundred years"),
        ({"expires": datetime(9500, 1, 1, tzinfo=UTC)}, "between 1900 and 9000"),
    ],
)
def test_an_invalid_key_is_refused_and_nothing_is_written(said: dict[str, Any], words: str) -> None:
    with App("memory://") as app:
        with pytest.raises(BadSettings, match=words):
            app.keys.create(**{"name": "ci", **said})
        assert app.keys.list() == []
        assert app.audit.list(tenant="*") == []


def test_an_unknown_key_cannot_be_revoked(app: App) -> None:
    with pytest.raises(KeyNotFound, match="there is no key 'nope'"):
        app.keys.revoke("nope")
    assert app.audit.list(tenant="*") == []


def test_creating_and_revoking_a_key_are_audited_once_each(app: App) -> None:
    with acting("ann"):
        made = app.keys.create("ci", role=Role.ADMIN, tenant="acme")
        app.keys.revoke(made.key.id)
        app.keys.revoke(made.key.id)
    found = [record.entry for record in app.audit.list(tenant="acme")]
    assert [(entry.who, entry.action, entry.subject) for entry in found] == [
        ("ann", "key.created", f"key:{made.key.id}"),
        ("ann", "key.revoked", f"key:{made.key.id}"),
    ]
    assert found[0].after == {"name": "ci", "role": "admin", "tenant": "acme", "expires_at": None}


def test_every_method_has_an_async_variant(app: App) -> None:
    for name, verb in inspect.getmembers(Keys, inspect.isfunction):
        if not name.startswith("_") and not inspect.iscoroutinefunction(verb):
            twin = getattr(Keys, f"a{name}")
            assert inspect.iscoroutinefunction(twin), name
            assert inspect.signature(twin) == inspect.signature(verb), name

    async def story() -> None:
        with acting("ann"):
            made = await app.keys.acreate("ci", role="admin")
        assert made.key.created_by == "ann"
        assert await app.keys.aany()
        assert await app.keys.alist() == [made.key]
        assert await app.keys.aget(made.key.id) == made.key
        assert (await app.keys.aidentify(made.secret)) is not None
        await app.keys.arevoke(made.key.id)
        assert (await app.keys.aidentify(made.secret)) is None

    asyncio.run(story())
