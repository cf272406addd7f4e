"""A project with django-tenants: a job runs in the schema of the tenant whose code enqueued it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contrib.django.test_project import Project

SET_UP = """
from customers.models import Customer, Domain
from django.test import Client
from django_tenants.utils import schema_context
from shop import tasks
from shop.models import Order
tasks.send.enqueue(to="ada")
for name in ("acme", "bolt"):
    Domain.objects.create(domain=f"{name}.test", tenant=Customer.objects.create(schema_name=name))
for name in ("acme", "bolt"):
    assert Client().get("/orders/chair", headers={"host": f"{name}.test"}).status_code == 202
    assert Client().get("/orders/bad", headers={"host": f"{name}.test"}).status_code == 409
    with schema_context(name):
        Order.objects.create(name="sofa", state=name)
        for _ in range(10):
            tasks.paint.enqueue(name="sofa")
print("1")
"""

LOOK = """
import json
from collections import Counter
from django_tenants.utils import schema_context
from shop.models import Order
from tidemill.contrib.django import app
jobs = app.jobs.list(tenant="*", limit=100).items
states = {}
for name in ("acme", "bolt"):
    with schema_context(name):
        states[name] = [order.state for order in Order.objects.order_by("pk")]
        assert {job.tenant for job in app.jobs.list().items} == {name}
counts = Counter((job.task, job.tenant, job.status) for job in jobs)
print(json.dumps([states, sorted([*key, number] for key, number in counts.items())]))
"""

VALUES = """
import json
from tidemill.contrib.django import app
jobs = app.jobs.list(tenant="*", task="mail.paint", limit=100).items
print(json.dumps(sorted({(job.tenant, job.value) for job in jobs})))
"""

REFUSED = """
import asyncio
import json
from django_tenants.utils import schema_context
from shop import tasks
from tidemill.contrib.django import app
from tidemill.errors import UsageError
async def story():
    try:
        await tasks.send.aenqueue(to="ada")
    except UsageError as error:
        text = str(error)
    with app.tenant("acme"):
        job = await tasks.send.aenqueue(to="ada")
    return [text, job.tenant]
answer = asyncio.run(story())
with app.tenant("gone"):
    lost = tasks.send.enqueue(to="ada")
app.tick(budget=30)
answer.append([lost.refresh().status, lost.error.message])
print(json.dumps(answer))
"""


@pytest.mark.long
def test_jobs_run_in_the_schema_of_their_tenant(tmp_path: Path, fresh_postgres_url: str) -> None:
    project = Project(fresh_postgres_url, tmp_path, SHOP_TENANTS="1")
    project.manage("migrate_schemas", "--shared")
    assert project.shell(SET_UP) == 1
    project.manage("tidemill", "tick")
    states, counts = project.shell(LOOK)
    assert states == {"acme": ["shipped by bike", "acme"], "bolt": ["shipped by bike", "bolt"]}
    assert counts == [
        ["mail.paint", "acme", "completed", 10],
        ["mail.paint", "bolt", "completed", 10],
        ["mail.send", "default", "completed", 1],
        ["shop.tasks.ship", "acme", "completed", 1],
        ["shop.tasks.ship", "bolt", "completed", 1],
    ]
    assert project.shell(VALUES) == [["acme", "acme acme"], ["bolt", "bolt bolt"]]
    refused, tenant, lost = project.shell(REFUSED)
    assert "a coroutine has no current schema" in refused
    assert tenant == "acme"
    assert lost == ["failed", "no tenant of this project has the schema 'gone'"]


def test_wrong_tenant_scopes_are_reported(tmp_path: Path) -> None:
    for path, message in (
        ("shop.nothing.Here", "No module named"),
        ("json.dumps", "which has no method current()"),
    ):
        project = Project(f"sqlite:///{tmp_path}/shop.sqlite3", tmp_path)
        done = project.manage("check", check=False, SHOP_TIDEMILL=f'{{"tenants": "{path}"}}')
        assert done.returncode == 1
        assert message in done.stderr
