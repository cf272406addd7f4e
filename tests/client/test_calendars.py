"""Tests of the holiday calendars from the ``holidays`` extra."""

from __future__ import annotations

import sys
from datetime import date

import pytest

from tidemill import country_calendar, country_holidays, exchange_holidays
from tidemill.domain.calendar import BusinessCalendar
from tidemill.errors import BadSchedule, BadSettings


def test_without_the_extra_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holidays", None)
    with pytest.raises(BadSettings, match=r"pip install 'tidemill\[holidays\]'"):
        country_holidays("DE", years=[2026])
    with pytest.raises(BadSettings, match=r"pip install 'tidemill\[holidays\]'"):
        exchange_holidays("XNYS", years=[2026])


def test_a_calendar_without_years_is_refused() -> None:
    with pytest.raises(BadSchedule, match="years"):
        country_holidays("DE", years=[])


def test_holidays_of_countries_and_exchanges_are_plain_dates() -> None:
    bavaria = country_calendar("DE", subdivision="BY", years=range(2026, 2028))
    assert bavaria.name == "DE-BY"
    assert not bavaria.is_business_day(date(2026, 1, 6))
    assert country_calendar("DE", years=[2026]).is_business_day(date(2026, 1, 6))
    assert BusinessCalendar.from_data(bavaria.to_data()) == bavaria
    assert date(2026, 12, 25) in exchange_holidays("XNYS", years=[2026])


def test_an_unknown_country_or_exchange_is_refused() -> None:
    with pytest.raises(BadSchedule, match="'ZZ'"):
        country_holidays("ZZ", years=[2026])
    with pytest.raises(BadSchedule, match="'QQ'"):
        country_holidays("DE", subdivision="QQ", years=[2026])
    with pytest.raises(BadSchedule, match="'NOWHERE'"):
        exchange_holidays("NOWHERE", years=[2026])
