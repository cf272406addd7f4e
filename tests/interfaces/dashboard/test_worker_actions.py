"""The tree of workers, and its actions: pause, resume and scale."""

from __future__ import annotations

from typing import Any

from tests.interfaces.dashboard.crowd import join, post, words
from tests.interfaces.dashboard.kit import House

from tidemill.domain.cluster import Worker
from tidemill.domain.worker_reports import ProcessFigures, SlotCounts, SupervisorReport, WorkerReport
from tidemill.ids import new_id

SLOTS = SlotCounts(10, 5, 0)


def supervised(shop: House, *places: int, **facts: Any) -> list[Worker]:
    """Register runners of one supervisor, the last place first in the order of time."""
    above = SupervisorReport("mill-7", 7, len(places), ProcessFigures(40 * 2**20, 0.02))
    supervisor = new_id()
    return [
        join(
            shop, f"mill-{10 + place}", supervisor=supervisor, place=place, pid=10 + place, concurrency=15,
            report=WorkerReport(SLOTS, ProcessFigures(place * 2**30, place * 0.75), above), **facts,
        )
        for place in places
    ]  # fmt: skip


def test_runners_are_below_their_supervisor_with_their_memory_and_cpu(shop: House) -> None:
    supervised(shop, 2, 1)
    join(shop, "alone", report=WorkerReport(SLOTS))
    read = words(shop.person("viewer").open("/workers"))
    tree = [
        "mill 3 workers",
        "Supervisor mill-7",
        "pid 7, 2 of 2 processes",
        "2 % 40 MiB",
        "mill-11",
        "75 % 1.0 GiB",
    ]
    tree += ["mill-12", "150 % 2.0 GiB"]
    places = [read.index(text) for text in tree]
    assert places == sorted(places)
    assert "– –" in read[read.index("alone") :]  # a worker without a report shows no zero
    assert "Scale" not in read


def test_a_worker_is_paused_after_a_question_and_resumed(shop: House) -> None:
    (worker,) = supervised(shop, 1)
    person = shop.person("operator")
    asked = words(person.open(f"/workers/{worker.id}/pause"))
    assert "claims no more until it is resumed" in asked
    after = person.send(f"/workers/{worker.id}/pause", "/pause")
    assert "mill-11 claims nothing more" in after
    assert shop.app.store.beat([worker.id], lease=worker.expires_at - worker.beat_at).paused == {worker.id}  # type: ignore[operator]
    assert f"/workers/{worker.id}/pause" not in after
    assert "Drain" not in words(after)  # an operator cannot drain
    again = person.send("/workers", f"/workers/{worker.id}/resume")
    assert "mill-11 claims jobs again" in again
    actions = [row.entry.action for row in shop.app.audit.list(tenant="*", subject=f"worker:{worker.id}")]
    assert sorted(actions) == ["worker.paused", "worker.resumed"]


def test_a_supervisor_is_scaled_by_a_form_that_shows_its_numbers(shop: House) -> None:
    first, second = supervised(shop, 1, 2)
    person = shop.person("admin")
    page = person.open("/workers")
    assert f"/workers/{first.id}/scale" in page or f"/workers/{second.id}/scale" in page
    form = person.open(f"/workers/{first.id}/scale")
    assert "Scale mill-7" in words(form)
    assert 'name="children"' not in form  # the worker was started without
    after = person.send(f"/workers/{first.id}/scale", "/scale", processes="4", threads="6")
    assert "4 processes with 16 slots each" in after
    pulse = shop.app.store.beat([second.id], lease=second.expires_at - second.beat_at)  # type: ignore[operator]
    scale = pulse.scales[second.id].scale
    assert (scale.processes, scale.slots) == (4, SlotCounts(10, 6, 0))


def test_a_number_out_of_bounds_is_explained_at_its_field(shop: House) -> None:
    (worker,) = supervised(shop, 1)
    person = shop.person("admin")
    answer = person.post(f"/workers/{worker.id}/scale", processes="129")
    assert answer.status_code == 422
    assert "128" in words(answer.text)
    assert shop.app.store.beat([worker.id], lease=worker.expires_at - worker.beat_at).scales == {}  # type: ignore[operator]


def test_a_worker_of_an_older_version_has_no_buttons_but_drain(shop: House) -> None:
    worker = join(shop, "old-version")
    person = shop.person("admin")
    read = person.open("/workers")
    assert f"/workers/{worker.id}/drain" in read
    assert f"/workers/{worker.id}/pause" not in read
    assert f"/workers/{worker.id}/scale" not in read
    assert "cannot be scaled" in person.open(f"/workers/{worker.id}/scale", 422)


def test_a_queue_shows_its_depth_over_time(shop: House) -> None:
    for _ in range(3):
        post(shop)
    store = shop.app.store
    store.put_depths(store.measure_depths())
    queue = shop.app.registry.get("send").options.queue
    person = shop.person("viewer", "*")
    page = words(person.open(f"/queues/{queue}?window=1h"))
    assert "pending, at most 3" in page
    assert "scheduled, at most 0" in page
    assert f"Jobs that were waiting in {queue}" in person.open("/queues")
    of_one = shop.person("viewer", "acme")
    assert "pending, at most" not in words(of_one.open(f"/queues/{queue}?window=1h"))
    assert "Jobs that were waiting" not in of_one.open("/queues")
