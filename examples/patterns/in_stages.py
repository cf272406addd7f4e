"""A job in three stages with a log of each: a CV is extracted, made into sections, and formatted.

    python examples/patterns/in_stages.py [STORE]

Stages are timed, and log lines know theirs. ``Review`` hands the result to a person, who approves or rejects it.
"""

from __future__ import annotations

import sys

from tidemill import App, Context, Review

app = App(sys.argv[1] if len(sys.argv) > 1 else "memory://", migrate=True, name="cv")


@app.task(queue="documents")
async def document_cv(ctx: Context, text: str, sure: bool = True) -> dict[str, str]:
    """Make a tidy CV of a text."""
    with ctx.stage("extract"):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        ctx.log("lines found", lines=len(lines))
        ctx.progress(0.3, "extracted")
    with ctx.stage("sections"):
        sections = dict(line.split(":", 1) for line in lines if ":" in line)
        if len(sections) < len(lines):
            ctx.log("lines without a heading", level="warning", lines=len(lines) - len(sections))
        ctx.progress(0.7, "in sections")
    with ctx.stage("format"):
        tidy = {name.strip().title(): words.strip() for name, words in sections.items()}
        ctx.progress(1.0, "formatted")
    if not sure:
        raise Review("is this CV right?", output=tidy)
    return tidy


def main() -> None:
    """One that is sure, and one that a person looks at."""
    with app:
        text = "name: Ada\nwork: mathematics\nsomething else"
        sure = document_cv.enqueue(text=text)
        asked = document_cv.enqueue(text=text, sure=False)
        app.testing().drain()
        print(f"{sure.refresh().status}: {sure.value}")
        for entry in sure.logs():
            print(f"  {entry.level:<7} {entry.stage or '-':<9} {entry.message}")
        print(f"{asked.refresh().status}: {asked.reason}")
        asked.approve("looks right")
        print(f"{asked.refresh().status}")


if __name__ == "__main__":
    main()
