"""Background work of the shop: tasks of Django's standard, and Tidemill's own."""

from django.db import connection

import tidemill
from shop.models import Order
from shop.standard import task
from tidemill import Context, Review

mail = tidemill.TaskGroup("mail", queue="mail")


@task
def ship(order: int, *, carrier: str = "post") -> dict:
    """Ship an order."""
    Order.objects.filter(pk=order).update(state=f"shipped by {carrier}")
    return {"order": order, "carrier": carrier}


@task(priority=10, queue_name="mail")
async def notify(name: str) -> str:
    order = await Order.objects.aget(name=name)
    return f"{order.name} is {order.state}"


@task(takes_context=True)
def inspect(context, word: str) -> list:
    return [context.attempt, str(context.task_result.id), context.task_result.status.value, word]


@task(backend="patient", takes_context=True)
def flaky(context, failures: int) -> int:
    if context.attempt <= failures:
        raise ValueError(f"attempt {context.attempt}")
    return context.attempt


@task
def fail() -> None:
    raise LookupError("nothing there")


@task
def bad_value() -> object:
    return object()


@task
def backend_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        return cursor.fetchone()[0]


@task
async def async_backend_pid() -> int:
    from asgiref.sync import sync_to_async

    return await sync_to_async(backend_pid.func)()


@mail.task
def send(ctx: Context, to: str) -> str:
    ctx.log("sent", to=to)
    return f"sent to {to}"


@mail.scheduled("0 6 * * *", key="digest")
def digest() -> int:
    return Order.objects.count()


@tidemill.task
def judge(word: str) -> None:
    raise Review("is it right?", output=word)


@mail.task
async def paint(name: str) -> str:
    """Read an order twice, so that coroutines of several tenants take turns."""
    from asgiref.sync import sync_to_async

    first = await Order.objects.aget(name=name)
    await sync_to_async(connection.ensure_connection)()
    return f"{first.state} {(await Order.objects.aget(name=name)).state}"
