"""Calls that type checkers reject, each marked on its line; never executed."""

from __future__ import annotations

import tidemill
from tidemill import App, Context, Every, Fixed, Rate, TaskGroup, task

app = App("memory://")


@app.task
def plain(number: int, word: str = "x") -> float:
    return number / len(word)


@app.task
async def backup(ctx: Context, destination: str) -> int:
    return 1


@app.scheduled("0 2 * * *")
def clean(days: int = 30) -> int:
    return days


mail = TaskGroup("mail")


@mail.task
def send(to: str) -> bool:
    return bool(to)


@task
def shrink(width: int) -> int:
    return width


TaskGroup("mail", quue="mail")  # wrong
send.enqueue(to=1)  # wrong
shrink.enqueue("x")  # wrong
app.include(5)  # wrong
app.configure(migrat=True)  # wrong
App("memory://", migrat=True)  # wrong
App("memory://", args_limit="1 kB")  # wrong
app.task(retires=3)  # wrong
app.task(isolation="thred")  # wrong
app.scheduled("0 2 * * *", timezon="UTC")  # wrong
app.schedule(clean, "0 2 * * *", overlap="maybe")  # wrong


async def awaits(ctx: Context) -> None:
    answer: str = await backup(ctx, "/backup")  # wrong
    print(answer)


def calls(ctx: Context) -> None:
    plain.enqueue("1")  # wrong
    plain.enqueue()  # wrong
    plain.enqueue(1, 2)  # wrong
    plain.enqueue(1, colour="red")  # wrong
    backup.enqueue(destination=1)  # wrong
    backup.enqueue(1)  # wrong
    plain.using(prioritty=1)  # wrong
    plain.using(priority="high")  # wrong
    text: str = plain.enqueue(1).result()  # wrong
    ctx.then(plain, "1")  # wrong
    ctx.then(backup, to="/backup")  # wrong
    clean.enqueue(days="3")  # wrong
    number: str = plain(1)  # wrong
    later: int = backup(ctx, "/backup")  # wrong
    print(text, number, later)


async def durations() -> None:
    app.task(timeout=[10])  # wrong
    app.task(timeuot="10m")  # wrong
    Fixed(wait=None)  # wrong
    Fixed(waits="10m")  # wrong
    Rate(5, per=None)  # wrong
    Every(interval=b"10m")  # wrong
    plain.using(delay=[10])  # wrong
    plain.enqueue(1).result(timeout=b"10m")  # wrong
    app.schedule(clean, Every(300), jiter="30s")  # wrong
    await plain.enqueue(1).acancel(raeson="late")  # wrong
    await app.limits.aset("queue/mail", 5, per=[1])  # wrong
    print(tidemill.Misspelt)  # wrong
