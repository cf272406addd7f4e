"""Routes of the dashboard: ``path("jobs/", include("tidemill.contrib.django.urls"))``."""

from __future__ import annotations

from django.urls import re_path

from tidemill.contrib.django.views import dashboard

app_name = "tidemill"

urlpatterns = [re_path(r"^(?P<rest>.*)$", dashboard, name="dashboard")]
