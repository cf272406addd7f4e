"""The page about workers and leases, and its actions."""

from __future__ import annotations

from datetime import timedelta

from tests.interfaces.dashboard.crowd import HOUR, claim, join, lead, post, words
from tests.interfaces.dashboard.kit import House

from tidemill.domain.cluster import holder_data
from tidemill.ids import new_id


def test_a_worker_is_shown_with_the_jobs_it_holds(shop: House) -> None:
    worker = join(shop, "grinder", node="rack-4", queues=("mail",), tasks=("send", "look"))
    ids = [post(shop) for _ in range(5)]
    assert len(claim(shop, worker, 4)) == 4
    page = shop.person("viewer").open("/workers")
    read = words(page)
    assert "grinder pid 7, node rack-4 , version 1.2.3" in read
    assert "4 of 4" in read
    assert "mail 2 tasks" in read
    assert "and 1 more" in read
    assert sum(f'/jobs/{id}"' in page for id in ids) == 3
    assert 's-alive"' in page
    assert "Drain" not in read  # a viewer cannot drain


def test_the_page_of_one_worker_shows_every_job_it_holds(shop: House) -> None:
    worker = join(shop, "grinder")
    ids = {post(shop, to="ada"), post(shop, tenant="other", to="eve")}
    claim(shop, worker, 2)
    page = shop.person("viewer").open(f"/workers/{worker.id}")
    assert all(f'/jobs/{id}"' in page for id in ids)
    assert "No job finished in the last hour." in page
    chosen = shop.person("viewer").open(f"/workers/{worker.id}?tenant=other")
    assert sum(f"/jobs/{id}?tenant=other" in chosen for id in ids) == 1
    assert "there is no worker" in shop.person("viewer").open(
        f"/workers/{'0' * 8}-0000-7000-8000-000000000000", 404
    )


def test_the_page_of_a_worker_shows_the_jobs_it_ended(shop: House) -> None:
    id = post(shop)
    with shop.app.worker(concurrency=1, threads=1, children=0, grace=1):
        assert shop.app.jobs.get(id, tenant="acme").result(timeout=60) == "sent to ada"
    (worker,) = shop.app.store.workers()
    page = shop.person("viewer").open(f"/workers/{worker.id}")
    assert f'/jobs/{id}"' in page
    assert "Ended 1 Completed 1 Failed 0" in words(page)
    assert 's-stopped"' in page


def test_the_jobs_that_a_worker_ended_are_listed_by_their_end(shop: House) -> None:
    with shop.app.tenant("acme"):
        send = shop.app.bound_task("send")
        ended_last = send.enqueue(to="ada")
        ended_first = send.using(priority=10).enqueue(to="ann")
    with shop.app.worker(concurrency=1, threads=1, children=0, grace=1):
        assert ended_last.result(timeout=60) == "sent to ada"
    (worker,) = shop.app.store.workers()
    page = shop.person("viewer").open(f"/workers/{worker.id}")
    assert page.index(str(ended_last.id)) < page.index(str(ended_first.id))


def test_dead_workers_are_folded(shop: House) -> None:
    join(shop, "old-one", lease=timedelta(microseconds=1))
    page = shop.person("viewer").open("/workers")
    assert "No worker is alive." in page
    assert page.index('<details id="gone-workers">') < page.index("old-one")


def test_draining_needs_confirmation_and_is_recorded_in_the_audit_log(shop: House) -> None:
    worker = join(shop, "grinder")
    post(shop)
    claim(shop, worker)
    person = shop.person("admin")
    asked = person.open(f"/workers/{worker.id}/drain")
    assert "It finishes the job that it holds" in asked
    after = person.send(f"/workers/{worker.id}/drain", "/drain")
    assert "grinder finishes its jobs" in after
    assert "draining" in words(after)
    (entry,) = [record.entry for record in shop.app.audit.list(tenant="*", action="worker.drained")]
    assert "admin of all" in entry.who
    assert "worker.drained" in person.open(f"/workers/{worker.id}")
    assert f"/workers/{worker.id}/drain" not in after  # a draining worker has no button


def test_a_dead_worker_cannot_be_drained(shop: House) -> None:
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
    assert "Release" not in read


def test_the_lease_of_a_supervisor_links_to_its_workers_and_back(shop: House) -> None:
    workers = [join(shop, "mill-8"), join(shop, "mill-9")]
    store, holder = shop.app.store, new_id()
    lease = store.acquire("duties", holder, ttl=HOUR)
    assert lease is not None
    facts = {"holder": holder_data("mill-7", [worker.id for worker in workers]), "duties": {}}
    assert store.renew("duties", holder, lease.term, ttl=HOUR, metadata=facts)
    person = shop.person("admin")
    page = person.open("/workers")
    supervised = words(page)[words(page).index("Holder") :]
    assert supervised.startswith("Holder mill-7, which supervises")
    assert all(f'<a href="/workers/{worker.id}">{worker.name}</a>' in page for worker in workers)
    assert str(holder) not in page
    assert "Leases duties" in words(person.open(f"/workers/{workers[0].id}"))
    assert "mill-7 holds it in term 1" in person.open("/leases/release?name=duties")


def test_an_unused_lease_is_labelled_as_unused(shop: House) -> None:
    worker = join(shop, "grinder")
    lead(shop, worker, ticked_at=shop.app.clock.now())
    store = shop.app.store
    assert store.renew("duties", worker.id, 1, ttl=HOUR, metadata={"coordination": "everyone"})
    assert store.release("duties", worker.id, 1)
    read = words(shop.person("viewer").open("/workers"))
    assert (
        "Lease duties not used The workers share the duties without this lease (coordination: everyone)."
        in read
    )
    assert "Holder" not in read


def test_a_leader_that_is_alive_and_idle_is_marked(shop: House) -> None:
    worker = join(shop, "grinder")
    now = shop.app.clock.now()
    lead(shop, worker, ticked_at=now - HOUR / 2, acquired_at=now - HOUR / 2)
    page = shop.person("viewer").open("/workers")
    assert "has performed none of its duties for" in page
    overview = shop.person("viewer").open("/")
    assert "The holder of lease duties is alive" in overview
    assert 'class="go" href="/workers">Workers' in overview


def test_a_lease_is_released_after_confirmation(shop: House) -> None:
    worker = join(shop, "grinder")
    lead(shop, worker, ticked_at=shop.app.clock.now())
    person = shop.person("admin")
    assert "grinder holds it in term 1" in person.open("/leases/release?name=duties")
    after = person.send("/leases/release?name=duties", "/leases/release")
    assert "The lease duties was released." in after
    (lease,) = shop.app.store.leases()
    assert lease.holder is None
    assert "It is not held now." in person.open("/leases/release?name=duties")
    assert "there is no lease" in person.open("/leases/release?name=other", 404)


def test_a_key_of_one_tenant_sees_no_workers_and_no_link_to_them(shop: House) -> None:
    person = shop.person("super_admin", "acme")
    assert "requires a key of all tenants" in person.open("/workers", 403)
    page = person.open("/")
    assert 'data-go="w"' not in page
    assert 'id="crew"' not in page


def test_workers_are_grouped_by_host_with_their_slots_in_use(shop: House) -> None:
    for host, name in (("mill", "mill-1"), ("mill", "mill-2"), ("barn", "barn-1")):
        join(shop, name, host=host, concurrency=4)
    worker = join(shop, "mill-3", host="mill", concurrency=4)
    post(shop)
    claim(shop, worker)
    page = shop.person("viewer").open("/workers")
    hosts = [part.split("</th>")[0] for part in page.split('<th scope="rowgroup" colspan="2">')[1:]]
    assert [host.split()[0] for host in hosts] == ["barn", "mill"]
    assert "3 workers" in hosts[1]
    assert "1 of 12" in page
    assert page.index("mill-3") < page.index("mill-1"), "the busiest worker comes first"
    assert 'aria-label="Slots in use by mill-3"' in page
