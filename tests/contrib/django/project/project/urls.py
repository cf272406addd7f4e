"""Routes of the test project."""

from django.contrib import admin
from django.urls import include, path
from shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("jobs/", include("tidemill.contrib.django.urls")),
    path("orders/<str:name>", views.place),
]
