"""Actions on workers: drain, pause, resume and scale."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from tidemill.dashboard.confirmation import ask
from tidemill.dashboard.form_state import FormError, FormState, read_whole, refuse_to_look
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.dashboard.worker_tree import WorkerSlot
from tidemill.dashboard.workers import living
from tidemill.domain.access import Role
from tidemill.domain.worker_reports import MOST, scaled
from tidemill.errors import BadSettings
from tidemill.web.sessions import UndoForm

pages = PageRoutes()


@pages.get("/workers/{id}/drain", role=Role.ADMIN, everywhere=True)
async def ask_drain(request: PageRequest) -> Response:
    """Ask for confirmation before a worker is drained."""
    seat = await request.read(living, request, request.id())
    return ask(
        request,
        title=f"Drain {seat.worker.name}?",
        words=f"It finishes the {_jobs(seat)} that it holds, claims no more, and then stops. Its supervisor may start another.",
        action=f"/workers/{seat.worker.id}/drain",
        button="Drain it",
        back="/workers",
    )


@pages.post("/workers/{id}/drain", role=Role.ADMIN, everywhere=True)
async def drain(request: PageRequest) -> Response:
    """Ask a worker to finish its jobs and claim no more."""
    seat = await request.read(living, request, request.id())
    is_new = await request.act(request.app.control.drain, seat.worker.id)
    words = "finishes its jobs and then stops" if is_new else "is already draining"
    return request.back("/workers", f"{seat.worker.name} {words}.")


@pages.get("/workers/{id}/pause", role=Role.OPERATOR, everywhere=True)
async def ask_pause(request: PageRequest) -> Response:
    """Ask for confirmation before a worker is paused."""
    seat = await request.read(living, request, request.id())
    return ask(
        request,
        title=f"Pause {seat.worker.name}?",
        words=f"It finishes the {_jobs(seat)} that it holds and claims no more until it is resumed. It keeps running, and so does a "
        "pause when the process is replaced. Other workers claim the jobs.",
        action=f"/workers/{seat.worker.id}/pause",
        button="Pause it",
        back="/workers",
    )


@pages.post("/workers/{id}/pause", role=Role.OPERATOR, everywhere=True)
async def pause(request: PageRequest) -> Response:
    """Ask a worker to claim nothing until it is resumed."""
    seat = await request.read(living, request, request.id())
    is_new = await request.act(request.app.control.pause_worker, seat.worker.id)
    words = "claims nothing more; running jobs continue" if is_new else "is already paused"
    undo = UndoForm(f"/workers/{seat.worker.id}/resume", {}) if is_new else None
    return request.back("/workers", f"{seat.worker.name} {words}.", undo=undo)


@pages.post("/workers/{id}/resume", role=Role.OPERATOR, everywhere=True)
async def resume(request: PageRequest) -> Response:
    """Let a paused worker claim jobs again."""
    seat = await request.read(living, request, request.id())
    was_paused = await request.act(request.app.control.resume_worker, seat.worker.id)
    words = "claims jobs again" if was_paused else "was not paused"
    return request.back("/workers", f"{seat.worker.name} {words}.")


@pages.get("/workers/{id}/scale", role=Role.ADMIN, everywhere=True)
async def ask_scale(request: PageRequest) -> Response:
    """Show the form that changes the number of processes and slots."""
    refuse_to_look(request)
    seat = await request.read(living, request, request.id())
    return _scale_form(request, seat, None)


@pages.post("/workers/{id}/scale", role=Role.ADMIN, everywhere=True)
async def scale(request: PageRequest) -> Response:
    """Change the number of processes and slots."""
    seat, form = await request.read(living, request, request.id()), request.form
    try:
        wanted = {
            name: read_whole(form, name, least=1, most=most) for name, most in MOST.items() if form.get(name)
        }
        after = await request.act(partial(request.app.control.scale_worker, seat.worker.id, **wanted))
    except FormError as wrong:
        return _scale_form(request, seat, FormState(form, {wrong.field: wrong.words}))
    except BadSettings as error:
        field = str(error.details.get("setting", ""))
        return _scale_form(request, seat, FormState(form, {field if field in MOST else "": error.message}))
    processes = f"{after.processes} process{'' if after.processes == 1 else 'es'}"
    return request.back(
        "/workers",
        f"{processes} with {after.slots.total} slots each, from the next heartbeat on. Surplus ones finish their jobs.",
    )


def _scale_form(request: PageRequest, seat: WorkerSlot, form: FormState | None) -> Response:
    report = seat.worker.report
    if report is None or not seat.takes_requests:
        raise BadSettings(
            f"{seat.worker.name} has not reported its numbers; if it keeps not doing so, it runs a version that cannot be scaled"
        )
    now = scaled(report, {})
    numbers = {"processes": now.processes, **now.slots._asdict()}
    return request.render(
        "worker_scale.html",
        422 if form is not None else 200,
        seat=seat,
        above=report.supervisor,
        form=form or FormState(numbers),
        numbers=numbers,
        most=MOST,
    )


def _jobs(seat: WorkerSlot) -> str:
    return "job" if seat.number == 1 else f"{seat.number:,} jobs"
