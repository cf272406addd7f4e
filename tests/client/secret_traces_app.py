"""An app that handles secrets carelessly: it logs them, reports them and fails with them."""

from __future__ import annotations

import logging
import os
import sys

from tidemill import App, Context, PermanentError, Secret

app = App(
    stores={"default": os.environ["SECRET_TRACES_STORE"], "archive": os.environ["SECRET_TRACES_ARCHIVE"]},
    log_jobs=True,
    capture_logs="INFO",
)


@app.task(name="pay", audit=True)
async def pay(ctx: Context, card: Secret[str], public: str, number: int) -> Secret[str]:
    ctx.log(f"charging {card.reveal()}", used=[card.reveal()])
    ctx.progress(0.5, f"with {card.reveal()}")
    logging.getLogger("shop").warning("card %s of %s", card.reveal(), public, extra={"card": card.reveal()})

    print(f"{public}: card", card.reveal())
    print("password=", "hunter-", card.reveal(), sep="", end="", file=sys.stderr)

    def issue() -> Secret[str]:
        return Secret(card.reveal()[::-1] + card.reveal())

    receipt = ctx.step("receipt", issue)
    if number % 5 == 0:
        raise PermanentError(f"refused {card.reveal()} and {receipt.reveal()}")
    return receipt
