"""Statistics, alerts and metrics over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from tests.interfaces.rest.kit import Site, problem

from tidemill.client.stats.api import NAMED
from tidemill.domain.alerts import Alert
from tidemill.rest.stats import FOR_ALL, answer_of, document_of, query_of

ALL = "*"


@pytest.fixture
def busy(alone: Site) -> Site:
    """Ended jobs of two tenants, and one waiting job of each."""
    for tenant in ("acme", "other"):
        alone.create("fail", tenant=tenant, args={"words": f"order 1 of {tenant}"})
        alone.create(tenant=tenant)
    alone.drain()
    for tenant in ("acme", "other"):
        alone.create(tenant=tenant)
    return alone


def look(site: Site, path: str, **rest: Any) -> Any:
    rest.setdefault("role", "viewer")
    rest.setdefault("tenant", ALL)
    return site.get(path, **rest)


@pytest.mark.parametrize("name", NAMED)
def test_an_answer_has_the_shape_its_document_describes(busy: Site, name: str) -> None:
    answer_of(name).model_validate(look(busy, f"/api/stats/{name}"))


def test_the_overview_and_the_alerts_match_their_documents(busy: Site) -> None:
    answer_of("overview").model_validate(look(busy, "/api/stats"))
    busy.app.control.set("alerts.queue_depth", 0)
    found = look(busy, "/api/alerts")["items"]
    assert [alert["code"] for alert in found] == ["queue_depth"]
    document_of(Alert).model_validate(found[0])


@pytest.mark.parametrize("name", sorted(set(NAMED) - FOR_ALL))
def test_statistics_of_a_tenant_contain_nothing_of_another_tenant(busy: Site, name: str) -> None:
    text = busy.call("GET", f"/api/stats/{name}", role="viewer", tenant="acme").text
    assert "other" not in text


def test_a_tenant_sees_only_its_own_counts(busy: Site) -> None:
    for tenant, times in (("acme", 1), (ALL, 2)):
        (row,) = look(busy, "/api/stats/failures", tenant=tenant)["rows"]
        assert row["failures"] == times
        assert look(busy, "/api/stats", tenant=tenant)["ended"] == 2 * times
    assert [row["tenant"] for row in look(busy, "/api/stats/tenants?tenant=other")["rows"]] == ["other"]
    problem(busy.call("GET", "/api/stats/tenants?tenant=other", role="viewer"), 403, "wrong_tenant")


@pytest.mark.parametrize(
    "path", [*(f"/api/stats/{name}" for name in sorted(FOR_ALL)), "/api/alerts", "/metrics"]
)
def test_store_wide_statistics_need_a_key_for_all_tenants(shop: Site, path: str) -> None:
    problem(shop.call("GET", path, role="viewer"), 403, "wrong_tenant")
    assert shop.call("GET", path, role="viewer", tenant=ALL).status_code == 200


@pytest.mark.parametrize("path", ["/api/stats", "/api/stats/lag", "/api/alerts", "/metrics"])
def test_statistics_and_metrics_need_a_key(shop: Site, path: str) -> None:
    assert shop.client.request("GET", path).status_code == 401


def test_windows_and_limits_are_validated_per_report(busy: Site) -> None:
    assert look(busy, "/api/stats/lag?longer_than=0&window=600")["rows"]
    assert len(look(busy, "/api/stats/throughput?window=7d")["rows"]) == 168
    assert len(look(busy, "/api/stats/tenants?limit=1&window=3600")["rows"]) == 1
    for wrong in (
        "lag?limit=1",
        "by_status?window=60",
        "lag?window=0",
        "tenants?limit=501",
        "throughput?window=2h",
    ):
        answer = busy.call("GET", f"/api/stats/{wrong}", role="viewer", tenant=ALL)
        problem(answer, 422, "invalid_request")


def test_an_unknown_report_is_not_found(shop: Site) -> None:
    assert shop.call("GET", "/api/stats/nonsense", role="viewer", tenant=ALL).status_code == 404


def test_metrics_use_the_prometheus_text_format(busy: Site) -> None:
    answer = busy.call("GET", "/metrics", role="viewer", tenant=ALL)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'tidemill_queue_depth{queue="mail"} 2' in answer.text.splitlines()


def test_a_query_model_has_the_parameters_of_its_report() -> None:
    assert set(query_of("lag").model_fields) == {"tenant", "store", "window", "longer_than"}
    assert set(query_of("orphans").model_fields) == {"tenant", "store", "limit"}
