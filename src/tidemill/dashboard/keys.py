"""Creation and revocation of API keys.

The secret of a new key is shown once.
"""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from tidemill.dashboard.confirmation import ask
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.dashboard.settings import EXPIRIES, KeyRow, known_keys, show
from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.errors import KeyNotFound, UsageError
from tidemill.web.guard import TOKEN_IDENTITY
from tidemill.web.problems import Problem

pages = PageRoutes()


@pages.post("/settings/keys", role=Role.SUPER_ADMIN)
async def create(request: PageRequest) -> Response:
    """Create a key. Only this response contains the secret, so it must not be a redirect."""
    typed = {name: request.form.get(name) or "" for name in ("name", "role", "tenant", "days", "grants")}
    try:
        if typed["days"] not in EXPIRIES:
            raise Problem(422, None, "choose when it expires from the list")
        tenant = request.chosen(typed["tenant"] or None) or request.identity.tenant
        made = await request.act(
            request.app.keys.create,
            typed["name"],
            role=typed["role"],
            tenant=None if tenant == ALL_TENANTS else tenant,
            expires=timedelta(days=int(typed["days"])) if typed["days"] else None,
            **request.key_permissions(
                [line.strip() for line in typed["grants"].splitlines() if line.strip()]
            ),
        )
    except UsageError as error:
        return await show(request, 422, key_typed=typed, key_wrong=error.message)
    except Problem as problem:
        return await show(request, problem.status, key_typed=typed, key_wrong=problem.detail)
    ends_token = request.identity is TOKEN_IDENTITY
    return request.render("key_made.html", key=made.key, secret=made.secret, ends_token=ends_token)


@pages.get("/settings/keys/revoke", role=Role.SUPER_ADMIN)
async def ask_revoke(request: PageRequest) -> Response:
    """Ask for confirmation before a key is revoked."""
    row = await _known(request, request.query.get("id"))
    key = row.key
    own = request.identity.who.startswith(f"key:{key.id} ")
    return ask(
        request,
        title=f"Revoke {key.name}?",
        words=f"The key {key.id} ({key.role.value}, {'all tenants' if key.tenant == ALL_TENANTS else f'tenant {key.tenant}'}) "
        "stops working immediately on this server and within seconds on others. This cannot be undone.",
        also="You are signed in with this key; revoking it signs you out." if own else None,
        action="/settings/keys/revoke",
        fields={"id": key.id},
        button="Revoke it",
        back="/settings",
    )


@pages.post("/settings/keys/revoke", role=Role.SUPER_ADMIN)
async def revoke(request: PageRequest) -> Response:
    """Revoke a key."""
    row = await _known(request, request.form.get("id"))
    await request.act(request.app.keys.revoke, row.key.id)
    return request.back("/settings", f"Key {row.key.name} is revoked.")


async def _known(request: PageRequest, id: str | None) -> KeyRow:
    for row in await request.read(known_keys, request):
        if row.key.id == id:
            return row
    raise KeyNotFound(f"there is no key {(id or '')[:100]!r}", id=id)
