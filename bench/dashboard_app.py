"""The app of the dashboard benchmark: one task does nothing, another one fails."""

from __future__ import annotations

from datetime import timedelta

from tidemill import App, Every, PermanentError

app = App()


@app.task(name="send_email")
async def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
    return {"ok": True}


@app.task(name="charge_card", queue="partners", retry=None)
def charge_card(order: int) -> None:
    raise PermanentError(f"order {order}: the card has expired")


app.schedule(
    send_email, Every(timedelta(days=1)), key="daily-letter", args={"user_id": 1, "email": "a@example.com"}
)
