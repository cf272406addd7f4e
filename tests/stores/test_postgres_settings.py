"""Tests of the URL of a PostgreSQL store."""

from __future__ import annotations

import traceback

import pytest
from psycopg.conninfo import conninfo_to_dict

from tidemill.errors import BadSettings
from tidemill.stores.open import open_store
from tidemill.stores.sql.postgres.settings import KEEPALIVES, read_settings

SECRET = "hunter2"


def test_own_options_are_parsed_and_others_are_passed_to_libpq() -> None:
    settings = read_settings(
        "postgresql://ann@db:5433/app?schema=jobs_2&pool=3&notify=off&pgbouncer=yes&statement_timeout=1.5"
        "&lock_timeout=0.25&connect_timeout=7&sslmode=disable"
    )
    assert (settings.schema, settings.pool, settings.notify, settings.pooled) == ("jobs_2", 3, False, True)
    assert (settings.statement_timeout, settings.lock_timeout, settings.connect_timeout) == (1.5, 0.25, 7)
    options = conninfo_to_dict(settings.conninfo)
    assert {"schema", "pool", "notify", "pgbouncer", "statement_timeout", "lock_timeout"}.isdisjoint(options)
    assert (
        options.items()
        >= {
            "host": "db",
            "port": "5433",
            "user": "ann",
            "dbname": "app",
            "connect_timeout": "7",
            "sslmode": "disable",
            "client_encoding": "UTF8",
            "target_session_attrs": "read-write",
            "application_name": "tidemill",
            **KEEPALIVES,
        }.items()
    )


def test_the_defaults_apply_without_options() -> None:
    settings = read_settings("postgresql://db/app")
    assert (settings.schema, settings.pool, settings.notify, settings.pooled) == ("tidemill", 10, True, None)
    assert (settings.statement_timeout, settings.lock_timeout, settings.connect_timeout) == (30.0, 2.0, 5)


def test_libpq_options_in_the_url_override_the_defaults() -> None:
    settings = read_settings("postgres://db/app?keepalives_idle=60&application_name=mine")
    options = conninfo_to_dict(settings.conninfo)
    assert (options["keepalives_idle"], options["application_name"]) == ("60", "mine")


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("postgresql:///app", {"dbname": "app"}),
        ("postgresql://", {}),
        ("postgresql:///app?host=/run/postgresql&user=ann", {"dbname": "app", "host": "/run/postgresql", "user": "ann"}),
        ("postgresql://ann@/app?host=/run/postgresql", {"host": "/run/postgresql", "user": "ann"}),
        ("postgresql://ann@%2Frun%2Fpostgresql/app", {"host": "/run/postgresql", "user": "ann"}),
        ("postgresql://one:5432,two:5433/app", {"host": "one,two", "port": "5432,5433"}),
        ("postgresql://[::1]:5432/app", {"host": "::1", "port": "5432"}),
        ("postgresql://ann:a%40b%2Fc%3Fd%23e@db/app", {"password": "a@b/c?d#e", "host": "db"}),
    ],
)  # fmt: skip
def test_every_usual_form_of_the_url_is_accepted(url: str, options: dict[str, str]) -> None:
    assert conninfo_to_dict(read_settings(url).conninfo).items() >= options.items()


@pytest.mark.parametrize(
    "query",
    [
        "schema=",
        "schema=Jobs",
        "schema=a-b",
        "schema=pg_jobs",
        'schema=x";drop',
        "schema=" + "x" * 50,
        "pool=0",
        "pool=-1",
        "pool=many",
        "pool=nan",
        "pool=inf",
        "pool=",
        "notify=maybe",
        "pgbouncer=2",
        "statement_timeout=0",
        "statement_timeout=-5",
        "statement_timeout=1e9",
        "lock_timeout=soon",
        "lock_timeout=nan",
        "connect_timeout=0",
    ],
)
def test_an_invalid_option_value_is_refused_by_name(query: str) -> None:
    with pytest.raises(BadSettings) as refused:
        open_store(f"postgresql://ann:{SECRET}@db/app?{query}")
    assert str(refused.value).startswith(f"?{query.partition('=')[0]}=")
    assert "give" in str(refused.value)
    assert SECRET not in str(refused.value)


def test_an_unknown_option_is_refused_by_name() -> None:
    with pytest.raises(BadSettings, match=r'postgresql://ann@db/app\?colour=red .* "colour"') as refused:
        open_store(f"postgresql://ann:{SECRET}@db/app?colour=red")
    assert SECRET not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@[bad",
        f"postgresql://ann:{SECRET}@db:port/app",
        f"postgresql://ann:{SECRET}@db:1:2/app",
        f"postgresql://ann:12/{SECRET}@db/app",
        f"postgresql://ann:ab/{SECRET}@db/app",
        f"postgresql://ann:12?{SECRET}@db/app",
        f"postgresql://ann:12#{SECRET}@db/app",
        f"postgresql://ann:{SECRET}#x@db/app",
        f"postgresql://ann:x@{SECRET}@db/app",
    ],
)
def test_a_malformed_url_error_shows_the_format_and_not_the_url(url: str) -> None:
    with pytest.raises(BadSettings, match="write postgresql://user:password@host:port/database") as refused:
        read_settings(url)
    assert "percent-encoded" in str(refused.value)
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_libpq_quotations_of_a_broken_url_are_not_repeated() -> None:
    with pytest.raises(BadSettings, match="invalid percent-encoded token") as refused:
        read_settings(f"postgresql://ann:{SECRET}%zz@db/app")
    assert SECRET not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann@db/app", "postgresql://ann@db/app"),
        (f"postgresql://ann:{SECRET}@db/app", "postgresql://ann@db/app"),
        (f"postgresql://ann:{SECRET}@db:1/app?schema=s", "postgresql://ann@db:1/app?schema=s"),
        (f"postgresql://ann@db/app?password={SECRET}", "postgresql://ann@db/app"),
        (f"postgresql://ann@db/app?schema=s&sslpassword={SECRET}", "postgresql://ann@db/app?schema=s"),
        (f"postgresql:///app?user=ann&password={SECRET}", "postgresql:///app?user=ann"),
        (f"postgresql://:{SECRET}@db/app", "postgresql://@db/app"),
        (f"postgres://a:b:{SECRET}@db/app", "postgres://a@db/app"),
    ],
)  # fmt: skip
def test_the_password_is_kept_and_never_shown(url: str, shown: str) -> None:
    settings = read_settings(url)
    assert settings.shown == shown
    assert SECRET not in repr(settings)
    store = open_store(url)
    assert store.url == shown
    assert SECRET not in repr(store) + str(store)
    store.close()
    assert (SECRET in settings.conninfo) == (SECRET in url)


def test_an_unknown_url_scheme_error_lists_the_schemes() -> None:
    for url in ("db.example/app", "mysql://db/app", ""):
        with pytest.raises(
            BadSettings, match=r"memory://, sqlite:///file\.db, postgresql://user@host/database"
        ):
            open_store(url)
