"""A FastAPI application with background jobs in the same process and the same database.

    export SHOP=sqlite:///shop.db                                        (in this folder)
    uvicorn --factory shop:create
    tidemill keys create ann --role super_admin --app shop:create        (a key for the dashboard)
    tidemill jobs list --app shop:create

Placing an order writes the order and enqueues its job in one transaction: both are stored, or neither. The answer is 202 with
the address at which the job can be followed. The worker runs inside the application. The dashboard and the whole HTTP API are
mounted under /background; people sign in there with a key.

The command line finds the app behind `shop:create` through the mounted dashboard. `tidemill worker shop:create` runs more
workers beside the application.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.schema import CreateTable

from tidemill import App, Context
from tidemill.contrib.fastapi import lifespan, mount
from tidemill.errors import JobNotFound


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    book: Mapped[str]
    copies: Mapped[int]


class OrderBody(BaseModel):
    book: str = Field(min_length=1, max_length=200)
    copies: int = Field(1, ge=1, le=100)


class Shop:
    """What the routes share: the database, the tasks, and how to enqueue in a transaction."""

    def __init__(self, url: str) -> None:
        # Jobs live beside the orders: in the same file, or in the same database.
        shared = f"{url}?shared=1" if url.startswith("sqlite") else url
        self.jobs = App(shared, migrate=True, name="shop")
        self.engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        with self.engine.begin() as connection:
            # Several processes may start at once, so the table may appear between a check and its creation.
            connection.execute(CreateTable(Base.metadata.tables["orders"], if_not_exists=True))

        @self.jobs.task(name="print_order", queue="press")
        def print_order(ctx: Context, order: int) -> dict[str, int]:
            """Print every copy of a book that was ordered."""
            with Session(self.engine) as session:
                found = session.get_one(Order, order)
                book, copies = found.book, found.copies
            for copy in ctx.track(range(copies), message=f"printing {book}"):
                ctx.log("printed", copy=copy + 1)
                time.sleep(0.01)
            return {"printed": copies}

        self.print_order = print_order


routes = APIRouter()


def shop_of(request: Request) -> Shop:
    shop: Shop = request.app.state.shop
    return shop


@routes.post("/orders", status_code=202)
def place_order(body: OrderBody, request: Request, response: Response) -> dict[str, Any]:
    """Place an order; it is printed in the background."""
    shop = shop_of(request)
    with Session(shop.engine) as session, session.begin():
        order = Order(book=body.book, copies=body.copies)
        session.add(order)
        session.flush()
        job = shop.print_order.using(connection=session, reference=("order", str(order.id))).enqueue(
            order=order.id
        )
        if body.book == "forbidden":
            raise HTTPException(409, "this book is not printed")  # the job goes with the order
    response.headers["location"] = str(request.url_for("status", id=job.id))
    return {"order": order_id(job), "job": str(job.id), "status": "processing"}


def order_id(job: Any) -> int:
    return int(job.reference[1])


@routes.get("/status/{id}")
def status(id: UUID, request: Request) -> dict[str, Any]:
    """How far a job is."""
    job = found(request, id)
    return {
        "status": job.status,
        "progress": job.progress,
        "message": job.message,
        "eta": job.eta,
        "attempt": job.attempt,
    }


@routes.get("/history/{id}")
def history(id: UUID, request: Request) -> list[dict[str, Any]]:
    """Every attempt at a job."""
    return [
        {"attempt": each.attempt, "state": each.state, "started_at": each.started_at, "error": each.error}
        for each in found(request, id).executions()
    ]


def found(request: Request, id: UUID) -> Any:
    try:
        return shop_of(request).jobs.jobs.get(id)
    except JobNotFound:
        raise HTTPException(404, "there is no such job") from None


@routes.get("/orders")
def orders(request: Request) -> list[dict[str, Any]]:
    with Session(shop_of(request).engine) as session:
        rows = session.scalars(select(Order).order_by(Order.id))
        return [{"id": row.id, "book": row.book, "copies": row.copies} for row in rows]


def create(url: str | None = None) -> FastAPI:
    """The application, on a database."""
    shop = Shop(url or os.environ.get("SHOP", "sqlite:///shop.db"))

    @asynccontextmanager
    async def own(_: FastAPI) -> AsyncIterator[None]:
        yield
        shop.engine.dispose()  # after the worker has finished its jobs

    worker = {"concurrency": 10, "threads": 4, "grace": 5}
    site = FastAPI(title="Shop", lifespan=lifespan(shop.jobs, worker=worker, then=own, close=True))
    site.state.shop = shop
    site.include_router(routes)
    mount(site, shop.jobs, "/background")
    return site
