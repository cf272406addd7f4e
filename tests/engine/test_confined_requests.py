"""Requests of a process that may be hostile: what its runner accepts."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.engine.kit import a_claim

from tidemill.domain.graph import Additions, StepRecord
from tidemill.domain.job import NewJob
from tidemill.domain.records import AuditEntry
from tidemill.engine.confinement.requests import check_event, check_following, keyed
from tidemill.engine.executors.child_process import ChildProcess
from tidemill.errors import UsageError
from tidemill.ids import new_id
from tidemill.tasks.events import Event
from tidemill.tasks.secret_values import KEYS, new_key


def test_a_confined_job_cannot_write_for_another_tenant_or_job() -> None:
    claim = a_claim("{}")
    own = NewJob(new_id(), "work", tenant=claim.tenant)
    check_following(claim, [own], [], Additions(jobs=(own,)))
    foreign = own._replace(tenant="another")
    with pytest.raises(ValueError, match="another tenant"):
        check_following(claim, [foreign], [], None)
    with pytest.raises(ValueError, match="another tenant"):
        check_following(claim, [], [(own.id, AuditEntry("x", "y", "z", "another"))], None)
    with pytest.raises(ValueError, match="another tenant"):
        check_following(claim, [], [], Additions(jobs=(foreign,)))
    with pytest.raises(ValueError, match="another job"):
        check_following(claim, [], [], Additions(records=(StepRecord(new_id(), 1, None, "a", "b"),)))


def test_a_confined_job_is_the_actor_of_its_audit_entries() -> None:
    claim = a_claim("{}")
    own = NewJob(new_id(), "work", tenant=claim.tenant)
    entry = AuditEntry("key:ab12 (ann)", "job.enqueued", f"job:{own.id}", claim.tenant)
    ((id, written),) = check_following(claim, [own], [(own.id, entry)], None)
    assert (id, written.who) == (own.id, f"job:{claim.id} (key:ab12 (ann))")
    for forged in (
        replace(entry, action="keys.created"),
        replace(entry, subject="key:ab12"),
        replace(entry, action="jobs.enqueued"),
    ):
        with pytest.raises(ValueError, match="not about a job that this one enqueues"):
            check_following(claim, [own], [(own.id, forged)], None)
    with pytest.raises(ValueError, match="not about a job that this one enqueues"):
        check_following(claim, [], [(own.id, entry)], None)


def test_a_confined_job_publishes_no_event_of_tidemill_or_of_another_tenant() -> None:
    claim = a_claim("{}")
    now = datetime.now(UTC)
    check_event(claim, Event("order.paid", now))
    check_event(claim, Event("order.paid", now, tenant=claim.tenant))
    with pytest.raises(ValueError, match="another tenant"):
        check_event(claim, Event("order.paid", now, tenant="another"))
    for name in ("job.finished", "alert.raised"):
        with pytest.raises(ValueError, match="only Tidemill uses"):
            check_event(claim, Event(name, now, tenant=claim.tenant))


def test_a_confined_job_opens_only_its_own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS, new_key("k1"))
    claim, other, definition = a_claim("{}"), new_id(), new_id()

    def ask(kind: str, job: object, text: str) -> object:
        return keyed(claim, definition, {"kind": kind, "job": str(job), "field": "pin", "text": text})

    for owner in (claim.id, definition):
        sealed = ask("seal", owner, '"4711"')
        assert isinstance(sealed, dict)
        assert ask("open", owner, sealed["$sealed"]) == '"4711"'
    foreign = ask("seal", other, '"4711"')
    assert isinstance(foreign, dict)
    with pytest.raises(UsageError, match="only its own secrets"):
        ask("open", other, foreign["$sealed"])


def test_the_channels_of_a_worker_have_no_address() -> None:
    child = ChildProcess("tests.engine.isolated_app:app")
    try:
        with socket.socket(fileno=os.dup(child.wire.fileno())) as channel:
            assert channel.family is socket.AF_UNIX
            assert channel.getsockname() == ""
            assert channel.getpeername() == ""
    finally:
        child.reap()
