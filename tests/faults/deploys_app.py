"""One app in two versions with different arguments, task names and schedules."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Annotated

from pydantic import Field

from tidemill import App, Every

VERSION, STORE, RELEASE = "DEPLOYS_VERSION", "DEPLOYS_STORE", "DEPLOYS_RELEASE"

SCHEDULES = {
    1: {"kept": 2, "changed": 60, "removed": 2},
    2: {"kept": 2, "changed": 3, "added": 1},
}
"""Seconds between two fires, by version and schedule."""

CALLS = {
    1: (("collect", '{"number":1}'), ("resize", '{"path":"a","size":1}'), ("send_mail", '{"to":"ann"}')),
    2: (
        ("collect", '{"number":1,"region":"eu"}'),
        ("resize", '{"path":"a"}'),
        ("send_email", '{"to":"ann"}'),
    ),
}
"""Jobs that each version enqueues: task and arguments."""

ROLLING_CALLS = {
    1: (
        ("collect", '{"number":1}'),
        ("crop", '{"path":"a","width":3}'),
        ("convert", '{"path":"a","quality":7}'),
        ("send_mail", '{"to":"ann"}'),
    ),
    2: (
        ("collect", '{"number":1,"region":"eu"}'),
        ("crop", '{"path":"a","size":3}'),
        ("convert", '{"path":"a"}'),
        ("send_email", '{"to":"ann"}'),
    ),
}
"""Jobs with an added, a renamed and a removed argument, and of a renamed task, which version 2 can all read."""

version = int(os.environ.get(VERSION, "1"))
app = App(os.environ.get(STORE), name="deploys", release=os.environ.get(RELEASE))


@app.task
def tick() -> None:
    """The task of the schedules."""


if version == 1:

    @app.task
    async def collect(number: int) -> int:
        return number

    @app.task
    def resize(path: str, size: int) -> str:
        return path * size

    @app.task
    def crop(path: str, width: int) -> str:
        return path * width

    @app.task
    def convert(path: str, quality: int) -> str:
        return path * quality

    @app.task
    def send_mail(to: str) -> str:
        return to

else:

    @app.task(name="collect")
    async def collect_from(number: int, region: str = "eu") -> str:
        return f"{number} {region}"

    @app.task(name="resize")
    def resize_to_fit(path: str) -> str:
        return path

    @app.task(name="crop")
    def crop_to_size(path: str, size: Annotated[int, Field(alias="width")]) -> str:
        return path * size

    @app.task(name="convert", extra="ignore")
    def convert_always(path: str) -> str:
        return path

    @app.task(aliases=["send_mail"])
    def send_email(to: str) -> str:
        return to


for key, seconds in SCHEDULES[version].items():
    app.schedule(tick, Every(timedelta(seconds=seconds)), key=key, misfire="skip", overlap="allow")
