"""Orders of the shop."""

from django.db import models


class Order(models.Model):
    """One order."""

    name = models.CharField(max_length=50)
    state = models.CharField(max_length=50, default="placed")
