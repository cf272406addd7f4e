"""Access tokens of an identity provider as credentials of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tidemill.domain.access import Identity
from tidemill.web.guard import AccessTokens
from tidemill.web.oidc_errors import ProviderUnavailable, TokenRefused
from tidemill.web.oidc_settings import Oidc
from tidemill.web.problems import Problem
from tidemill.web.settings import ApiSettings

if TYPE_CHECKING:
    from tidemill.app import App
    from tidemill.web.oidc import IdentityProvider

_providers: WeakKeyDictionary[App, dict[int, IdentityProvider]] = WeakKeyDictionary()


def provider_of(app: App, settings: Oidc) -> IdentityProvider:
    """Return the connection to a provider. The API and the dashboard of an app share it, and its cached keys."""
    # Imported here, because its libraries are an extra.
    from tidemill.web.oidc import IdentityProvider

    of_app = _providers.setdefault(app, {})
    if id(settings) not in of_app:
        of_app[id(settings)] = IdentityProvider(settings, app.clock)
    return of_app[id(settings)]


def access_tokens(app: App, settings: ApiSettings) -> AccessTokens | None:
    """Return the function that identifies access tokens; None without single sign-on."""
    if settings.oidc is None:
        return None
    provider = provider_of(app, settings.oidc)

    async def identify(text: str) -> tuple[Identity | None, str | None]:
        try:
            return await provider.identify(text), None
        except TokenRefused as refused:
            return None, str(refused)
        except ProviderUnavailable:
            raise unavailable() from None

    return identify


def unavailable() -> Problem:
    """Return the error for a caller while the provider does not answer."""
    return Problem(
        503,
        "provider_unavailable",
        "the sign-in provider does not answer; try again, or use an API key",
        headers={"retry-after": "5"},
    )
