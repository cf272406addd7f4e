"""Calls that type checkers refuse, each on a line marked so. Never run."""

from __future__ import annotations

from tidemill import App, Context

app = App("memory://")


@app.task
def plain(number: int, word: str = "x") -> float:
    return number / len(word)


@app.task
async def backup(ctx: Context, destination: str) -> int:
    return 1


def calls() -> None:
    plain.enqueue("1")  # wrong
    plain.enqueue()  # wrong
    plain.enqueue(1, 2)  # wrong
    plain.enqueue(1, colour="red")  # wrong
    backup.enqueue(destination=1)  # wrong
    backup.enqueue(1)  # wrong
    plain.using(prioritty=1)  # wrong
    plain.using(priority="high")  # wrong
    text: str = plain.enqueue(1).result()  # wrong
    print(text)
