"""The page of workers and duties: who is there, what they hold, draining one, and taking a lease away."""

from __future__ import annotations

from datetime import timedelta

from tests.interfaces.dashboard.crowd import HOUR, claim, join, lead, post, words
from tests.interfaces.dashboard.kit import House


def test_a_worker_is_shown_with_what_it_holds(shop: House) -> None:
    worker = join(shop, "grinder", node="rack-4", queues=("mail",), tasks=("send", "look"))
    ids = [post(shop) for _ in range(5)]
    assert len(claim(shop, worker, 4)) == 4
    page = shop.person("viewer").open("/workers")
    read = words(page)
    assert "grinder mill, pid 7, node rack-4 , version 1.2.3" in read
    assert "4 of 4" in read
    assert "mail 2 tasks" in read
    assert "and 1 more" in read
    assert sum(f'/jobs/{id}"' in page for id in ids) == 3
    assert 's-alive"' in page
    assert "Drain" not in read  # a viewer looks


def test_the_page_of_one_worker_shows_every_job_it_holds(shop: House) -> None:
    worker = join(shop, "grinder")
    ids = {post(shop, to="ada"), post(shop, tenant="other", to="eve")}
    claim(shop, worker, 2)
    page = shop.person("viewer").open(f"/workers/{worker.id}")
    assert all(f'/jobs/{id}"' in page for id in ids)
    assert "It ended nothing in the last hour." in page
    chosen = shop.person("viewer").open(f"/workers/{worker.id}?tenant=other")
    assert sum(f"/jobs/{id}?tenant=other" in chosen for id in ids) == 1
    assert "there is no worker" in shop.person("viewer").open(
        f"/workers/{'0' * 8}-0000-7000-8000-000000000000", 404
    )


def test_what_a_worker_ended_is_on_its_page(shop: House) -> None:
    id = post(shop)
    with shop.app.worker(concurrency=1, threads=1, children=0, grace=1):
        assert shop.app.jobs.get(id, tenant="acme").result(timeout=60) == "sent to ada"
    (worker,) = shop.app.store.workers()
    page = shop.person("viewer").open(f"/workers/{worker.id}")
    assert f'/jobs/{id}"' in page
    assert "Ended 1 Completed 1 Failed 0" in words(page)
    assert 's-gone"' in page


def test_workers_that_are_gone_are_folded_away(shop: House) -> None:
    join(shop, "old-one", lease=timedelta(microseconds=1))
    page = shop.person("viewer").open("/workers")
    assert "No worker is alive." in page
    assert page.index('<details id="gone-workers">') < page.index("old-one")


def test_draining_asks_first_and_is_written_down(shop: House) -> None:
    worker = join(shop, "grinder")
    post(shop)
    claim(shop, worker)
    person = shop.person("admin")
    asked = person.open(f"/workers/{worker.id}/drain")
    assert "It finishes the 1 job it holds" in asked
    after = person.send(f"/workers/{worker.id}/drain", "/drain")
    assert "grinder finishes what it holds" in after
    assert "draining" in words(after)
    (entry,) = [record.entry for record in shop.app.audit.list(tenant="*", action="worker.drained")]
    assert "admin of all" in entry.who
    assert "worker.drained" in person.open(f"/workers/{worker.id}")
    assert f"/workers/{worker.id}/drain" not in after  # not twice


def test_a_worker_that_is_gone_cannot_be_drained(shop: House) -> None:
    worker = join(shop, "old-one", lease=timedelta(microseconds=1))
    assert "no living worker" in shop.person("admin").open(f"/workers/{worker.id}/drain", 404)
    assert shop.person("admin").post(f"/workers/{worker.id}/drain").status_code == 404


def test_a_lease_is_shown_with_its_duties_and_their_errors(shop: House) -> None:
    worker = join(shop, "grinder")
    lead(shop, worker, ticked_at=shop.app.clock.now(), errors=3)
    page = shop.person("viewer").open("/workers")
    read = words(page)
    assert "Holder grinder" in read
    assert "Term 1" in read
    assert "promote" in read
    assert "StoreBusy: <b>try again</b>" in read
    assert "<b>try" not in page  # escaped
    assert "stuck" not in read
    assert "Take away" not in read


def test_a_leader_that_lives_and_does_nothing_is_marked(shop: House) -> None:
    worker = join(shop, "grinder")
    now = shop.app.clock.now()
    lead(shop, worker, ticked_at=now - HOUR / 2, acquired_at=now - HOUR / 2)
    page = shop.person("viewer").open("/workers")
    assert "has done none of its duties for" in page
    overview = shop.person("viewer").open("/")
    assert "The holder of lease duties is alive" in overview
    assert 'href="/workers">The workers' in overview


def test_a_lease_is_taken_away_after_a_question(shop: House) -> None:
    worker = join(shop, "grinder")
    lead(shop, worker, ticked_at=shop.app.clock.now())
    person = shop.person("admin")
    assert "grinder holds it in term 1" in person.open("/leases/release?name=duties")
    after = person.send("/leases/release?name=duties", "/leases/release")
    assert "The lease duties was taken away." in after
    (lease,) = shop.app.store.leases()
    assert lease.holder is None
    assert "Nobody holds it now." in person.open("/leases/release?name=duties")
    assert "there is no lease" in person.open("/leases/release?name=other", 404)


def test_a_key_of_one_tenant_sees_no_workers_and_no_way_there(shop: House) -> None:
    person = shop.person("super_admin", "acme")
    assert "concerns all tenants" in person.open("/workers", 403)
    page = person.open("/")
    assert 'data-go="w"' not in page
    assert 'id="crew"' not in page
