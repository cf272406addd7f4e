"""Signals, events and questions over HTTP."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from tests.interfaces.rest.kit import Site

from tidemill import Context
from tidemill.rest.signals import QuestionDocument


class Decision(BaseModel):
    """An answer of a person."""

    granted: bool


def posted(shop: Site, path: str, body: dict[str, Any], *, status: int = 201) -> Any:
    """Post a document, and return the answer."""
    answer = shop.call("POST", path, body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def waiting(shop: Site) -> str:
    """Create a job that waits for a signal and then asks a person; return its id."""

    @shop.app.task(name="waits")
    def wait(ctx: Context) -> object:
        go = ctx.wait_for("go")
        decision = ctx.ask(Decision, to="finance")
        return [go, decision is not None and decision.granted]

    id: str = shop.create("waits", args={})["id"]
    shop.drain()
    return id


def test_a_signal_and_an_answer_resume_a_job(shop: Site) -> None:
    id = waiting(shop)
    (why,) = shop.get(f"/api/jobs/{id}/why")["items"]
    assert why["code"] == "waits_for_signal"
    assert posted(shop, f"/api/jobs/{id}/signal", {"name": "later", "payload": 1})["accepted"]
    assert posted(shop, f"/api/jobs/{id}/signals", {"name": "go", "payload": {"n": 1}, "key": "k"})[
        "accepted"
    ]
    assert posted(shop, f"/api/jobs/{id}/signal", {"name": "go", "key": "k"}, status=200) == {
        "accepted": False
    }
    shop.drain()
    (unread,) = shop.get(f"/api/jobs/{id}/signals", role="operator")["items"]
    assert (unread["name"], unread["payload"]) == ("later", 1)
    (question,) = shop.get("/api/questions")["items"]
    QuestionDocument.model_validate(question)
    assert (question["job"], question["name"], question["to"]) == (id, "Decision", "finance")
    wrong = posted(shop, f"/api/jobs/{id}/answer", {"answer": {"granted": "maybe"}}, status=422)
    assert wrong["code"] == "bad_arguments"
    answered = posted(shop, f"/api/jobs/{id}/answer", {"answer": {"granted": True}}, status=200)
    QuestionDocument.model_validate(answered)
    shop.drain()
    assert shop.get(f"/api/jobs/{id}")["value"] == [{"n": 1}, True]
    ended = posted(shop, f"/api/jobs/{id}/signal", {"name": "go"}, status=409)
    assert ended["code"] == "illegal_transition"


def test_events_are_emitted_once_and_listed(shop: Site) -> None:
    event = posted(shop, "/api/events", {"name": "paid", "payload": 3, "match": "42", "id": "evt_1"})
    assert (event["name"], event["match"], event["payload"]) == ("paid", "42", 3)
    assert posted(shop, "/api/events", {"name": "paid", "id": "evt_1"}, status=204) is None
    (listed,) = shop.get("/api/events/emitted?name=paid", role="operator")["items"]
    assert listed["id"] == event["id"]
    (masked,) = shop.get("/api/events/emitted", role="viewer")["items"]
    assert masked["payload"] == "***"
