"""Decisions about acts, and identities from claims."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.access import Identity, Role
from tidemill.domain.claims import ClaimRules, GroupRole, merged
from tidemill.domain.permissions import ACTS, Access, ActTarget, Grant, decide, read_grants
from tidemill.errors import BadSettings

NAMES = st.text("abc.", min_size=1, max_size=4)
GRANT = st.builds(
    Grant,
    st.lists(st.sampled_from([*ACTS, "*", "jobs.*"]), min_size=1, max_size=3).map(tuple),
    st.lists(st.sampled_from([*ACTS]), max_size=2).map(tuple),
    st.sampled_from([("*",), ("a*",), ("a.b", "c")]),
    st.sampled_from([("*",), ("b*",)]),
    st.sampled_from([("*",), ("c*",)]),
)
TARGET = st.builds(ActTarget, st.none() | NAMES, st.none() | NAMES, st.none() | NAMES)


@given(st.sampled_from(list(Role)), st.lists(GRANT, max_size=3), st.sampled_from(list(ACTS)), TARGET)
def test_grants_never_allow_more_than_the_role(
    role: Role, grants: list[Grant], act: str, target: ActTarget
) -> None:
    limited = Identity("ann", role, "acme", grants=tuple(grants))
    if decide(limited, act, target).allowed:
        assert decide(limited._replace(grants=()), act, target).allowed


@given(GRANT, st.sampled_from(list(ACTS)), TARGET)
def test_another_grant_never_takes_a_permission_away(grant: Grant, act: str, target: ActTarget) -> None:
    one = Identity("ann", Role.ADMIN, "*", grants=(Grant(("jobs.read",)),))
    if decide(one, act, target).allowed:
        assert decide(one._replace(grants=(*one.grants, grant)), act, target).allowed


@given(GRANT)
def test_a_grant_survives_its_text_and_its_storage(grant: Grant) -> None:
    assert Grant.parse(str(grant)) == grant
    access = Access((grant,), (("acme", Role.ADMIN),), "staging")
    assert Access.read(access.data()) == access


@given(st.text(max_size=12))
def test_an_act_that_is_not_in_the_table_is_refused(act: str) -> None:
    assert decide(Identity("root", Role.SUPER_ADMIN, "*"), act).allowed is (act in ACTS)


def test_a_limited_grant_includes_no_act_on_everything() -> None:
    identity = Identity("ann", Role.SUPER_ADMIN, "*", grants=(Grant.parse("* task=report.*"),))
    for act, rule in ACTS.items():
        assert decide(identity, act, ActTarget()).allowed is rule.ungranted, act


@pytest.mark.parametrize("text", ["", "jbos.run", "jobs.run tsak=x", "jobs.run task=", "-nothing.here"])
def test_a_wrong_grant_is_refused(text: str) -> None:
    with pytest.raises(BadSettings):
        read_grants([text])


@given(st.lists(st.tuples(st.sampled_from(list(Role)), st.lists(GRANT, max_size=2)), min_size=1, max_size=4),
       st.sampled_from(list(ACTS)), TARGET)  # fmt: skip
def test_a_user_of_several_groups_may_do_what_one_of_them_allows(
    groups: list[tuple[Role, list[Grant]]], act: str, target: ActTarget
) -> None:
    role, grants = merged([GroupRole(role, None, tuple(given)) for role, given in groups])
    together = decide(Identity("ann", role, "*", grants=grants), act, target).allowed
    alone = [
        decide(Identity("ann", role, "*", grants=tuple(given)), act, target).allowed for role, given in groups
    ]
    assert together is any(alone)


RULES = ClaimRules(
    {"ops": GroupRole(Role.OPERATOR), "acme": GroupRole(Role.ADMIN, "acme")}, tenant_claim="org"
)


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"sub": "1", "groups": ["ops"], "org": "acme"}, ("operator", "acme", ())),
        ({"sub": "1", "groups": "ops", "org": ["acme", "bolt"]}, ("operator", "acme", ("acme", "bolt"))),
        ({"sub": "1", "groups": ["acme"]}, ("admin", "acme", ())),
        ({"sub": "1", "groups": ["ops", "acme"], "org": "bolt"}, ("operator", "bolt", ("bolt", "acme"))),
    ],
    ids=str,
)
def test_claims_give_a_role_and_tenants(claims: dict[str, Any], expected: tuple[str, str, Any]) -> None:
    identity = RULES.identity(claims)
    assert isinstance(identity, Identity)
    assert (identity.role.value, identity.tenant, tuple(name for name, _ in identity.roles)) == expected


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"sub": "", "groups": ["ops"], "org": "acme"},
        {"sub": "1", "org": "acme"},
        {"sub": "1", "groups": {"ops": True}, "org": "acme"},
        {"sub": "1", "groups": ["ops"]},
        {"sub": "1", "groups": ["ops"], "org": "*"},
        {"sub": "1", "groups": ["ops"], "org": [" x"]},
    ],
    ids=str,
)
def test_claims_without_a_clear_answer_are_refused(claims: dict[str, Any]) -> None:
    assert isinstance(RULES.identity(claims), str)
