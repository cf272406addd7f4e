"""Holidays of countries and exchanges, from the package ``holidays`` (an extra).

The result is a plain set of dates, so that a calendar can be stored, compared and read without the package. Holiday
rules for future years may change, so regenerate the set from time to time. No other module imports the package.
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
    """Return the public holidays of a country, or of a part of it: ``country_holidays("DE", subdivision="BY", …)``."""
    wanted = _years(years)
    try:
        found = _package().country_holidays(country, subdiv=subdivision, years=wanted)
    except NotImplementedError:
        place = f"{country!r}" + (f" with subdivision {subdivision!r}" if subdivision is not None else "")
        raise BadSchedule(
            f"holidays: {place} is unknown; give an ISO 3166 code such as 'DE' (and 'BY')",
            field="holidays",
            value=country,
        ) from None
    return frozenset(found)


def exchange_holidays(exchange: str, *, years: Iterable[int]) -> frozenset[date]:
    """Return the days in these years on which an exchange is closed: ``exchange_holidays("XNYS", …)``."""
    wanted = _years(years)
    try:
        found = _package().financial_holidays(exchange, years=wanted)
    except NotImplementedError:
        raise BadSchedule(
            f"holidays: unknown exchange {exchange!r}; give a code such as 'XNYS' or 'XECB'",
            field="holidays",
            value=exchange,
        ) from None
    return frozenset(found)


def country_calendar(
    country: str, *, years: Iterable[int], subdivision: str | None = None, weekend: str = "sat,sun"
) -> BusinessCalendar:
    """Return the business calendar of a country; ``weekend`` defaults to Saturday and Sunday."""
    return BusinessCalendar(
        weekend=weekend,
        holidays=country_holidays(country, years=years, subdivision=subdivision),
        name=country if subdivision is None else f"{country}-{subdivision}",
    )


def _years(years: Iterable[int]) -> list[int]:
    wanted = sorted(set(years))
    if not wanted:
        raise BadSchedule("years: it is empty; give range(2026, 2036), for example", field="years")
    return wanted


def _package() -> Any:
    try:
        return importlib.import_module("holidays")
    except ImportError:
        raise BadSettings(
            "holidays of countries and exchanges need the extra 'holidays'; run: pip install 'tidemill[holidays]'"
        ) from None
