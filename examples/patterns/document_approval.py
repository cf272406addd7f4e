"""A document is read, checked, approved by a person and published: one function that may take days.

    python examples/patterns/document_approval.py [STORE]

Each step is recorded, so a crash or a deployment repeats none of them. While the job waits for the review and for the answer of
a person, it holds no worker.
"""

from __future__ import annotations

import sys

from pydantic import BaseModel

from tidemill import App, Context

app = App(sys.argv[1] if len(sys.argv) > 1 else "memory://", migrate=True, name="documents")


class Decision(BaseModel):
    """The answer of a person."""

    publish: bool
    title: str = ""


def read_text(path: str) -> str:
    """Read the document."""
    return f"the text of {path}"


def publish(text: str, title: str) -> str:
    """Publish the text, and return its address."""
    return f"https://docs.example/{title}?words={len(text.split())}"


@app.task
def process(ctx: Context, path: str) -> str:
    """Read, check, ask and publish."""
    text = ctx.step("read", read_text, path)
    review = ctx.wait_for("reviewed", timeout="1d")
    if review is None:
        return f"{path}: the review took too long"
    message = f"{path} has {review['remarks']} remarks. Publish it?"
    decision = ctx.ask(Decision, to="editors", message=message, timeout="5d")
    if decision is None or not decision.publish:
        return f"{path}: not published"
    return ctx.step("publish", publish, text, decision.title)


def main() -> None:
    """One document that is published, and one that is not."""
    with app:
        runner = app.testing()
        report, memo = process.enqueue(path="report.txt"), process.enqueue(path="memo.txt")
        runner.drain()
        for job in (report, memo):
            app.signal(job, "reviewed", {"remarks": 2}, key="review")
        runner.drain()
        for question in app.signals.questions():
            print(f"{question.title} for {question.to}: {question.message}")
        app.signals.answer(report, {"publish": True, "title": "report"})
        app.signals.answer(memo, {"publish": False})
        runner.drain()
        for job in (report, memo):
            print(job.refresh().result(timeout=1))


if __name__ == "__main__":
    main()
