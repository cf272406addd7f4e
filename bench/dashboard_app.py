"""The app whose pages are measured: a task that does nothing, and one that fails. Its store is what ``TIDEMILL_STORE`` says."""

from __future__ import annotations

from datetime import timedelta

from tidemill import App, Every, PermanentError

app = App()


@app.task(name="send_email")
async def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a payload as users have it)
    return {"ok": True}


@app.task(name="charge_card", queue="partners", retry=None)
def charge_card(order: int) -> None:
    raise PermanentError(f"order {order}: the card has expired")


app.schedule(
    send_email, Every(timedelta(days=1)), key="daily-letter", args={"user_id": 1, "email": "a@example.com"}
)
