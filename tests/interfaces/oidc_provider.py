"""An OpenID Connect provider on a local port, which can also misbehave."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import flask
import httpx
from authlib.deprecate import AuthlibDeprecationWarning
from joserfc import jwt
from joserfc.jwk import RSAKey
from werkzeug.serving import make_server

with warnings.catch_warnings():
    warnings.simplefilter("ignore", AuthlibDeprecationWarning)
    import oidc_provider_mock
    from authlib.jose import JsonWebKey

CLIENT = "tidemill"
Claims = dict[str, Any]


class TestProvider:
    """The provider of oidc-provider-mock, with PKCE, rotation of keys, and tokens of any content."""

    __test__ = False

    def __init__(self, app: flask.Flask) -> None:
        self._app = app
        self._challenges: dict[str, str] = {}
        self.issuer = ""
        #: changes the claims of ID tokens before they are signed
        self.tamper: Callable[[Claims], Claims] | None = None
        #: signs ID tokens instead of the provider's key
        self.sign: Callable[[Claims], str] | None = None
        #: the issuer that the discovery document names instead of the provider's own
        self.poses_as: str | None = None
        self.key_requests = 0
        app.before_request(self._before)
        app.after_request(self._after)

    @property
    def storage(self) -> Any:
        with self._app.test_request_context():
            self._app.preprocess_request()
            return flask.g.oidc_provider_mock_storage

    @property
    def key(self) -> RSAKey:
        """The private key that signs now."""
        return RSAKey.import_key(self.storage.jwk.as_dict(is_private=True))

    def rotate(self) -> RSAKey:
        """Replace the key; tokens of the old one are no longer valid. Return the old one."""
        old = self.key
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AuthlibDeprecationWarning)
            self.storage.jwk = JsonWebKey.generate_key(
                "RSA", 2048, is_private=True, options={"kid": f"k{time.monotonic_ns()}"}
            )
        return old

    def user(self, sub: str, **claims: Any) -> None:
        """Create a user with these claims."""
        answer = httpx.put(f"{self.issuer}/users/{sub}", json=claims)
        assert answer.status_code == 204, answer.text

    def approve(self, url: str, sub: str) -> str:
        """Sign in at the provider, and return the path and query to which it sends the user back."""
        answer = httpx.post(url, data={"sub": sub})
        assert answer.status_code == 302, answer.text
        back = urlsplit(answer.headers["location"])
        return f"{back.path}?{back.query}"

    def token(self, key: RSAKey | None = None, header: Claims | None = None, **claims: Any) -> str:
        """Return a signed access token; the claims override valid ones."""
        now = int(time.time())
        valid = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "ann",
            "iat": now,
            "exp": now + 300,
            "groups": ["ops"],
        }
        given = {name: value for name, value in {**valid, **claims}.items() if value is not None}
        signing = key or self.key
        return jwt.encode({"alg": "RS256", "kid": signing.kid, **(header or {})}, given, signing)

    def _before(self) -> Any:
        if flask.request.path == "/jwks":
            self.key_requests += 1
        if flask.request.path == "/oauth2/token":
            challenge = self._challenges.get(flask.request.form.get("code", ""))
            digest = hashlib.sha256(flask.request.form.get("code_verifier", "").encode()).digest()
            if challenge is not None and base64.urlsafe_b64encode(digest).decode().rstrip("=") != challenge:
                return flask.jsonify(error="invalid_grant"), 400
        return None

    def _after(self, response: flask.Response) -> flask.Response:
        if self.poses_as is not None and flask.request.path.startswith("/.well-known/"):
            response.set_data(json.dumps(json.loads(response.get_data()) | {"issuer": self.poses_as}))
        if flask.request.path == "/oauth2/authorize" and response.status_code == 302:
            (code,) = parse_qs(urlsplit(response.headers["location"]).query).get("code", [""])
            self._challenges[code] = flask.request.args["code_challenge"]
        if (
            flask.request.path == "/oauth2/token"
            and response.status_code == 200
            and (self.tamper or self.sign)
        ):
            tokens = json.loads(response.get_data())
            claims = json.loads(_part(tokens["id_token"], 1))
            claims = claims if self.tamper is None else self.tamper(claims)
            key = self.key
            signed = self.sign or (lambda them: jwt.encode({"alg": "RS256", "kid": key.kid}, them, key))
            tokens["id_token"] = signed(claims)
            response.set_data(json.dumps(tokens))
        return response


def unsigned(claims: Claims) -> str:
    """A token without a signature."""
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    return (
        ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
        + "."
    )


def _part(token: str, number: int) -> bytes:
    text = token.split(".")[number]
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@contextlib.contextmanager
def provider() -> Iterator[TestProvider]:
    """Run the provider on a thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AuthlibDeprecationWarning)
        app = oidc_provider_mock.app(require_nonce=True)
    made = TestProvider(app)
    server = make_server("localhost", 0, app, threaded=False)
    made.issuer = f"http://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="oidc provider")
    thread.start()
    made.user("ann", groups=["ops"], email="ann@example.com")
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
