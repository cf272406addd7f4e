"""The connection to an OpenID Connect provider: discovery, keys, codes and tokens."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

try:
    from authlib.integrations.base_client import OAuthError
    from authlib.integrations.httpx_client import AsyncOAuth2Client
    from authlib.oidc.core import CodeIDToken
    from httpx2 import HTTPError
    from joserfc import jwt
    from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
    from joserfc.jwk import KeySet
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"single sign-on needs {missing.name}: pip install 'tidemill[oidc]'", name=missing.name
    ) from missing

from tidemill.clock import Clock
from tidemill.domain.access import Identity
from tidemill.errors import BadSettings
from tidemill.web.oidc_errors import ProviderUnavailable, TokenRefused
from tidemill.web.oidc_settings import Oidc, check_url

_log = logging.getLogger("tidemill.oidc")

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
"""Accepted signatures: only those that need the provider's private key."""

METADATA_AGE = 3_600.0
"""Seconds after which the discovery document is read again."""

KEYS_AGE = 300.0
"""Seconds after which the keys are read again: the provider may have withdrawn one that was stolen."""

REFETCH = 10.0
"""Seconds between two reads of the keys because of a token with an unknown key."""

TIMEOUT = 10.0
LONGEST_TOKEN = 16 * 1024

_LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


class SignedIn(NamedTuple):
    """A user whom the provider has authenticated."""

    identity: Identity
    subject: str
    provider_session: str | None


class IdentityProvider:
    """One provider. Its documents are cached, so a request with a token does no I/O."""

    def __init__(self, settings: Oidc, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._metadata: tuple[Mapping[str, Any], float] | None = None
        self._keys: tuple[KeySet, float] | None = None
        self._refetched: float | None = None

    # Sign-in -----------------------------------------------------------------------------------------------------------

    async def authorization_url(self, *, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Return the address at which the user signs in."""
        metadata = await self.metadata()
        async with self._http(redirect_uri) as client:
            url, _ = client.create_authorization_url(
                metadata["authorization_endpoint"], state=state, nonce=nonce, code_verifier=verifier
            )
        return str(url)

    async def redeem(self, code: str, *, redirect_uri: str, nonce: str, verifier: str) -> SignedIn:
        """Exchange a code for the user's identity."""
        metadata = await self.metadata()
        try:
            async with self._http(redirect_uri) as client:
                tokens = await client.fetch_token(
                    metadata["token_endpoint"],
                    code=code,
                    code_verifier=verifier,
                    grant_type="authorization_code",
                )
        except OAuthError as error:
            raise TokenRefused(f"the provider refused the code: {error.error}") from None
        except (HTTPError, ValueError) as error:
            raise ProviderUnavailable(f"{type(error).__name__}: {error}") from None
        id_token = tokens.get("id_token")
        if not isinstance(id_token, str):
            raise TokenRefused("the provider returned no ID token")
        header, claims = await self._decoded(id_token)
        settings = self.settings
        try:
            CodeIDToken(
                claims,
                header,
                {"iss": _expected(metadata["issuer"]), "aud": _expected(settings.client_id)},
                {"nonce": nonce, "client_id": settings.client_id, "access_token": tokens.get("access_token")},
            ).validate(self._now(), settings.leeway)
        except JoseError as error:
            raise TokenRefused(_words(error)) from None
        return self._signed_in(claims)

    # Tokens of API clients, and logout -----------------------------------------------------------------------------------

    async def identify(self, token: str) -> Identity:
        """Return the identity of an access token for the API."""
        header, claims = await self._decoded(token)
        if "nonce" in claims or "events" in claims or header.get("typ") == "logout+jwt":
            raise TokenRefused("this is no access token; ID tokens and logout tokens are not accepted here")
        self._validate(claims, self.settings.audience or self.settings.client_id, "exp", "sub")
        return self._signed_in(claims).identity

    async def logged_out(self, token: str) -> tuple[str | None, str | None]:
        """Return the subject and the session of a logout token; one of them may be missing."""
        _, claims = await self._decoded(token)
        self._validate(claims, self.settings.client_id, "iat", "jti", "events")
        events = claims["events"]
        if not isinstance(events, dict) or _LOGOUT_EVENT not in events or "nonce" in claims:
            raise TokenRefused("this is no logout token")
        # A provider signs these tokens moments before it sends them; an old one is a replay.
        if abs(self._now() - float(claims["iat"])) > 300:
            raise TokenRefused("the logout token is older than five minutes")
        subject, session = claims.get("sub"), claims.get("sid")
        if subject is None and session is None:
            raise TokenRefused("the logout token names neither a user nor a session")
        return subject, session

    async def logout_url(self, redirect_uri: str) -> str | None:
        """Return the address at which the user signs out of the provider; None if it has none."""
        try:
            metadata = await self.metadata()
        except ProviderUnavailable:
            return None
        endpoint = metadata.get("end_session_endpoint")
        if not isinstance(endpoint, str):
            return None
        query = urlencode({"client_id": self.settings.client_id, "post_logout_redirect_uri": redirect_uri})
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"

    def _signed_in(self, claims: Mapping[str, Any]) -> SignedIn:
        identity = self.settings.rules.identity(claims)
        if isinstance(identity, str):
            raise TokenRefused(identity)
        session = claims.get("sid")
        return SignedIn(identity, claims["sub"], session if isinstance(session, str) else None)

    def _validate(self, claims: dict[str, Any], audience: str, *essential: str) -> None:
        rules: dict[str, Any] = {name: {"essential": True} for name in essential}
        metadata, _ = self._metadata or ({"issuer": self.settings.issuer}, 0.0)
        rules |= {"iss": _expected(metadata["issuer"]), "aud": _expected(audience)}
        try:
            jwt.JWTClaimsRegistry(self._now(), self.settings.leeway, **rules).validate(claims)
        except JoseError as error:
            raise TokenRefused(_words(error)) from None

    async def _decoded(self, token: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the header and the claims of a token whose signature is right."""
        if len(token) > LONGEST_TOKEN:
            raise TokenRefused("the token is too long")
        keys = await self.keys()
        try:
            try:
                decoded = jwt.decode(token, keys, algorithms=ALGORITHMS)
            except (InvalidKeyIdError, BadSignatureError):
                # The provider may have changed its keys. Some tokens do not name theirs.
                decoded = jwt.decode(token, await self._newer_keys(keys), algorithms=ALGORITHMS)
        except (JoseError, ValueError) as error:
            raise TokenRefused(_words(error)) from None
        return dict(decoded.header), dict(decoded.claims)

    # Documents of the provider -------------------------------------------------------------------------------------------

    async def metadata(self) -> Mapping[str, Any]:
        """Return the discovery document."""
        if self._metadata is None or self._is_old(self._metadata[1], METADATA_AGE):
            document = await self._get(f"{self.settings.issuer}/.well-known/openid-configuration")
            # Another issuer could otherwise act as this one.
            if str(document.get("issuer", "")).rstrip("/") != self.settings.issuer:
                raise ProviderUnavailable(f"its discovery document is of issuer {document.get('issuer')!r}")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                try:
                    check_url(name, str(document.get(name, "")))
                except BadSettings as error:
                    raise ProviderUnavailable(error.message) from None
            self._metadata = (document, self._clock.monotonic())
        return self._metadata[0]

    async def keys(self) -> KeySet:
        """Return the provider's public keys."""
        if self._keys is None or self._is_old(self._keys[1], KEYS_AGE):
            self._keys = (await self._fetched_keys(), self._clock.monotonic())
        return self._keys[0]

    async def _newer_keys(self, old: KeySet) -> KeySet:
        """Read the keys again, unless that happened moments ago: tokens with invented keys must not cause requests."""
        now = self._clock.monotonic()
        if self._refetched is not None and now - self._refetched < REFETCH:
            return self._keys[0] if self._keys is not None else old
        self._refetched = now
        self._keys = (await self._fetched_keys(), now)
        return self._keys[0]

    async def _fetched_keys(self) -> KeySet:
        metadata = await self.metadata()
        document = await self._get(metadata["jwks_uri"])
        try:
            return KeySet.import_key_set({"keys": document["keys"]})
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise ProviderUnavailable(f"its keys cannot be read: {error}") from None

    async def _get(self, url: str) -> dict[str, Any]:
        try:
            async with self._http(None) as client:
                response = await client.request("GET", url, withhold_token=True)
                response.raise_for_status()
                document = response.json()
        except (HTTPError, ValueError) as error:
            _log.warning("cannot read %s: %s", url, error)
            raise ProviderUnavailable(f"{type(error).__name__}: {error}") from None
        if not isinstance(document, dict):
            raise ProviderUnavailable(f"{url} is no JSON object")
        return document

    def _http(self, redirect_uri: str | None) -> AsyncOAuth2Client:
        settings = self.settings
        return AsyncOAuth2Client(
            settings.client_id,
            settings.client_secret,
            scope=" ".join(settings.scopes),
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            token_endpoint_auth_method="client_secret_basic" if settings.client_secret else "none",
            timeout=TIMEOUT,
        )

    def _is_old(self, read_at: float, age: float) -> bool:
        return self._clock.monotonic() - read_at > age

    def _now(self) -> int:
        return int(self._clock.now().timestamp())


def _expected(value: str) -> Any:
    return {"essential": True, "value": value}


def _words(error: Exception) -> str:
    """Say what is wrong with a token, without its contents."""
    return f"the token is not valid: {str(error) or type(error).__name__}"[:200]
