"""An order saga: steps that survive crashes, a wait, and compensations that run in reverse order.

Run it with ``python examples/order_saga.py [STORE]``.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from tidemill import RESULT, App, Context, Exponential, ManualClock, PermanentError, Step, undo
from tidemill.errors import JobFailed

app = App(sys.argv[1] if len(sys.argv) > 1 else "memory://", clock=ManualClock(), migrate=True)


@app.task
def release_stock(order: int, reservation: str | None) -> None:
    print(f"order {order}: release {reservation}")


@app.task
def refund(order: int, payment: str | None) -> None:
    print(f"order {order}: refund {payment}")


def reserve_stock(order: int) -> str:
    return f"reservation-{order}"


def charge_card(order: int) -> str:
    return f"payment-{order}"


def ship(order: int) -> str:
    if order == 13:
        raise PermanentError("the parcel service refuses it")
    return f"parcel-{order}"


@app.task(version=1)
def fulfil(ctx: Context, order: int) -> str:
    """Reserve, charge, wait an hour in which the customer may cancel, and ship."""
    reserve = Step("reserve", compensate=undo(release_stock, order=order, reservation=RESULT))
    charge = Step(
        "charge", retry=Exponential(max_attempts=5), compensate=undo(refund, order=order, payment=RESULT)
    )
    ctx.step(reserve, reserve_stock, order)
    ctx.step(charge, charge_card, order)
    ctx.sleep("cool-off", timedelta(hours=1))
    return ctx.step("ship", ship, order)


def main() -> None:
    """Run a good and a bad order; the worker dies after the card was charged."""
    with app, app.testing() as testing:
        good, bad = fulfil.enqueue(order=7), fulfil.enqueue(order=13)
        testing.kill_at("in-step:charge")
        testing.run_until_idle()
        print(f"order 7: {good.result(timeout=1)}")
        try:
            bad.result(timeout=1)
        except JobFailed as error:
            print(f"order 13: {error.details['status']}")


if __name__ == "__main__":
    main()
