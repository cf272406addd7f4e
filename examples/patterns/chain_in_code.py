"""One job leads to the next: content is published, indexed, and its embeddings are made.

    python examples/patterns/chain_in_code.py [STORE]

The chain is in the code, where one can read it and branch. A published event begins it. What is enqueued inside a job is its
child and carries its correlation id. ``ctx.then`` stores the child in the transaction that completes the job, so an attempt that
fails leaves no child behind, and a retry does not make a second one.
"""

from __future__ import annotations

import sys

from tidemill import App, Context, Event, Unique

app = App(sys.argv[1] if len(sys.argv) > 1 else "memory://", migrate=True, name="content")


@app.task(priority=10, unique=Unique(by=("content",)))
def index_content(ctx: Context, content: int, words: int) -> int:
    """Put it into the search index; long texts get embeddings too."""
    with ctx.stage("index"):
        ctx.log("indexed", content=content, words=words)
    if words >= 100:
        ctx.then(generate_embeddings, content=content)
    return words


@app.task
def generate_embeddings(ctx: Context, content: int) -> list[float]:
    """Make a vector of it."""
    ctx.progress(1.0, "one vector made")
    return [float(content), 0.5]


@app.events.on("content.published")
def begin(event: Event) -> None:
    match event.data:
        case {"content": int(content), "words": int(words)}:
            index_content.enqueue(content=content, words=words)


def publish(app: App, content: int, words: int) -> None:
    """What the rest of the program does: it tells, and knows nothing of jobs."""
    app.events.publish(Event("content.published", app.clock.now(), data={"content": content, "words": words}))


def main() -> None:
    """Two texts, one of them long."""
    with app:
        publish(app, content=1, words=20)
        publish(app, content=2, words=900)
        app.testing().drain()
        for job in app.jobs.stream():
            parent = job.row.details.parent_id
            after = f" after {app.jobs.get(parent).task}" if parent is not None else ""
            print(f"{job.task}{after}: {job.value}")


if __name__ == "__main__":
    main()
