"""The options of commands that serve the dashboard: single sign-on.

The client's secret is only read from ``TIDEMILL_OIDC_CLIENT_SECRET``: every user of the machine can read a command line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import click

from tidemill.cli.parsers import pairs
from tidemill.errors import BadSettings

_NAMES = (
    "oidc_issuer", "oidc_client_id", "oidc_roles", "oidc_grants", "oidc_claim", "oidc_tenant_claim", "oidc_audience",
    "oidc_redirect_uri",
)  # fmt: skip

OIDC_OPTIONS = (
    click.option(
        "--oidc-issuer",
        envvar="TIDEMILL_OIDC_ISSUER",
        metavar="URL",
        help="OpenID Connect provider for single sign-on.  [env: TIDEMILL_OIDC_ISSUER]",
    ),
    click.option(
        "--oidc-client-id",
        envvar="TIDEMILL_OIDC_CLIENT_ID",
        metavar="ID",
        help="Client id at the provider. The secret is read from TIDEMILL_OIDC_CLIENT_SECRET.",
    ),
    click.option(
        "--oidc-role",
        "oidc_roles",
        multiple=True,
        envvar="TIDEMILL_OIDC_ROLES",
        metavar="GROUP=ROLE",
        help="Role of a group, or role@tenant; repeat for several. In TIDEMILL_OIDC_ROLES they are separated by blanks.",
    ),
    click.option(
        "--oidc-grant",
        "oidc_grants",
        multiple=True,
        metavar="GROUP:GRANT",
        help="Restrict the role of a group, such as 'reporters:jobs.* task=report.*'; repeat for several.",
    ),
    click.option(
        "--oidc-claim",
        envvar="TIDEMILL_OIDC_CLAIM",
        default="groups",
        show_default=True,
        metavar="NAME",
        help="Claim with the groups of a user.",
    ),
    click.option(
        "--oidc-tenant-claim",
        envvar="TIDEMILL_OIDC_TENANT_CLAIM",
        metavar="NAME",
        help="Claim with the tenants of a user.  [default: users see all tenants]",
    ),
    click.option(
        "--oidc-audience",
        envvar="TIDEMILL_OIDC_AUDIENCE",
        metavar="NAME",
        help="Audience of access tokens for the API.  [default: the client id]",
    ),
    click.option(
        "--oidc-redirect-uri",
        envvar="TIDEMILL_OIDC_REDIRECT_URI",
        metavar="URL",
        help="Address of /sign-in/callback as browsers see it.  [default: from the request]",
    ),
)


def with_oidc_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of single sign-on to a command. ``taken_oidc`` reads them."""
    for option in reversed(OIDC_OPTIONS):
        command = option(command)
    return command


def taken_oidc(options: dict[str, Any]) -> dict[str, Any] | None:
    """Remove the options of single sign-on from those of a command, and return its settings; None without an issuer."""
    given = {name.removeprefix("oidc_"): options.pop(name) for name in _NAMES}
    if given["issuer"] is None:
        if given["client_id"] or given["roles"]:
            raise click.UsageError("--oidc-client-id and --oidc-role need --oidc-issuer")
        return None
    if not given["client_id"]:
        raise click.UsageError("--oidc-issuer needs --oidc-client-id")
    grants: dict[str, list[str]] = {}
    for word in given["grants"]:
        group, is_pair, grant = word.partition(":")
        if not is_pair:
            raise click.UsageError(f"--oidc-grant is {word!r}; give GROUP:GRANT")
        grants.setdefault(group, []).append(grant)
    return {**given, "roles": pairs("--oidc-role", given["roles"]), "grants": grants}


def oidc_setting(settings: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """Return the keyword argument of ``app.serve`` for settings, given as data or as their JSON text."""
    if settings is None:
        return {}
    from tidemill.web.oidc_settings import Oidc

    data = json.loads(settings) if isinstance(settings, str) else settings
    try:
        return {"oidc": Oidc(**data)}
    except BadSettings as error:
        raise BadSettings(f"single sign-on: {error.message}") from None
