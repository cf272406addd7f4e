"""Screenshots: the twelve most telling ones, or every page, light and dark, on a desktop and on a phone.

    python -m tests.interfaces.dashboard.shoot [--out docs/screenshots] [--all | --only overview,job]

They show the showroom, which has a fixed clock, so a screenshot changes only when its page does.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from playwright.sync_api import Browser
from tests.interfaces.dashboard.browser import Served, SiteWindows, Size, Theme, chromium, served
from tests.interfaces.dashboard.palette import smaller
from tests.interfaces.dashboard.showroom import NOW, Showroom, beginning
from tests.interfaces.dashboard.tour import Things, addresses, showroom_things

ROOT = Path(__file__).resolve().parents[3]
LARGEST = 150_000
"""Maximum bytes of a screenshot."""

PAGES = {
    "sign-in": "/sign-in",
    "overview": "/",
    "jobs": "/jobs",
    "job": "/jobs/{id}",
    "errors": "/errors",
    "schedules": "/schedules",
    "schedule": "/schedules/{id}",
    "edit-schedule": "/schedules/{id}/edit",
    "flows": "/flows",
    "flow": "/flows/{id}",
    "alerts": "/alerts",
    "archive": "/archive",
    "keys": "/settings/keys",
    "new-schedule": "/schedules/new",
    "tasks": "/tasks",
    "task": "/tasks/{name}",
    "queues": "/queues",
    "workers": "/workers",
    "tenants": "/tenants",
    "audit": "/audit",
    "settings": "/settings",
}

Picture = tuple[str, Theme, Size]

TELLING: tuple[Picture, ...] = (
    ("overview", "light", "desktop"),
    ("overview", "dark", "phone"),
    ("jobs", "light", "desktop"),
    ("job", "dark", "desktop"),
    ("job", "light", "phone"),
    ("errors", "dark", "desktop"),
    ("flow", "light", "desktop"),
    ("schedules", "light", "desktop"),
    ("edit-schedule", "dark", "desktop"),
    ("queues", "light", "desktop"),
    ("task", "dark", "desktop"),
    ("workers", "light", "desktop"),
)
"""The pictures that the repository has."""


def shoot(site: Served, browser: Browser, out: Path, pictures: Sequence[Picture]) -> list[Path]:
    """Take these screenshots and return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    # A schedule in a zone whose clocks change, with an argument.
    schedule = site.app.schedules.get("night-reminder", tenant="acme")
    things = {**showroom_things(site.app), "schedules": [str(schedule.id)]}
    made: list[Path] = []
    for theme in get_args(Theme):
        for size in get_args(Size):
            names = [name for name, *rest in pictures if rest == [theme, size]]
            made += _round(SiteWindows(browser, site), things, out, names, theme, size)
    return made


def _round(
    site_windows: SiteWindows, things: Things, out: Path, names: list[str], theme: Theme, size: Size
) -> list[Path]:
    made = []
    try:
        for name in names:
            person = site_windows.person(None if name == "sign-in" else "super_admin", theme=theme, size=size)
            person.clock.set_fixed_time(NOW)
            page = site_windows.window(person).open(addresses(PAGES[name], things)[0])
            path = out / f"{name}-{theme}-{size}.png"
            path.write_bytes(smaller(page.screenshot()))
            if path.stat().st_size > LARGEST:
                raise SystemExit(f"{path.name} has {path.stat().st_size:,} bytes; {LARGEST:,} are the most")
            made.append(path)
        if troubles := site_windows.troubles():
            raise SystemExit("\n".join(troubles))
    finally:
        site_windows.close()
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "screenshots")
    parser.add_argument("--only", help="names of pages, with commas between them")
    parser.add_argument("--all", action="store_true", help="every page in every theme and size")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PAGES)
    every = [(name, theme, size) for name in names for theme in get_args(Theme) for size in get_args(Size)]
    pictures = every if options.only or options.all else TELLING
    if unknown := [name for name in names if name not in PAGES]:
        parser.error(f"there is no page {unknown[0]!r}; there are {', '.join(PAGES)}")
    rooms: list[Showroom] = []
    with served(tasks=lambda app: rooms.append(Showroom(app)), clock=beginning()) as site:
        rooms[0].fill()
        with chromium() as browser:
            made = shoot(site, browser, options.out, pictures)
    print(f"{len(made)} pictures, {sum(path.stat().st_size for path in made):,} bytes, in {options.out}")


if __name__ == "__main__":
    main()
