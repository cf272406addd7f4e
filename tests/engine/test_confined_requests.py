"""Requests of a process that may be hostile: what its runner accepts."""

from __future__ import annotations

import os
import socket

import pytest
from tests.engine.kit import a_claim

from tidemill.domain.graph import Additions, StepRecord
from tidemill.domain.job import NewJob
from tidemill.domain.records import AuditEntry
from tidemill.engine.confinement.requests import check_following, keyed
from tidemill.engine.executors.child_process import ChildProcess
from tidemill.errors import UsageError
from tidemill.ids import new_id
from tidemill.tasks.secret_values import KEYS, new_key


def test_a_confined_job_cannot_write_for_another_tenant_or_job() -> None:
    claim = a_claim("{}")
    own = NewJob(new_id(), "work", tenant=claim.tenant)
    check_following(claim, [own], [(own.id, AuditEntry("x", "y", "z", claim.tenant))], Additions(jobs=(own,)))
    foreign = own._replace(tenant="another")
    with pytest.raises(ValueError, match="another tenant"):
        check_following(claim, [foreign], [], None)
    with pytest.raises(ValueError, match="another tenant"):
        check_following(claim, [], [(own.id, AuditEntry("x", "y", "z", "another"))], None)
    with pytest.raises(ValueError, match="another tenant"):
        check_following(claim, [], [], Additions(jobs=(foreign,)))
    with pytest.raises(ValueError, match="another job"):
        check_following(claim, [], [], Additions(records=(StepRecord(new_id(), 1, None, "a", "b"),)))


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
