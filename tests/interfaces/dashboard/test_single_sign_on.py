"""Single sign-on against a real provider: sign-in, refusals, logout."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from tests.interfaces.dashboard.kit import House, house
from tests.interfaces.oidc_provider import CLIENT, Claims, TestProvider, provider, unsigned
from tests.interfaces.rest.kit import Browser, problem

from tidemill.errors import BadSettings
from tidemill.rest import Oidc

# The provider under test uses functions that its library has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ROLES = {
    "ops": "operator",
    "bosses": "super_admin",
    "acme-admins": "admin@acme",
    "bolt-viewers": "viewer@bolt",
}


@pytest.fixture(scope="module")
def op() -> Iterator[TestProvider]:
    with provider() as made:
        yield made


@pytest.fixture(autouse=True)
def _well_behaved(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "op" in request.fixturenames:
        made: TestProvider = request.getfixturevalue("op")
        made.tamper = made.sign = made.poses_as = None


def settings(op: TestProvider, **more: Any) -> Oidc:
    return Oidc(
        **{"issuer": op.issuer, "client_id": CLIENT, "client_secret": "s3cret", "roles": ROLES, **more}
    )


class Shop(NamedTuple):
    """A site with single sign-on, and a browser that has not signed in."""

    house: House
    browser: Browser
    op: TestProvider

    def start(self, path: str = "/jobs") -> str:
        """Open a page, follow to the provider, and return its address."""
        answer = self.browser.request("GET", path)
        assert answer.status_code == 303
        answer = self.browser.request("GET", answer.headers["location"])
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    def sign_in(self, sub: str = "ann", path: str = "/jobs") -> httpx.Response:
        """Sign in as a user of the provider, and return the response to the callback."""
        return self.browser.request("GET", self.op.approve(self.start(path), sub))

    def actions(self) -> list[str]:
        return [record.entry.action for record in self.house.app.audit.list(tenant="*")]


@contextlib.contextmanager
def shop_of(op: TestProvider, oidc: dict[str, Any] | None = None, **more: Any) -> Iterator[Shop]:
    with house(oidc=settings(op, **oidc or {}), **more) as made:
        browser = Browser(made.site_app)
        browser.witness = None  # the identity changes with the sign-in
        try:
            yield Shop(made, browser, op)
        finally:
            browser.close()


@pytest.fixture
def shop(op: TestProvider) -> Iterator[Shop]:
    with shop_of(op) as made:
        yield made


# Sign-in


def test_a_user_signs_in_at_the_provider_and_returns_to_the_page(shop: Shop) -> None:
    answer = shop.browser.request("GET", "/jobs?status=failed")
    assert answer.headers["location"] == "/sign-in/sso?next=%2Fjobs%3Fstatus%3Dfailed"
    answer = shop.sign_in(path="/jobs?status=failed")
    assert answer.status_code == 200
    assert 'content="0;url=/jobs?status=failed"' in answer.text
    cookies = answer.headers.get_list("set-cookie")
    assert any(
        "tidemill_session=" in one and "SameSite=strict" in one and "HttpOnly" in one for one in cookies
    )
    page = shop.browser.request("GET", "/jobs?status=failed")
    assert page.status_code == 200
    assert "ann@example.com" in page.text
    (session,) = shop.house.app.sessions.list()
    assert (session.who, session.issuer, session.subject) == (
        "sso:ann (ann@example.com)",
        shop.op.issuer,
        "ann",
    )
    assert "session.began" in shop.actions()


def test_the_request_to_the_provider_has_pkce_a_nonce_and_a_state(shop: Shop) -> None:
    query = parse_qs(urlsplit(shop.start()).query)
    assert query["code_challenge_method"] == ["S256"]
    assert query["response_type"] == ["code"]
    assert query["redirect_uri"] == ["http://shop.example/sign-in/callback"]
    assert all(len(query[name][0]) >= 43 for name in ("code_challenge", "nonce", "state"))
    other = parse_qs(urlsplit(shop.start()).query)
    assert all(query[name] != other[name] for name in ("code_challenge", "nonce", "state"))


def test_the_role_comes_from_the_groups(shop: Shop) -> None:
    shop.op.user("boss", groups=["bosses"])
    shop.sign_in("boss")
    assert shop.browser.request("GET", "/settings/sessions").status_code == 200
    with shop_of(shop.op) as other:
        other.sign_in("ann")
        assert other.browser.request("GET", "/settings/sessions").status_code == 403


def test_a_user_without_a_mapped_group_is_refused(shop: Shop) -> None:
    shop.op.user("eve", groups=["sales"])
    answer = shop.sign_in("eve")
    assert answer.status_code == 403
    assert "none of the groups" in answer.text
    assert shop.house.app.sessions.list() == []
    assert "session.refused" in shop.actions()


def test_a_group_gives_a_role_in_one_tenant(shop: Shop) -> None:
    shop.op.user("bob", groups=["acme-admins", "bolt-viewers"])
    shop.sign_in("bob")
    assert shop.browser.request("GET", "/audit?tenant=acme").status_code == 200
    assert shop.browser.request("GET", "/audit?tenant=bolt").status_code == 403
    assert shop.browser.request("GET", "/jobs?tenant=bolt").status_code == 200
    assert shop.browser.request("GET", "/jobs?tenant=other").status_code == 403


def test_the_tenant_comes_from_a_claim(op: TestProvider) -> None:
    op.user("tess", groups=["ops"], company="acme")
    op.user("nix", groups=["ops"])
    with shop_of(op, {"tenant_claim": "company"}) as shop:
        shop.sign_in("tess")
        assert shop.browser.request("GET", "/jobs?tenant=acme").status_code == 200
        assert shop.browser.request("GET", "/jobs?tenant=other").status_code == 403
        assert shop.browser.request("GET", "/workers").status_code == 403
    with shop_of(op, {"tenant_claim": "company"}) as shop:
        assert shop.sign_in("nix").status_code == 403


def test_grants_of_a_group_restrict_its_users(op: TestProvider) -> None:
    with shop_of(op, {"grants": {"ops": ["jobs.* task=look"]}}) as shop:
        shop.sign_in()
        hidden = shop.house.app.bound_task("send").enqueue(to="ada")
        seen = shop.house.app.bound_task("look").enqueue(what="x")
        assert shop.browser.request("GET", f"/jobs/{hidden.id}").status_code == 404
        assert shop.browser.request("GET", f"/jobs/{seen.id}").status_code == 200
        refused = shop.browser.request("GET", "/flows")
        assert refused.status_code == 403
        assert "no grant of this identity includes flows.read" in refused.text


# Refusals


def _other_key(claims: Claims) -> str:
    key = RSAKey.generate_key(2048, {"kid": "k1"})
    return jwt.encode({"alg": "RS256", "kid": "k1"}, claims, key)


def _symmetric(claims: Claims) -> str:
    # The public key as the secret of an HMAC: the classic confusion of algorithms.
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key("x" * 40))


TAMPERED: dict[str, Callable[[Claims], Claims]] = {
    "another nonce": lambda claims: {**claims, "nonce": "other"},
    "no nonce": lambda claims: {name: value for name, value in claims.items() if name != "nonce"},
    "expired": lambda claims: {**claims, "exp": int(time.time()) - 3600},
    "another audience": lambda claims: {**claims, "aud": "other-client"},
    "another authorized party": lambda claims: {**claims, "aud": [CLIENT, "x"], "azp": "x"},
    "another issuer": lambda claims: {**claims, "iss": "https://evil.example"},
    "not valid yet": lambda claims: {**claims, "nbf": int(time.time()) + 3600},
    "another access token": lambda claims: {**claims, "at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
}


@pytest.mark.parametrize("what", TAMPERED)
def test_an_id_token_with_wrong_claims_is_refused(shop: Shop, what: str) -> None:
    shop.op.tamper = TAMPERED[what]
    answer = shop.sign_in()
    assert answer.status_code == 403, what
    assert "You are not signed in" in answer.text
    assert shop.house.app.sessions.list() == []
    assert "session.refused" in shop.actions()


@pytest.mark.parametrize("sign", [unsigned, _other_key, _symmetric])
def test_an_id_token_with_a_wrong_signature_is_refused(shop: Shop, sign: Callable[[Claims], str]) -> None:
    shop.op.sign = sign
    assert shop.sign_in().status_code == 403
    assert shop.house.app.sessions.list() == []


def test_a_replayed_answer_opens_no_second_session(shop: Shop) -> None:
    cookies = dict(shop.browser.cookies)
    url = shop.start()
    kept = dict(shop.browser.cookies)
    back = shop.op.approve(url, "ann")
    assert shop.browser.request("GET", back).status_code == 200
    assert shop.browser.request("GET", back).status_code == 403  # its cookie is gone
    shop.browser.cookies.clear()
    for name, value in {**cookies, **kept}.items():
        shop.browser.cookies.set(name, value)
    assert shop.browser.request("GET", back).status_code == 403  # the provider refuses the code
    assert len(shop.house.app.sessions.list()) == 1


def test_an_answer_that_another_browser_began_is_refused(shop: Shop) -> None:
    back = shop.op.approve(shop.start(), "ann")
    other = Browser(shop.house.site_app)
    other.witness = None
    try:
        answer = other.request("GET", back)
        assert answer.status_code == 403
        assert "was not begun in this browser" in answer.text
        assert other.request("GET", "/jobs").status_code == 303
    finally:
        other.close()


@pytest.mark.parametrize(
    "change", [{"state": "other"}, {"iss": "https://evil.example"}, {"error": "access_denied"}]
)
def test_an_answer_with_wrong_parameters_is_refused(shop: Shop, change: dict[str, str]) -> None:
    path, _, query = shop.op.approve(shop.start(), "ann").partition("?")
    given = {name: values[0] for name, values in parse_qs(query).items()} | change
    answer = shop.browser.request("GET", path, params=given)
    assert answer.status_code == 403
    assert shop.house.app.sessions.list() == []


def test_a_code_without_its_verifier_is_refused(shop: Shop) -> None:
    back = shop.op.approve(shop.start(), "ann")
    code = parse_qs(urlsplit(back).query)["code"][0]
    data = {"grant_type": "authorization_code", "code": code, "code_verifier": "x" * 43,
            "redirect_uri": "http://shop.example/sign-in/callback"}  # fmt: skip
    stolen = httpx.post(f"{shop.op.issuer}/oauth2/token", data=data, auth=(CLIENT, "s3cret"))
    assert stolen.status_code == 400
    assert shop.browser.request("GET", back).status_code == 200


def test_a_discovery_document_of_another_issuer_is_not_used(op: TestProvider) -> None:
    op.poses_as = "https://evil.example"
    with shop_of(op) as shop:
        answer = shop.browser.request("GET", "/sign-in/sso")
        assert answer.status_code == 503
        assert "provider does not answer" in answer.text


def test_sign_ins_are_rate_limited(op: TestProvider) -> None:
    with shop_of(op, login_rate=0.001, login_burst=2) as shop:
        codes = [shop.browser.request("GET", "/sign-in/sso").status_code for _ in range(3)]
        assert codes == [303, 303, 429]


# Keys of the provider


def test_rotated_keys_are_read_again(shop: Shop) -> None:
    shop.sign_in()
    shop.op.rotate()
    with contextlib.closing(Browser(shop.house.site_app)) as again:
        again.witness = None
        answer = Shop(shop.house, again, shop.op).sign_in()
        assert answer.status_code == 200, answer.text


def test_a_key_that_the_provider_withdrew_is_refused_when_its_keys_are_read_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.sign_in()
    headers = {"authorization": f"Bearer {shop.op.token(shop.op.rotate())}"}
    monkeypatch.setattr("tidemill.web.oidc.KEYS_AGE", -1.0)
    problem(shop.browser.request("GET", "/api/jobs", headers=headers), 401, "unauthenticated")
    headers = {"authorization": f"Bearer {shop.op.token()}"}
    assert shop.browser.request("GET", "/api/jobs", headers=headers).status_code == 200


def test_tokens_with_invented_keys_cause_few_requests(shop: Shop) -> None:
    shop.sign_in()
    before = shop.op.key_requests
    for number in range(10):
        fake = RSAKey.generate_key(1024 * 2, {"kid": f"invented{number}"}) if number < 2 else None
        token = shop.op.token(fake, {"kid": f"invented{number}"})
        headers = {"authorization": f"Bearer {token}"}
        problem(shop.browser.request("GET", "/api/jobs", headers=headers), 401, "unauthenticated")
    assert shop.op.key_requests - before <= 1


# Sign-out


def test_signing_out_ends_the_session_and_continues_at_the_provider(shop: Shop) -> None:
    shop.sign_in()
    cookie = shop.browser.cookies["tidemill_session"]
    csrf = shop.browser.request("GET", "/jobs").text.partition('name="csrf" content="')[2].partition('"')[0]
    answer = shop.browser.request("POST", "/sign-out", data={"csrf": csrf})
    assert answer.status_code == 200
    assert f"{shop.op.issuer}/oauth2/end_session?client_id={CLIENT}" in answer.text
    assert "post_logout_redirect_uri=http%3A%2F%2Fshop.example%2Fsign-in" in answer.text
    shop.browser.cookies.set("tidemill_session", cookie)
    assert shop.browser.request("GET", "/jobs").status_code == 303
    assert "session.signed_out" in shop.actions()


def logout_token(op: TestProvider, **claims: Any) -> str:
    event: dict[str, Any] = {"http://schemas.openid.net/event/backchannel-logout": {}}
    return op.token(header={"typ": "logout+jwt"}, **{"events": event, "jti": "1", "groups": None, **claims})


def test_a_logout_message_of_the_provider_ends_the_sessions_of_its_user(shop: Shop) -> None:
    shop.sign_in()
    answer = shop.browser.request(
        "POST", "/sign-out/backchannel", data={"logout_token": logout_token(shop.op)}
    )
    # The provider has no cookie of this site.
    assert answer.status_code == 403
    with contextlib.closing(Browser(shop.house.site_app)) as server:
        server.witness = None
        other = {"logout_token": logout_token(shop.op, sub="bob")}
        assert server.request("POST", "/sign-out/backchannel", data=other).status_code == 200
        assert shop.browser.request("GET", "/jobs").status_code == 200
        data = {"logout_token": logout_token(shop.op)}
        assert server.request("POST", "/sign-out/backchannel", data=data).status_code == 200
    assert shop.browser.request("GET", "/jobs").status_code == 303
    assert "session.ended" in shop.actions()


@pytest.mark.parametrize(
    "wrong",
    [
        {"events": None},
        {"events": {"other": {}}},
        {"nonce": "x"},
        {"aud": "other"},
        {"iss": "https://evil.example"},
        {"iat": 1},
        {"jti": None},
        {"sub": None},
        {"exp": 1},
    ],
    ids=str,
)
def test_a_wrong_logout_message_ends_nothing(shop: Shop, wrong: dict[str, Any]) -> None:
    shop.sign_in()
    with contextlib.closing(Browser(shop.house.site_app)) as server:
        server.witness = None
        data = {"logout_token": logout_token(shop.op, **wrong)}
        assert server.request("POST", "/sign-out/backchannel", data=data).status_code == 400
    assert shop.browser.request("GET", "/jobs").status_code == 200


def test_an_ended_session_of_a_user_no_longer_works(shop: Shop) -> None:
    shop.sign_in()
    (session,) = shop.house.app.sessions.list()
    assert len(shop.house.app.sessions.end_of(session.who)) == 1
    assert shop.browser.request("GET", "/jobs").status_code == 303


# Access tokens


def api(shop: Shop, token: str, path: str = "/api/access") -> httpx.Response:
    return shop.browser.request("GET", path, headers={"authorization": f"Bearer {token}"})


def test_the_api_accepts_access_tokens_and_keys(shop: Shop) -> None:
    found = api(shop, shop.op.token(preferred_username="ann")).json()
    assert (found["who"], found["role"], found["tenant"]) == ("sso:ann (ann)", "operator", "*")
    assert api(shop, shop.house.key("viewer", "acme")).json()["role"] == "viewer"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"exp": 1}, "expired"),
        ({"exp": None}, "exp"),
        ({"aud": "other"}, "aud"),
        ({"aud": None}, "aud"),
        ({"iss": "https://evil.example"}, "iss"),
        ({"nbf": 4_000_000_000}, "not valid yet"),
        ({"sub": None}, "sub"),
        ({"nonce": "x"}, "no access token"),
        ({"events": {}}, "no access token"),
        ({"groups": []}, "none of the groups"),
    ],
    ids=str,
)
def test_a_wrong_access_token_gets_401_with_the_reason(shop: Shop, wrong: dict[str, Any], words: str) -> None:
    found = problem(api(shop, shop.op.token(**wrong)), 401, "unauthenticated")
    assert words in found["detail"] or "not valid" in found["detail"], found["detail"]


def test_unsigned_and_foreign_access_tokens_are_refused(shop: Shop) -> None:
    now = int(time.time())
    claims = {
        "iss": shop.op.issuer,
        "aud": CLIENT,
        "sub": "ann",
        "iat": now,
        "exp": now + 60,
        "groups": ["bosses"],
    }
    for token in (
        unsigned(claims),
        _other_key(claims),
        _symmetric(claims),
        "a.b.c",
        "..",
        "x" * 9000 + ".y.z",
    ):
        problem(api(shop, token), 401, "unauthenticated")


def test_access_tokens_may_have_an_audience_of_their_own(op: TestProvider) -> None:
    with shop_of(op, {"audience": "jobs-api"}) as shop:
        problem(api(shop, op.token()), 401, "unauthenticated")
        assert api(shop, op.token(aud=["jobs-api", "x"])).status_code == 200


def test_without_single_sign_on_there_is_none() -> None:
    with house() as made, contextlib.closing(Browser(made.site_app)) as browser:
        browser.witness = None
        assert browser.request("GET", "/sign-in/sso").status_code == 404
        assert browser.request("GET", "/sign-in/callback").status_code == 404
        assert "single sign-on" not in browser.request("GET", "/sign-in").text


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"issuer": "http://id.example"}, "https"),
        ({"roles": {}}, "no roles"),
        ({"roles": {"ops": "king"}}, "king"),
        ({"grants": {"other": ["jobs.*"]}}, "no role"),
        ({"grants": {"ops": ["jbos.*"]}}, "no act matches"),
        ({"client_id": ""}, "client_id"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], words: str) -> None:
    given = {"issuer": "https://id.example", "client_id": "x", "roles": {"ops": "operator"}, **wrong}
    with pytest.raises(BadSettings, match=words):
        Oidc(**given)
