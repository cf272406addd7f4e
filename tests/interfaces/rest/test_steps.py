"""``GET /api/jobs/{id}/steps``: the recorded steps of a durable function."""

from __future__ import annotations

from tests.interfaces.rest.kit import Site

from tidemill import Context, PermanentError


def fail() -> None:
    raise PermanentError("no funds")


def begun(shop: Site) -> str:
    """Create a job with a result, a caught failure and a sleep; return its id."""

    @shop.app.task(name="durable")
    def durable(ctx: Context) -> int:
        value = ctx.step("count", len, "abc")
        try:
            ctx.step("charge", fail)
        except PermanentError:
            ctx.sleep("rest", "1h")
        return value

    id: str = shop.create("durable", args={})["id"]
    shop.drain()
    return id


def test_the_steps_of_a_job_are_listed_with_their_results(shop: Site) -> None:
    id = begun(shop)
    items = {item["name"]: item for item in shop.get(f"/api/jobs/{id}/steps", role="operator")["items"]}
    assert set(items) == {"count", "charge", "rest"}
    assert (items["count"]["kind"], items["count"]["value"], items["count"]["tries"]) == ("value", 3, 1)
    assert items["count"]["took"] >= 0
    assert (items["charge"]["kind"], items["charge"]["value"]) == ("error", "PermanentError: no funds")
    assert items["rest"]["kind"] == "sleep"
    assert "at" in items["rest"]["value"]


def test_a_viewer_may_not_read_the_results_of_steps(shop: Site) -> None:
    id = begun(shop)
    assert shop.call("GET", f"/api/jobs/{id}/steps", role="viewer").status_code == 403


def test_a_job_without_steps_has_an_empty_list_and_an_unknown_job_is_not_found(shop: Site) -> None:
    @shop.app.task(name="plain")
    def plain() -> None:
        pass

    id = shop.create("plain", args={})["id"]
    assert shop.get(f"/api/jobs/{id}/steps", role="operator")["items"] == []
    unknown = "01a1ee0e-9941-7000-b5fc-ad5c0876d170"
    assert shop.call("GET", f"/api/jobs/{unknown}/steps", role="operator").status_code == 404


def test_the_stages_of_a_job_are_listed_with_states_and_times(shop: Site) -> None:
    @shop.app.task(name="staged", stages=("extract", "load"))
    def staged(ctx: Context) -> None:
        with ctx.stage("extract"):
            pass

    id: str = shop.create("staged", args={})["id"]
    shop.drain()
    first, second = shop.get(f"/api/jobs/{id}/stages", role="viewer")["items"]
    assert (first["name"], first["state"], first["execution"]) == ("extract", "done", 1)
    assert first["began_at"] <= first["ended_at"]
    assert (second["name"], second["state"], second["took"]) == ("load", "not reached", None)
