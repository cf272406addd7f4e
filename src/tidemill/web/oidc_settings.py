"""Settings of single sign-on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tidemill.domain.claims import ClaimRules, read_group_role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.permissions import Grant
from tidemill.errors import BadSettings

SECRET = "TIDEMILL_OIDC_CLIENT_SECRET"  # noqa: S105  (the name of a variable, not a secret)
"""Environment variable with the client's secret, if the settings have none."""

_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Oidc:
    """Single sign-on at an OpenID Connect provider: pages redirect to it, and the API accepts its access tokens."""

    issuer: str  #: the address of the provider; its discovery document is below it
    client_id: str  #: of this server at the provider
    client_secret: str | None = field(
        default=None, repr=False
    )  #: None: that of `TIDEMILL_OIDC_CLIENT_SECRET`
    #: group → role, or `role@tenant`; users without a mapped group are refused
    roles: Mapping[str, str] = field(default_factory=dict)
    #: group → grants, which restrict the role of that group
    grants: Mapping[str, Sequence[Grant | str]] = field(default_factory=dict)
    claim: str = "groups"  #: the claim with the groups; dots lead into nested objects
    tenant_claim: str | None = None  #: the claim with the tenant or tenants
    grants_claim: str | None = None  #: the claim with grants, as a list of texts
    tenant: str = ALL_TENANTS  #: the tenant of users, if there is no tenant claim
    audience: str | None = None  #: of access tokens for the API; None: the client id
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    #: the address that the provider sends users back to; None: derived from the request
    redirect_uri: str | None = None
    leeway: int = 30  #: seconds by which the clocks of provider and server may differ
    #: fixed in code, never read from a token
    rules: ClaimRules = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "issuer", self.issuer.rstrip("/"))
        for name in ("issuer", "redirect_uri"):
            if (url := getattr(self, name)) is not None:
                check_url(name, url)
        if not self.client_id:
            raise BadSettings(
                "client_id is empty; give the id of this server at the provider", setting="oidc"
            )
        if not self.roles:
            raise BadSettings(
                "oidc has no roles, so every user would be refused; map groups to roles: roles={'jobs-admin': 'admin'}",
                setting="oidc",
            )
        if lost := sorted(set(self.grants) - set(self.roles)):
            raise BadSettings(f"group {lost[0]!r} has grants but no role; add it to roles", setting="oidc")
        if self.client_secret is None:
            object.__setattr__(self, "client_secret", os.environ.get(SECRET))
        groups = {
            group: read_group_role(group, role, self.grants.get(group, ()))
            for group, role in self.roles.items()
        }
        rules = ClaimRules(groups, self.claim, self.tenant_claim, self.grants_claim, self.tenant)
        object.__setattr__(self, "rules", rules)


def check_url(name: str, url: str) -> None:
    """Refuse an address whose responses could be changed in transit."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL):
        return
    raise BadSettings(f"{name} is {url!r}; give an https address", setting=name)
