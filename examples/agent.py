"""An AI agent with tools and an approval: the model chooses tools in a loop, and a person allows the dangerous one.

    python examples/agent.py [STORE]

Every answer of the model and every tool call is a recorded step, so a crash neither asks the model again nor repeats a tool.
While the agent waits for the person, it holds no worker. Replace ``think`` with the call of your model.
"""

from __future__ import annotations

import sys
from typing import Any

from pydantic import BaseModel

from tidemill import App, Context, Exponential, Step

app = App(sys.argv[1] if len(sys.argv) > 1 else "memory://", migrate=True, name="agent")

MOST_TURNS = 10


class Approval(BaseModel):
    """The answer of a person."""

    allowed: bool


def think(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Stand-in for a language model: looks the order up, refunds it, and answers."""
    tools = [message["tool"] for message in messages if message["role"] == "tool"]
    if "find_order" not in tools:
        return {"tool": "find_order", "input": {"order": 42}}
    if "refund" not in tools:
        return {"tool": "refund", "input": {"order": 42, "amount": 99}}
    return {"answer": f"Done: {messages[-1]['content']}"}


def find_order(order: int) -> str:
    """A harmless tool."""
    return f"order {order}: 99 EUR, delivered"


@app.task(queue="payments")
def refund(order: int, amount: int) -> str:
    """A tool with its own queue and retries: it runs as a job of its own."""
    return f"{amount} EUR of order {order} refunded"


def use_tool(ctx: Context, turn: int, name: str, given: dict[str, Any]) -> str:
    """Call a tool. The dangerous one needs a person."""
    if name == "find_order":
        return str(ctx.step(Step("find_order", key=turn), find_order, **given))
    approval = ctx.ask(Approval, to="support", message=f"Allow {name} with {given}?", timeout="1d")
    if approval is None or not approval.allowed:
        return "a person refused"
    return str(ctx.call(f"refund-{turn}", refund, **given))


@app.task
def agent(ctx: Context, question: str) -> str:
    """Let the model use tools until it answers."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for turn in range(MOST_TURNS):
        retried = Step("think", key=turn, retry=Exponential(max_attempts=5))
        reply = ctx.step(retried, think, messages)
        if "answer" in reply:
            return str(reply["answer"])
        content = use_tool(ctx, turn, reply["tool"], reply["input"])
        messages = [*messages, {"role": "tool", "tool": reply["tool"], "content": content}]
    return "no answer after the last turn"


def main() -> None:
    """One question, with a crash after every step."""
    with app:
        runner = app.testing()
        job = agent.enqueue(question="Please refund order 42.")
        runner.resume_all()
        for question in app.signals.questions(job=job):
            print(f"{question.title} for {question.to}: {question.message}")
        app.signals.answer(job, {"allowed": True})
        runner.resume_all()
        print(job.refresh().result(timeout=1))
        print(f"{len(runner.kills)} crashes, steps: {', '.join(step.name for step in job.steps())}")


if __name__ == "__main__":
    main()
