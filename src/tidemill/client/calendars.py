"""Holidays of countries and exchanges, from the package ``holidays`` (the extra of that name).

What comes out is a plain set of dates, so that a calendar can be stored, compared and read where the package is not
installed. The rules of years ahead may change: make the set anew now and then. No other file imports the package.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from datetime import date
from typing import Any

from tidemill.domain.calendar import BusinessCalendar
from tidemill.errors import BadSchedule, BadSettings


def country_holidays(
    country: str, *, years: Iterable[int], subdivision: str | None = None
) -> frozenset[date]:
    """The public holidays of a country, or of a part of it, in these years: ``country_holidays("DE", subdivision="BY", …)``."""
    wanted = _years(years)
    try:
        found = _package().country_holidays(country, subdiv=subdivision, years=wanted)
    except NotImplementedError:
        place = f"{country!r}" + (f" with subdivision {subdivision!r}" if subdivision is not None else "")
        raise BadSchedule(
            f"holidays: nothing is known about {place}; give an ISO 3166 code such as 'DE' (and 'BY')",
            field="holidays",
            value=country,
        ) from None
    return frozenset(found)


def exchange_holidays(exchange: str, *, years: Iterable[int]) -> frozenset[date]:
    """The days in these years on which an exchange is closed: ``exchange_holidays("XNYS", …)``."""
    wanted = _years(years)
    try:
        found = _package().financial_holidays(exchange, years=wanted)
    except NotImplementedError:
        raise BadSchedule(
            f"holidays: nothing is known about the exchange {exchange!r}; give a code such as 'XNYS' or 'XECB'",
            field="holidays",
            value=exchange,
        ) from None
    return frozenset(found)


def country_calendar(
    country: str, *, years: Iterable[int], subdivision: str | None = None, weekend: str = "sat,sun"
) -> BusinessCalendar:
    """The business calendar of a country; where the weekend is not Saturday and Sunday, say so."""
    return BusinessCalendar(
        weekend=weekend,
        holidays=country_holidays(country, years=years, subdivision=subdivision),
        name=country if subdivision is None else f"{country}-{subdivision}",
    )


def _years(years: Iterable[int]) -> list[int]:
    wanted = sorted(set(years))
    if not wanted:
        raise BadSchedule("years: there is no year; give range(2026, 2036), for example", field="years")
    return wanted


def _package() -> Any:
    try:
        return importlib.import_module("holidays")
    except ImportError:
        raise BadSettings(
            "holidays of countries and exchanges need the extra 'holidays'; run: pip install 'tidemill[holidays]'"
        ) from None
