"""Masked values cannot be read through limits, unique keys, filters or texts."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.interfaces.dashboard.kit import House, house

from tidemill import Limit, Rate, Unique

CANARY = "CANARY-4711"


@pytest.fixture
def masked_shop() -> Iterator[House]:
    with house() as shop:

        @shop.app.task(
            limits=[Limit(1, key="password"), Rate(5, per="1 h", key="pin", name="by_pin")],
            unique=Unique(by=("password",)),
        )
        def pay(password: str, pin: str, order: int) -> None: ...

        with shop.app.tenant("acme"):
            for order in range(2):
                pay.using(metadata={"pin": CANARY, "customer": "ada"}).enqueue(
                    password=f"{CANARY}{order}", pin=CANARY, order=order
                )
        yield shop


def test_a_viewer_finds_no_masked_value_on_any_page(masked_shop: House) -> None:
    viewer = masked_shop.person("viewer", "*")
    jobs = masked_shop.app.jobs.list(tenant="acme").items
    bearer = {"authorization": f"Bearer {masked_shop.key('viewer', '*')}"}
    paths = ["/queues", "/tasks/pay", "/jobs", "/", "/api/jobs", "/api/queues"]
    for job in jobs:
        row = job.row
        assert row.unique_key is not None
        paths += [f"/jobs/{job.id}", f"/api/jobs/{job.id}", f"/api/jobs/{job.id}/why"]
        for path in paths:
            text = viewer.ask("GET", path, headers=bearer if path.startswith("/api") else {}).text
            assert CANARY not in text, path
            assert row.unique_key not in text, path
            assert not [name for name in row.limits if name in text], path
    page = viewer.open(f"/jobs/{jobs[0].id}")
    assert "by_pin/***" in page
    assert "pay:***" in page
    document = json.loads(viewer.ask("GET", f"/api/jobs/{jobs[0].id}", headers=bearer).text)
    assert document["unique_key"] == "pay:***"
    assert sorted(document["limits"]) == ["by_pin/***", "pay.limit.password/***"]


def test_the_store_holds_no_secret_looking_value_in_the_name_of_a_limit(masked_shop: House) -> None:
    one, other = masked_shop.app.jobs.list(tenant="acme").items
    assert all(CANARY not in name for name in (*one.row.limits, *other.row.limits))
    shared = set(one.row.limits) & set(other.row.limits)
    assert [name.partition("/")[0] for name in shared] == ["by_pin"]  # one value is still one limit


def test_a_viewer_cannot_filter_by_masked_metadata(masked_shop: House) -> None:
    viewer, operator = (masked_shop.person(role, "acme") for role in ("viewer", "operator"))
    for pin in (CANARY, "0000"):
        for path in (
            f"/jobs?metadata=pin={pin}",
            f"/api/jobs?metadata=pin={pin}",
            f"/api/archive/jobs?metadata=pin={pin}",
        ):
            bearer = {"authorization": f"Bearer {masked_shop.key('viewer', 'acme')}"}
            answer = viewer.ask("GET", path, headers=bearer if "/api" in path else {})
            assert answer.status_code == 403
            assert "is masked for the role viewer" in answer.text
    assert viewer.ask("GET", "/jobs?metadata=customer=ada").status_code == 200
    assert operator.ask("GET", f"/jobs?metadata=pin={CANARY}").status_code == 200
