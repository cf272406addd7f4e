"""Options that every command has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from tidemill.stores.base import Store
from tidemill.stores.open import open_store

Command = TypeVar("Command", bound=Callable[..., Any])


def store_option(command: Command) -> Command:
    """``--store URL``, or the environment's ``TIDEMILL_STORE``."""
    return click.option(
        "--store",
        "url",
        metavar="URL",
        envvar="TIDEMILL_STORE",
        required=True,
        help="sqlite:///jobs.db or postgresql://user@host/database; also TIDEMILL_STORE.",
    )(command)


def json_option(command: Command) -> Command:
    """``--json``: for programs instead of people."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


@contextmanager
def opened(url: str) -> Iterator[Store]:
    """The store for the length of a command."""
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()


def show(facts: dict[str, object], text: str, *, as_json: bool) -> None:
    """Say it in the form that was asked for."""
    click.echo(json.dumps(facts) if as_json else text)
