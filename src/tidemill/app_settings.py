"""The settings of an app, and the opening of its stores."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypedDict
from urllib.parse import parse_qsl, urlencode, urlsplit

from tidemill.client.placement import StoreFor, check_stores, is_archive_name
from tidemill.clock import Clock
from tidemill.configuration import default_store, value_of
from tidemill.delivery.settings import DeliverySettings, read_delivery
from tidemill.domain.bounds import check_name
from tidemill.domain.durations import Duration
from tidemill.domain.job import LEVELS
from tidemill.domain.limits import Rule
from tidemill.domain.masks import declare_secret_names
from tidemill.domain.notifications import NotificationRule
from tidemill.domain.payload import DEFAULT_ARGS_LIMIT, DEFAULT_MAX, DEFAULT_RESULT_LIMIT, PayloadLimits
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.retention_settings import Retention, read_retention
from tidemill.errors import BadSettings, StoreError
from tidemill.shards.settings import GivenShard, PlaceFor, ShardSettings, read_shards
from tidemill.stores.base import Store
from tidemill.stores.blob_files import check_place
from tidemill.stores.open import create_sqlite_tables, open_store
from tidemill.tasks.hooks import Lifespan
from tidemill.tasks.limit_rules import read_app_limits
from tidemill.tasks.limits import Limit, Rate
from tidemill.tasks.options import LargeResults, TaskKeywords, TaskOptions, read_options
from tidemill.tasks.task import Declared

RESULT_SETTINGS = ("result_limit", "max_result", "large_results")
"""Settings of an app that tasks take over when they are declared."""


class LogSettings(NamedTuple):
    """The log records about jobs, and the lowest level of records that are copied into their logs."""

    capture: int | None
    log_jobs: bool


class AppKeywords(TypedDict, total=False):
    """The settings of an app, for type checkers."""

    alerts: bool | Duration
    args_limit: int
    blobs: str | None
    capture_logs: str | None
    dashboard_url: str | None
    environment: str | None
    large_results: LargeResults
    lifespan: Lifespan | None
    limits: Mapping[str, int | Limit | Rate] | None
    log_jobs: bool
    max_args: int
    max_result: int
    result_limit: int
    migrate: bool
    name: str | None
    notifications: Sequence[NotificationRule]
    notify: Mapping[str, str]
    outgoing_networks: Sequence[str]
    owners: Mapping[str, str]
    reads: str | None
    place: PlaceFor | None
    release: str | None
    retention: Retention | Sequence[ArchivePolicy]
    secret_names: Sequence[str]
    shards: Mapping[str, GivenShard] | None
    smtp: str | None
    store_for: StoreFor | None
    task_names: Literal["function", "module"]


class ClientSettings(TypedDict):
    """The settings of a client, validated."""

    delivery: DeliverySettings
    logging: LogSettings

    limits: PayloadLimits
    rules: Mapping[str, Rule]
    retention: Retention
    shards: ShardSettings | None
    store_for: StoreFor | None


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse unknown settings."""
    unknown = sorted(set(settings) - set(AppKeywords.__annotations__))
    if unknown:
        raise BadSettings(
            f"unknown setting {unknown[0]!r}; expected one of {', '.join(AppKeywords.__annotations__)}",
            setting=unknown[0],
        )
    names = settings.get("task_names", "function")
    if names not in ("function", "module"):
        raise BadSettings(f"task_names is {names!r}; expected 'function' or 'module'", setting="task_names")


def given_stores(
    store: str | Store | None, stores: Mapping[str, str | Store] | None, settings: AppKeywords
) -> Mapping[str, str | Store] | None:
    """Return the stores of a call by name, with its shards; None if it names none. ``store`` is the one named ``default``."""
    chosen = _named_stores(store, stores)
    shards = _shards_of(settings)
    if shards is None:
        return chosen
    return shards.added_to({"default": default_store()} if chosen is None else chosen)


def _named_stores(
    store: str | Store | None, stores: Mapping[str, str | Store] | None
) -> Mapping[str, str | Store] | None:
    if store is None:
        return stores
    for name in ("default", "jobs"):
        if stores is not None and name in stores:
            raise BadSettings(f"store and stores[{name!r}] both give the default store; give one of them")
    return {"default": store, **(stores or {})}


def _shards_of(settings: AppKeywords) -> ShardSettings | None:
    return read_shards(settings.get("shards"), settings.get("place"))


def urls_of(stores: Mapping[str, str | Store]) -> dict[str, str | None]:
    """Return the URLs of stores by name; None for a store that was given as an object."""
    return {name: where if isinstance(where, str) else None for name, where in stores.items()}


def read_app_settings(
    settings: AppKeywords, stores: Mapping[str, object], places: Mapping[str, str]
) -> ClientSettings:
    """Validate the settings of an app with these stores and places of archive files."""
    store_for = settings.get("store_for")
    check_stores(stores, store_for)
    declare_secret_names(read_secret_names(settings))
    return {
        "delivery": read_delivery(settings),
        "logging": read_logging(settings),
        "limits": PayloadLimits(
            args=settings.get("args_limit", DEFAULT_ARGS_LIMIT),
            result=settings.get("result_limit", DEFAULT_RESULT_LIMIT),
            max_args=settings.get("max_args", DEFAULT_MAX),
        ),
        "rules": read_app_limits(settings.get("limits")),
        "retention": read_retention(settings.get("retention"), [*stores, *places]),
        "shards": _checked_shards(settings, store_for),
        "store_for": store_for,
    }


def _checked_shards(settings: AppKeywords, store_for: StoreFor | None) -> ShardSettings | None:
    shards = _shards_of(settings)
    if shards is not None and store_for is not None:
        raise BadSettings(
            "store_for and shards both choose the store of a tenant; give place= for the shards of new tenants",
            setting="store_for",
        )
    for name in shards.shards if shards is not None else ():
        if is_archive_name(name):
            raise BadSettings(
                f"{name!r} is the name of a store for archived jobs; give the shard another name",
                setting="shards",
            )
    return shards


def read_environment(settings: AppKeywords) -> str | None:
    """Return the environment of an app; by default that of ``TIDEMILL_ENVIRONMENT``."""
    environment = settings.get("environment", os.environ.get("TIDEMILL_ENVIRONMENT") or None)
    if environment is not None:
        check_name("environment", environment)
    return environment


def read_secret_names(settings: AppKeywords) -> Sequence[str]:
    """Return the names of secrets of an app and of ``TIDEMILL_SECRET_NAMES``."""
    given: object = settings.get("secret_names", ())
    if (
        isinstance(given, str)
        or not isinstance(given, Sequence)
        or not all(isinstance(n, str) for n in given)
    ):
        raise BadSettings(f"secret_names is {given!r}; give a list of names", setting="secret_names")
    configured = (value_of("TIDEMILL_SECRET_NAMES") or "").split(",")
    return [*given, *filter(None, map(str.strip, configured))]


def read_logging(settings: AppKeywords) -> LogSettings:
    """Validate what is logged about jobs and captured from them."""
    level: object = settings.get("capture_logs", "WARNING")
    log_jobs = settings.get("log_jobs", False)
    if not isinstance(log_jobs, bool):
        raise BadSettings(f"log_jobs is {log_jobs!r}; give True or False", setting="log_jobs")
    if level is None:
        return LogSettings(None, log_jobs)
    names = [name.upper() for name in LEVELS]
    if not isinstance(level, str) or level.upper() not in names:
        raise BadSettings(
            f"capture_logs is {level!r}; expected one of {', '.join(names)}, or None to capture nothing",
            setting="capture_logs",
        )
    return LogSettings(getattr(logging, level.upper()), log_jobs)


def read_result_options(settings: AppKeywords) -> TaskKeywords:
    """Return the options of results that tasks take over from their app."""
    options: TaskKeywords = {"result_limit": settings.get("result_limit", DEFAULT_RESULT_LIMIT)}
    if "max_result" in settings:
        options["max_result"] = settings["max_result"]
    if "large_results" in settings:
        options["large_results"] = settings["large_results"]
    read_options("app", options)
    return options


def with_result_options(declared: Declared, options: TaskKeywords) -> Declared:
    """Return a task of a group with the app's options of results, where the group has none of its own."""
    usual = TaskOptions(name=declared.name)
    changes: dict[str, Any] = {
        name: value
        for name, value in options.items()
        if getattr(declared.options, name) == getattr(usual, name) != value
    }
    return replace(declared, options=replace(declared.options, **changes)) if changes else declared


def read_blobs(settings: AppKeywords) -> str | None:
    """Return the URL of the place for large values; None for the tables of the stores."""
    blobs = settings.get("blobs")
    return None if blobs is None else check_place(blobs)


def open_standbys(settings: AppKeywords, given: Mapping[str, str | None], clock: Clock) -> dict[str, Store]:
    """Open the standbys that ``reads`` asks for. ``"standby"`` is that of each store, a URL that of the default one."""
    reads = settings.get("reads")
    if reads is None:
        return {}
    urls = {name: where for name, where in given.items() if where is not None}
    if reads != "standby":
        urls = dict.fromkeys(list(given)[:1], reads)
    if not all(url.startswith("postgres") for url in urls.values()) or not urls:
        raise BadSettings(
            f"reads is {reads!r}; expected 'standby' with stores at postgresql:// URLs, or the postgresql:// URL of a standby",
            setting="reads",
        )
    return {name: open_store(standby_url(url), clock=clock) for name, url in urls.items()}


def standby_url(url: str) -> str:
    """The URL of the standby among the hosts of this URL; that of the primary if no standby answers.

    >>> standby_url("postgresql://one,two/jobs?durability=standby")
    'postgresql://one,two/jobs?durability=standby&pool=5&notify=0&target_session_attrs=prefer-standby'
    """
    given = [(name, value) for name, value in parse_qsl(urlsplit(url).query) if name != "wake"]
    more = {"pool": "5", "notify": "0", "target_session_attrs": "prefer-standby"}
    query = urlencode({**dict(given), **more})
    return f"{url.partition('?')[0]}?{query}"


def open_stores(
    given: Mapping[str, str | Store], clock: Clock, *, migrate: bool, blobs: str | None
) -> dict[str, Store]:
    """Open all stores. If one cannot be opened, those opened before it are closed again."""
    with ExitStack() as undo:
        stores: dict[str, Store] = {}
        for name, where in given.items():
            if isinstance(where, Store):
                stores[name] = where
            else:
                stores[name] = open_store(where, clock=clock, migrate=migrate)
                undo.callback(stores[name].close)
                if migrate and where.startswith("sqlite"):
                    # A store that cannot be used must not prevent the use of the others.
                    with suppress(*((StoreError,) if len(given) > 1 else ())):
                        create_sqlite_tables(stores[name])
            stores[name].blob_url = blobs
        undo.pop_all()
    return stores
