"""Request limits, response headers and problem documents of the API."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.interfaces.rest.kit import Site, problem, site

from tidemill.errors import StoreBusy, StoreCorrupt, StoreUnavailable

BODY = {"task": "send", "args": {"to": "ada"}}


def raw(shop: Site, content: object, media: str | None = "application/json", **headers: str) -> object:
    given = {"authorization": f"Bearer {shop.key()}", **headers}
    if media is not None:
        given["content-type"] = media
    return shop.client.request("POST", "/api/jobs", content=content, headers=given)


def test_an_unknown_path_is_a_404_problem(shop: Site) -> None:
    for path in ("/", "/api", "/api/nothing", "/api/jobs/", "/docs", "/openapi.json", "/api/jobs/a/b/c"):
        problem(shop.call("GET", path), 404, "not_found")


def test_an_unsupported_method_is_a_405_problem_with_an_allow_header(shop: Site) -> None:
    answer = shop.call("PUT", "/api/jobs", {})
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, POST"
    assert shop.call("OPTIONS", "/api/jobs").status_code == 405


def test_a_head_request_succeeds_where_get_does(shop: Site) -> None:
    assert shop.call("HEAD", "/api/jobs").status_code == 200


@pytest.mark.parametrize(
    "content", [b"{", b"nonsense", b"\xff\xfe", b'{"task": "send", "args": {"to": "\\ud800"}}', b""]
)
def test_a_body_that_is_not_valid_json_is_rejected(shop: Site, content: bytes) -> None:
    answer = raw(shop, content)
    problem(answer, 422, "invalid_request")


@pytest.mark.parametrize(
    "media", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_a_body_of_another_media_type_is_rejected(shop: Site, media: str | None) -> None:
    problem(raw(shop, json.dumps(BODY).encode(), media), 415, "unsupported_media_type")
    problem(
        raw(shop, b"x", "application/json", **{"content-encoding": "gzip"}), 415, "unsupported_media_type"
    )


def test_a_body_at_the_size_limit_is_accepted_and_one_byte_more_is_not() -> None:
    with site(max_body=1000) as shop:
        text = json.dumps(BODY)
        assert raw(shop, text.ljust(1000).encode()).status_code == 201  # type: ignore[attr-defined]
        answer = raw(shop, text.ljust(1001).encode())
        problem(answer, 413, "payload_too_large")


def test_an_endless_body_is_cut_off_early(shop: Site) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1024):
            sent += 1
            yield b" " * 1024 * 1024

    problem(raw(shop, endless()), 413, "payload_too_large")
    assert sent <= 3


@pytest.mark.parametrize(("depth", "status"), [(60, 422), (64, 422), (70, 422), (190, 422), (100_000, 422)])
def test_a_body_that_is_nested_too_deep_is_rejected(shop: Site, depth: int, status: int) -> None:
    nested = b"[" * depth + b"]" * depth
    content = b'{"task": "send", "args": {"to": ' + nested + b"}}"
    answer = raw(shop, content)
    # The body itself adds two levels. Within the limit, the task rejects the list.
    problem(answer, status, "bad_arguments" if depth + 2 <= 64 else "too_deep")


def test_a_body_on_a_route_without_one_is_rejected(shop: Site) -> None:
    problem(shop.call("GET", "/api/jobs", {"a": 1}), 422, "invalid_request")


def test_a_url_and_headers_that_are_too_long_are_rejected(shop: Site) -> None:
    problem(shop.call("GET", "/api/jobs?tag=" + "x" * 9000), 414, "url_too_long")
    problem(shop.call("GET", "/api/jobs", headers={"x-long": "x" * 40_000}), 431, "headers_too_large")


def test_a_request_for_an_unknown_host_is_rejected() -> None:
    with site(hosts=("shop.example",)) as shop:
        assert shop.call("GET", "/api/jobs").status_code == 200
        assert shop.call("GET", "/api/jobs", headers={"host": "Shop.Example:8080"}).status_code == 200
        for name in ("evil.example", "shop.example.evil.example", "", "xshop.example"):
            problem(shop.call("GET", "/api/jobs", headers={"host": name}), 421, "unknown_host")


def test_every_response_has_the_security_headers(shop: Site) -> None:
    for path in ("/api/jobs", "/livez", "/nothing", "/api/docs"):
        headers = shop.call("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers


def test_a_correlation_id_is_returned_and_stored_with_the_job(shop: Site) -> None:
    answer = shop.call("POST", "/api/jobs", BODY, headers={"x-correlation-id": "order-1"})
    assert answer.headers["x-correlation-id"] == "order-1"
    assert answer.json()["correlation_id"] == "order-1"
    told = shop.call(
        "POST", "/api/jobs", {**BODY, "correlation_id": "own"}, headers={"x-correlation-id": "order-1"}
    )
    assert told.json()["correlation_id"] == "own"


@pytest.mark.parametrize("given", ["x" * 65, "a b", "a\tb", '"', "<script>"])
def test_an_invalid_correlation_id_is_rejected_where_a_job_is_created(shop: Site, given: str) -> None:
    headers = {"x-correlation-id": given}
    for path in ("/api/jobs", "/api/jobs/create"):
        answer = shop.call("POST", path, BODY, headers=headers)
        assert "use 1 to 64 letters" in problem(answer, 422, "bad_correlation_id")["detail"]
        assert answer.headers["x-correlation-id"] not in ("", given)
    own = shop.call("POST", "/api/jobs", {**BODY, "correlation_id": "own"}, headers=headers)
    assert own.json()["correlation_id"] == "own"
    looked = shop.call("GET", "/api/jobs", headers=headers)
    assert looked.status_code == 200
    assert [job["correlation_id"] for job in looked.json()["items"]] == ["own"]


def test_an_empty_correlation_id_counts_as_none(shop: Site) -> None:
    answer = shop.call("POST", "/api/jobs", BODY, headers={"x-correlation-id": ""})
    assert answer.json()["correlation_id"] == answer.json()["id"]


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def test_a_trace_context_is_stored_with_the_job_and_returned(shop: Site) -> None:
    headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
    job = shop.call("POST", "/api/jobs", BODY, headers=headers).json()
    assert (job["trace_id"], job["correlation_id"]) == (TRACE, TRACE)
    stored = shop.app.jobs.get(job["id"], tenant="*")
    assert stored.headers == {"traceparent": PARENT, "tracestate": "vendor=1"}
    assert stored.trace_id == TRACE
    told = shop.call("POST", "/api/jobs", BODY, headers={**headers, "x-correlation-id": "order-1"}).json()
    assert (told["trace_id"], told["correlation_id"]) == (TRACE, "order-1")


@pytest.mark.parametrize(
    "given",
    [
        "",
        "x",
        PARENT[:-1],
        PARENT.upper(),
        f"ff{PARENT[2:]}",
        f"{PARENT}-more",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
    ],
)
def test_an_invalid_traceparent_is_ignored(shop: Site, given: str) -> None:
    job = shop.call(
        "POST", "/api/jobs", BODY, headers={"traceparent": given, "tracestate": "vendor=1"}
    ).json()
    assert (job["trace_id"], job["headers"], job["correlation_id"]) == (None, {}, job["id"])


def test_a_traceparent_of_a_later_version_may_have_more_fields(shop: Site) -> None:
    job = shop.call("POST", "/api/jobs", BODY, headers={"traceparent": f"01{PARENT[2:]}-more"}).json()
    assert job["trace_id"] == TRACE


@pytest.mark.parametrize(
    ("error", "status"), [(StoreUnavailable, 503), (StoreBusy, 503), (StoreCorrupt, 500), (RuntimeError, 500)]
)
def test_the_text_of_a_store_error_is_not_sent_to_the_client(
    shop: Site, monkeypatch: pytest.MonkeyPatch, error: type[Exception], status: int
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error("SELECT * FROM jobs at /var/lib/secret on db.internal")

    shop.key()
    monkeypatch.setattr(shop.app.store, "jobs", fails)
    answer = shop.call("GET", "/api/jobs")
    problem(answer, status, getattr(error, "code", "internal_error"))
    assert "SELECT" not in answer.text
    assert "internal" not in answer.text.replace("internal_error", "")
    assert ("retry-after" in answer.headers) is (status == 503)


def test_requests_beyond_the_waiting_limit_get_503(monkeypatch: pytest.MonkeyPatch) -> None:
    with site(threads=1, max_waiting=2) as shop:
        go = threading.Event()
        jobs = shop.app.store.jobs

        def slow(*args: object, **rest: object) -> object:
            assert go.wait(60)
            return jobs(*args, **rest)  # type: ignore[arg-type]

        monkeypatch.setattr(shop.app.store, "jobs", slow)
        headers = {"authorization": f"Bearer {shop.key()}"}
        shop.client.request("GET", "/api/tasks", headers=headers)  # caches the key
        refused = []

        def told(answer: httpx.Response) -> None:
            refused.append(answer)
            if len(refused) == 2:  # the two that found no free place; the others wait for ``go``
                go.set()

        answers = shop.client.together(*[("GET", "/api/jobs", {"headers": headers})] * 5, told=told)
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 503, 503]
        assert "overloaded" in "".join(answer.text for answer in answers)


def test_concurrent_lookups_of_jobs_share_a_query(shop: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [shop.create(args={"to": str(number)})["id"] for number in range(30)]
    asked: list[int] = []
    get = shop.app.store.get

    def counted(wanted: list[object], **rest: object) -> object:
        asked.append(len(wanted))
        return get(wanted, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(shop.app.store, "get", counted)
    headers = {"authorization": f"Bearer {shop.key()}"}
    answers = shop.client.together(*[("GET", f"/api/jobs/{id}", {"headers": headers}) for id in ids])
    assert [answer.json()["id"] for answer in answers] == ids
    assert sum(asked) == 30
    assert len(asked) < 30


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/jobs?tag=a%00b", None),
        ("GET", "/api/schedules/a%00b", None),
        ("DELETE", "/api/definitions/a%00b", None),
        ("POST", "/api/jobs", {"task": "send", "args": {"to": "a\0b"}}),
        ("POST", "/api/jobs", {**BODY, "metadata": {"a\0b": 1}}),
        ("POST", "/api/jobs", {**BODY, "tags": ["a\\\0b"]}),
    ],
)
def test_a_text_with_a_null_character_is_rejected(shop: Site, method: str, path: str, body: object) -> None:
    problem(shop.call(method, path, body, role="admin"), 422, "bad_text")


def test_an_escaped_null_character_in_a_text_is_accepted(shop: Site) -> None:
    assert shop.create(args={"to": "write \\u0000, or \\\\u0000"})["args"] == {
        "to": "write \\u0000, or \\\\u0000"
    }


@pytest.mark.parametrize(
    "at", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "9001-01-01T00:00:00Z"]
)
def test_an_instant_at_the_edge_of_the_calendar_is_rejected(shop: Site, at: str) -> None:
    for name in ("run_after", "expires"):
        problem(shop.call("POST", "/api/jobs", {**BODY, name: at}), 422, "invalid_request")
    problem(shop.call("GET", "/api/jobs", params={"created_before": at}), 422, "invalid_request")
    problem(
        shop.call("POST", "/api/keys", {"name": "k", "expires": at}, role="super_admin"),
        422,
        "invalid_request",
    )


@pytest.mark.parametrize(
    "retry", [{"kind": "fixed", "wait": 1e300}, {"kind": "fixed", "max_attempts": 10**20}]
)
def test_a_retry_policy_with_excessive_values_is_rejected(shop: Site, retry: dict[str, object]) -> None:
    problem(shop.call("POST", "/api/jobs", {**BODY, "retry": retry}), 422, "bad_settings")


def test_a_key_with_non_ascii_characters_is_escaped_in_the_location(shop: Site) -> None:
    body = {"key": "täglich/😀", "task": "send", "args": {"to": "ada"}}
    made = shop.call("POST", "/api/definitions", body, role="admin")
    assert made.headers["location"] == "/api/definitions/t%C3%A4glich%2F%F0%9F%98%80"
