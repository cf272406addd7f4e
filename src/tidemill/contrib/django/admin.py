"""Admin pages of jobs: a read-only list with actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages

from tidemill.client.access import acting
from tidemill.client.jobs.handle import Job
from tidemill.contrib.django.models import StoredJob
from tidemill.contrib.django.project import PROJECT
from tidemill.domain.filters import ALL_TENANTS
from tidemill.errors import TidemillError


@admin.register(StoredJob)
class JobAdmin(admin.ModelAdmin):  # type: ignore[misc]  # Django has no types
    """Lists jobs. The actions need the permission ``tidemill.operate_storedjob``."""

    list_display = ("task", "state", "queue", "attempt", "created_at", "finished_at", "id")
    list_filter = ("state",)
    search_fields = ("task", "queue")
    actions = ("retry", "cancel", "approve")
    show_full_result_count = False

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_operate_permission(self, request: Any) -> bool:
        """Whether the user may use the actions; Django calls this by its name."""
        return bool(request.user.has_perm("tidemill.operate_storedjob"))

    @admin.action(description="Retry selected jobs", permissions=["operate"])
    def retry(self, request: Any, queryset: Any) -> None:
        self._act(request, queryset, "retried", lambda job: job.retry())

    @admin.action(description="Cancel selected jobs", permissions=["operate"])
    def cancel(self, request: Any, queryset: Any) -> None:
        self._act(request, queryset, "cancelled", lambda job: job.cancel())

    @admin.action(description="Approve selected jobs", permissions=["operate"])
    def approve(self, request: Any, queryset: Any) -> None:
        self._act(request, queryset, "approved", lambda job: job.approve())

    def _act(self, request: Any, queryset: Any, done: str, act: Callable[[Job[Any]], object]) -> None:
        """Apply an action to each job, and report how many it changed and why it refused others."""
        jobs, changed = PROJECT.synced().jobs, 0
        with acting(f"django:{request.user.get_username()}"):
            for id in queryset.values_list("pk", flat=True):
                try:
                    act(jobs.get(id, tenant=ALL_TENANTS))
                except TidemillError as error:
                    self.message_user(request, str(error), messages.ERROR)
                else:
                    changed += 1
        if changed:
            self.message_user(
                request, f"{changed} {'job' if changed == 1 else 'jobs'} {done}", messages.SUCCESS
            )
