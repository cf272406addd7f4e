"""Roles, tenants and grants from the claims of an identity provider.

A user without a mapped group is refused: signing in at the provider alone gives no permission.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.permissions import ACTS, Grant, read_grants
from tidemill.errors import BadSettings

LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class GroupRole:
    """The role of the members of a group, in one tenant or in those of the user, restricted by grants."""

    role: Role
    tenant: str | None = None
    grants: tuple[Grant, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """How the claims of a user become an identity."""

    groups: Mapping[str, GroupRole] = field(default_factory=dict)
    claim: str = "groups"
    tenant_claim: str | None = None
    grants_claim: str | None = None
    tenant: str = ALL_TENANTS  #: of users without a tenant claim

    def identity(self, claims: Mapping[str, Any]) -> Identity | str:
        """Return the identity of a user, or in words why the user is refused."""
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject:
            return "the token has no subject"
        own = list(_texts(claim_value(claims, self.claim)))
        matched = [self.groups[group] for group in dict.fromkeys(own) if group in self.groups]
        if not matched:
            return f"none of the groups in the claim {self.claim!r} has a role here; an administrator maps groups to roles"
        tenants = self._tenants(claims)
        if isinstance(tenants, str):
            return tenants
        roles: dict[str, tuple[Role, tuple[Grant, ...]]] = {}
        for tenant in tenants:
            if plain := [group for group in matched if group.tenant is None]:
                roles[tenant] = merged(plain)
        for tenant in dict.fromkeys(group.tenant for group in matched if group.tenant is not None):
            roles[tenant] = merged([group for group in matched if group.tenant in (None, tenant)])
        if not roles:
            return f"the claim {self.tenant_claim!r} names no tenant"
        return self._with_grants(_who(claims, subject), roles, claims)

    def _tenants(self, claims: Mapping[str, Any]) -> Sequence[str] | str:
        if self.tenant_claim is None:
            return [self.tenant]
        tenants = [name for name in _texts(claim_value(claims, self.tenant_claim)) if name]
        if any(not _is_tenant(name) for name in tenants):
            return f"the claim {self.tenant_claim!r} holds a text that is not a tenant's name"
        return tenants

    def _with_grants(
        self, who: str, roles: Mapping[str, tuple[Role, tuple[Grant, ...]]], claims: Mapping[str, Any]
    ) -> Identity | str:
        grants = {given for _, given in roles.values()}
        if len(grants) > 1:
            return "the groups of this user give different grants in different tenants; map them alike"
        (given,) = grants
        if self.grants_claim is not None and claim_value(claims, self.grants_claim) is not None:
            try:
                claimed = read_grants(list(_texts(claim_value(claims, self.grants_claim))))
            except BadSettings as error:
                return f"the claim {self.grants_claim!r} is not valid: {error.message}"
            if given:
                return f"both a group and the claim {self.grants_claim!r} give grants; use one of them"
            if not claimed:
                return f"the claim {self.grants_claim!r} is empty, so it allows nothing"
            given = claimed
        tenant, (role, _) = next(iter(roles.items()))
        several = tuple((name, role) for name, (role, _) in roles.items()) if len(roles) > 1 else ()
        return Identity(who, role, tenant, grants=given, roles=several)


def merged(groups: Sequence[GroupRole]) -> tuple[Role, tuple[Grant, ...]]:
    """Return the highest role of several groups, and grants that give each group no more than its own role.

    >>> role, grants = merged([GroupRole(Role.VIEWER), GroupRole(Role.OPERATOR, None, (Grant(tasks=("report.*",)),))])
    >>> role.value, len(grants), grants[0].names("jobs.run")
    ('operator', 2, False)
    """
    highest = max((group.role for group in groups), key=list(Role).index)
    if any(group.role == highest and not group.grants for group in groups):
        return highest, ()
    grants: list[Grant] = []
    for group in groups:
        allowed = tuple(act for act, rule in ACTS.items() if group.role.allows(rule.role))
        for grant in group.grants or (Grant(),):
            own = tuple(act for act in allowed if grant.names(act))
            if group.role == highest:
                # Also a grant that allows nothing is kept: without any grant, the role alone would decide.
                grants.append(grant)
            elif own:
                grants.append(grant._replace(acts=own, but=()))
    return highest, tuple(dict.fromkeys(grants))


def read_group_role(group: str, text: str, grants: Iterable[Grant | str] = ()) -> GroupRole:
    """Return the role of a group, from ``role`` or ``role@tenant``."""
    role, _, tenant = text.partition("@")
    if role not in list(Role) or (tenant and not _is_tenant(tenant)):
        raise BadSettings(
            f"group {group!r} has the role {text!r}; give one of {', '.join(Role)}, or role@tenant",
            setting="roles",
        )
    return GroupRole(Role(role), tenant or None, read_grants(grants))


def claim_value(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim; a name with dots that is no claim itself leads into nested objects.

    >>> claim_value({"realm_access": {"roles": ["ops"]}}, "realm_access.roles")
    ['ops']
    """
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _is_tenant(name: str) -> bool:
    return (
        0 < len(name) <= LONGEST_NAME and name.isprintable() and name.strip() == name and name != ALL_TENANTS
    )


def _who(claims: Mapping[str, Any], subject: str) -> str:
    """Name the user in the audit log: by the subject, which never changes, and a readable name."""
    names = (claims.get(name) for name in ("preferred_username", "email", "name"))
    name = next((name for name in names if isinstance(name, str) and name), "")
    shown = "".join(letter for letter in name if letter.isprintable())[:100]
    plain = "".join(letter for letter in subject if letter.isprintable())[:200]
    return f"sso:{plain} ({shown})" if shown else f"sso:{plain}"
