"""A real browser on a served site, with windows whose problems fail the test.

A problem is a script error, a violation of the content security policy, a dialog, or a response with status 500 or
above.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Response,
    sync_playwright,
)
from tests.interfaces.dashboard.programs import find_chromium
from tests.interfaces.rest.kit import declare
from tests.interfaces.rest.served import Place, place

from tidemill import App, BoundTask, Job
from tidemill.client.access import acting
from tidemill.clock import Clock
from tidemill.dashboard import create_site
from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS

R = TypeVar("R")

Size = Literal["desktop", "phone"]
Theme = Literal["light", "dark"]

SIZES: dict[Size, tuple[int, int]] = {"desktop": (1280, 800), "phone": (390, 844)}
PATIENCE = 30_000
"""Maximum milliseconds to wait for anything to appear; tests never wait the full time."""

_WATCH = """
window.hits = [];
addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""
_QUIET = re.compile(r"Failed to load resource: the server responded with a status of 4(?:01|03|04|22|29)")
"""Console messages about status codes that users may legitimately get."""


def apart(act: Callable[[], R]) -> R:
    """Run a function on another thread, because Playwright's event loop runs on this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result()


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium, headless."""
    program = find_chromium()
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=program,
            args=["--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"],
        )
        try:
            yield browser
        finally:
            browser.close()


class Served:
    """A site on a local port."""

    def __init__(self, there: Place) -> None:
        self.app, self.url = there.app, there.serving.url
        self._secrets: dict[tuple[str, str], str] = {}

    def key(self, role: str = "super_admin", tenant: str = ALL_TENANTS) -> str:
        """The secret of a key."""
        if (role, tenant) not in self._secrets:
            with acting("ada@example.com"):
                made = self.app.keys.create(
                    f"{role} of {'all' if tenant == ALL_TENANTS else tenant}",
                    role=Role(role),
                    tenant=None if tenant == ALL_TENANTS else tenant,
                )
            self._secrets[role, tenant] = made.secret
        return self._secrets[role, tenant]

    def enqueue(self, task: str, using: dict[str, Any] | None = None, /, **args: Any) -> Job[Any]:
        """Enqueue a job."""
        bound: BoundTask[Any, Any] = self.app.bound_task(task)
        return bound.using(**using or {}).enqueue(**args)

    def drain(self) -> None:
        """Run the due jobs in this process."""
        apart(self.app.testing().drain)


@contextlib.contextmanager
def served(
    url: str = "memory://",
    *,
    tasks: Callable[[App], object] = declare,
    clock: Clock | None = None,
    **settings: Any,
) -> Iterator[Served]:
    """Serve the API and the dashboard over a store, in a thread of this process."""
    with place(
        url,
        tasks=tasks,
        make=lambda app, chosen, token: create_site(app, settings=chosen, token=token),
        clock=clock,
        **settings,
    ) as there:
        yield Served(there)


class Window:
    """One tab, with the problems that occurred in it."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base
        self.troubles: list[str] = []
        self.allowed: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._trouble(f"script error: {error}"))
        page.on("dialog", self._dialog)
        page.on("response", self._response)

    def open(self, path: str, *, wait: Literal["load", "domcontentloaded"] = "load") -> Page:
        """Open a page of the site."""
        self.page.goto(self.base + path, wait_until=wait)
        return self.page

    def allow(self, *words: str) -> None:
        """Ignore problems whose text contains one of these words, because the test causes them."""
        self.allowed += words

    def overflow(self) -> list[str]:
        """Elements that extend beyond the right edge of the screen and are not inside a scrolling element."""
        found: list[str] = self.page.evaluate(_OVERFLOW)
        return found

    def hits(self) -> list[str]:
        """The traces left by injected scripts, if any ran."""
        found: list[str] = self.page.evaluate("window.hits")
        return found

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not _QUIET.search(message.text):
            self._trouble(f"console {message.type}: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self._trouble(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _response(self, response: Response) -> None:
        if response.status >= 500:
            self._trouble(f"{response.status} of {response.request.method} {response.url}")

    def _trouble(self, words: str) -> None:
        where = self.page.url.removeprefix(self.base)
        if not any(each in words for each in self.allowed):
            self.troubles.append(f"{where}: {words}")


_OVERFLOW = """
() => {
  const wide = document.scrollingElement;
  if (wide.scrollWidth <= innerWidth) return [];
  const inside = (element) => {
    for (let each = element; each && each !== document.body; each = each.parentElement) {
      const style = getComputedStyle(each);
      if (each !== element && style.overflowX !== "visible") return true;
      if (style.position === "fixed") return true;
    }
    return false;
  };
  const name = (each) => each.tagName.toLowerCase() + (each.id ? `#${each.id}` : "") + [...each.classList].map((c) => `.${c}`).join("");
  const right = (each) => {
    const box = each.getBoundingClientRect();
    return getComputedStyle(each).overflowX === "visible" ? Math.max(box.right, box.left + each.scrollWidth) : box.right;
  };
  const found = [...document.body.querySelectorAll("*")]
    .filter((each) => right(each) > innerWidth + 0.5 && !inside(each))
    .map((each) => `${name(each)} in ${name(each.parentElement)} to ${Math.round(right(each))}: ${each.textContent.trim().slice(0, 60)}`);
  return [`the page is ${wide.scrollWidth} wide on ${innerWidth}`, ...found.slice(-8)];
}
"""


class SiteWindows:
    """Opens windows of one browser on one site, by default with a new user for each."""

    def __init__(self, browser: Browser, site: Served) -> None:
        self._browser, self.site = browser, site
        self._contexts: list[BrowserContext] = []
        self.windows: list[Window] = []

    def person(
        self,
        role: str | None = "super_admin",
        tenant: str = ALL_TENANTS,
        *,
        size: Size = "desktop",
        theme: Theme = "light",
        script: bool = True,
        **rest: Any,
    ) -> BrowserContext:
        """A browser context of its own, signed in; ``None`` is an anonymous user."""
        width, height = SIZES[size]
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,
            java_script_enabled=script,
            has_touch=size == "phone",
            locale="en-GB",
            timezone_id="Europe/Berlin",
            reduced_motion="reduce",
            **rest,
        )
        self._contexts.append(context)
        if script:
            context.add_init_script(_WATCH)
        if role is not None:
            self.sign_in(context, role, tenant)
        return context

    def sign_in(self, context: BrowserContext, role: str, tenant: str = ALL_TENANTS) -> None:
        """Sign in and store the session cookie."""
        answer = context.request.post(
            f"{self.site.url}/sign-in", form={"key": self.site.key(role, tenant)}, max_redirects=0
        )
        assert answer.status == 303, answer.text()

    def window(self, context: BrowserContext | None = None, **person: Any) -> Window:
        """Open a new tab for this user, or for a new one."""
        made = Window((context or self.person(**person)).new_page(), self.site.url)
        self.windows.append(made)
        return made

    def screenshots(self, folder: Path) -> list[Path]:
        """Save a screenshot of every window."""
        folder.mkdir(parents=True, exist_ok=True)
        made = []
        for number, window in enumerate(self.windows, start=1):
            if not window.page.is_closed():
                path = folder / f"window-{number}.png"
                path.write_bytes(window.page.screenshot(full_page=True))
                made.append(path)
        return made

    def close(self) -> None:
        for context in self._contexts:
            context.close()

    def troubles(self) -> list[str]:
        """The problems of all windows."""
        return [trouble for window in self.windows for trouble in window.troubles]
