"""Tenants of the shop for django-tenants: each has a schema of its own."""

from django.db import models
from django_tenants.models import DomainMixin, TenantMixin


class Customer(TenantMixin):
    """One tenant."""

    name = models.CharField(max_length=50)
    auto_create_schema = True


class Domain(DomainMixin):
    """A host name of a tenant."""
