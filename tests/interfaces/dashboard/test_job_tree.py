"""The tree of related jobs on the page of a job."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any
from uuid import UUID

import pytest
from tests.interfaces.dashboard.jobs_kit import put
from tests.interfaces.dashboard.kit import House
from tests.interfaces.rest.kit import Browser

from tidemill import Job


class _Outline(HTMLParser):
    """Collects the leaves of the tree, each with its depth, link and text."""

    def __init__(self) -> None:
        super().__init__()
        self.leaves: list[tuple[int, str, str]] = []
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "ul" and (self._depth or given.get("class") == "tree"):
            self._depth += 1
        elif tag == "li" and self._depth:
            self.leaves.append((self._depth, "", ""))
        elif tag == "a" and self._depth:
            depth, _, text = self.leaves[-1]
            self.leaves[-1] = (depth, given.get("href") or "", text)

    def handle_endtag(self, tag: str) -> None:
        if tag == "ul" and self._depth:
            self._depth -= 1

    def handle_data(self, data: str) -> None:
        if self._depth and self.leaves:
            depth, link, text = self.leaves[-1]
            self.leaves[-1] = (depth, link, " ".join([*text.split(), *data.split()]))


def outline(page: str) -> list[tuple[int, str, str]]:
    """The first tree of a page: depth, link and text of each line."""
    found = re.search(r'<ul class="tree" aria-label=.*?</section>', page, re.DOTALL)
    if found is None:
        return []
    parser = _Outline()
    parser.feed(found[0].partition("<h3>")[0])
    return parser.leaves


def links(page: str) -> list[tuple[int, str]]:
    return [(depth, link.removeprefix("/jobs/")) for depth, link, _ in outline(page)]


def family(shop: House, depth: int, **options: Any) -> list[Job[Any]]:
    """A job, its child, the child of that, and so on."""
    line = put(shop.app, **options)
    for _ in range(depth):
        line += put(shop.app, parent=line[-1].id, **options)
    return line


@contextlib.contextmanager
def restricted(shop: House, *grants: str) -> Iterator[Browser]:
    made = shop.app.keys.create("limited", role="viewer", tenant="acme", grants=list(grants))
    with contextlib.closing(Browser(shop.site_app)) as browser:
        browser.witness = None  # it knows only the keys of a house
        assert browser.request("POST", "/sign-in", data={"key": made.secret}).status_code == 303
        yield browser


def test_the_tree_has_ancestors_the_job_its_children_and_grandchildren(shop: House) -> None:
    root, parent, job, child, grandchild, below = family(shop, 5)
    page = shop.person("viewer", "acme").open(f"/jobs/{job.id}")
    assert links(page) == [
        (1, str(root.id)),
        (2, str(parent.id)),
        (3, ""),
        (4, str(child.id)),
        (5, str(grandchild.id)),
    ]
    assert str(below.id) not in page
    assert "send this job pending" in outline(page)[2][2]


def test_each_line_has_the_status_and_the_run_time(shop: House) -> None:
    (parent,) = put(shop.app)
    (child,) = put(shop.app, parent=parent.id)
    shop.drain()
    put(shop.app, parent=child.id, delay=timedelta(hours=1))
    lines = [text for _, _, text in outline(shop.person("viewer", "acme").open(f"/jobs/{child.id}"))]
    assert len(lines) == 3
    for line in lines[:2]:
        assert re.search(r"completed (<?\d+ ms|\d+ s)$", line), line
    assert re.search(r"scheduled created (now|\d+ (ms|s) ago)$", lines[2]), lines


def test_further_children_are_counted_and_linked(shop: House) -> None:
    (root,) = put(shop.app)
    children = put(shop.app, parent=root.id, number=23)
    put(shop.app, parent=children[0].id, number=8)
    lines = outline(shop.person("viewer", "acme").open(f"/jobs/{root.id}"))
    assert [depth for depth, _, _ in lines] == [1, 2, 3, 3, 3, 3, 3, 3, *[2] * 19, 2]
    assert lines[7][1:] == (f"/jobs?parent_id={children[0].id}", f"3 more of job {str(children[0].id)[-12:]}")
    assert lines[-1][1:] == (f"/jobs?parent_id={root.id}", f"3 more of job {str(root.id)[-12:]}")


def test_children_with_unread_children_link_to_them_without_a_number(shop: House) -> None:
    (root,) = put(shop.app)
    first, second = put(shop.app, parent=root.id, number=2)
    put(shop.app, parent=first.id, number=201)
    lines = outline(shop.person("viewer", "acme").open(f"/jobs/{root.id}"))
    assert [(depth, link) for depth, link, _ in lines if "parent_id" in link] == [
        (3, f"/jobs?parent_id={first.id}"),
        (3, f"/jobs?parent_id={second.id}"),
    ]
    assert lines[-1][2] == f"all children of send of job {str(second.id)[-12:]}"


def test_a_long_line_of_ancestors_ends_with_a_hint(shop: House) -> None:
    line = family(shop, 12)
    page = shop.person("viewer", "acme").open(f"/jobs/{line[-1].id}")
    assert [link for _, link in links(page)] == [*(str(job.id) for job in line[2:-1]), ""]
    assert "More ancestors are above" in page
    assert "More ancestors are above" not in shop.person("viewer", "acme").open(f"/jobs/{line[10].id}")


def test_an_archived_ancestor_is_shown_and_a_deleted_one_is_reported(shop: House) -> None:
    (root,) = put(shop.app)
    shop.drain()
    assert shop.app.archive.run(older_than=timedelta(0)).archived == 1
    (job,) = put(shop.app, parent=root.id)
    person = shop.person("viewer", "acme")
    assert links(person.open(f"/jobs/{job.id}")) == [(1, str(root.id)), (2, "")]
    shop.app.archive.erase(ids=[root.id], tenant="acme")
    page = person.open(f"/jobs/{job.id}")
    assert "The job above was deleted, or you may not see it." in page
    assert str(root.id) not in page


def test_a_job_of_another_tenant_is_not_named(shop: House) -> None:
    (root,) = put(shop.app, "look", tenant="other")
    (job,) = put(shop.app, parent=root.id)
    (foreign,) = put(shop.app, "look", tenant="other", parent=job.id)
    page = shop.person("super_admin", "acme").open(f"/jobs/{job.id}")
    assert str(root.id) not in page
    assert str(foreign.id) not in page
    assert links(page) == [(1, "")]
    everywhere = shop.person("super_admin").open(f"/jobs/{job.id}")
    assert links(everywhere) == [(1, str(root.id)), (2, ""), (3, str(foreign.id))]


def test_a_job_that_a_grant_hides_is_not_named_and_not_counted(shop: House) -> None:
    (root,) = put(shop.app, "look")
    (job,) = put(shop.app, parent=root.id)
    (child,) = put(shop.app, parent=job.id)
    hidden = put(shop.app, "look", parent=job.id, number=23)
    inner = put(shop.app, "look", parent=child.id, number=7)
    with restricted(shop, "jobs.* task=send") as browser:
        answer = browser.request("GET", f"/jobs/{job.id}")
    assert answer.status_code == 200
    for other in (root, *hidden, *inner):
        assert str(other.id) not in answer.text
    assert [link for _, link, _ in outline(answer.text)] == [
        "",
        f"/jobs/{child.id}",
        f"/jobs?parent_id={job.id}",
    ]
    assert "more of job" not in answer.text
    assert "The job above was deleted, or you may not see it." in answer.text


def test_the_flow_of_a_job_has_its_status_and_run_time(shop: House) -> None:
    with shop.app.tenant("acme"):
        flow = shop.app.flow("orders")
        flow.add(shop.app.bound_task("send"), to="ada").named("first")
        run = flow.start()
    shop.drain()
    (node,) = run.nodes()
    page = shop.person("viewer", "acme").open(f"/jobs/{node.id}")
    kin = page.partition('id="kin"')[2].partition("</section>")[0]
    words = " ".join(re.sub(r"<[^>]+>", " ", kin).split())
    assert f'href="/flows/{run.id}"' in kin
    assert re.search(r"Flow orders completed (<?\d+ ms|\d+ s) ?; this job is its node first", words), words


def test_a_job_without_relatives_has_no_tree(shop: House) -> None:
    (job,) = put(shop.app)
    assert 'id="kin"' not in shop.person("viewer", "acme").open(f"/jobs/{job.id}")


def test_the_number_of_reads_does_not_grow_with_the_tree(
    shop: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    store = shop.app.store
    for name in ("jobs", "get", "count"):
        real = getattr(store, name)

        def counted(*args: Any, _real: Any = real, _name: str = name, **more: Any) -> Any:
            reads.append(_name)
            return _real(*args, **more)

        monkeypatch.setattr(store, name, counted)

    def reads_of(id: UUID) -> int:
        person.open(f"/jobs/{id}")
        reads.clear()
        person.open(f"/jobs/{id}")
        return len(reads)

    person = shop.person("viewer", "acme")
    few = family(shop, 2, correlation_id="few")
    many = family(shop, 2, correlation_id="many")
    for child in put(shop.app, parent=many[1].id, number=15, correlation_id="many"):
        put(shop.app, parent=child.id, number=4, correlation_id="many")
    assert reads_of(many[1].id) == reads_of(few[1].id)
