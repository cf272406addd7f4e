"""Views of the shop."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse

from shop import tasks
from shop.models import Order


def place(request: HttpRequest, name: str) -> JsonResponse:
    """Place an order and enqueue its job in one transaction."""
    try:
        with transaction.atomic():
            order = Order.objects.create(name=name)
            result = tasks.ship.enqueue(order.pk, carrier="bike")
            if name == "bad":
                raise ValueError(name)
    except ValueError:
        return JsonResponse({}, status=409)
    return JsonResponse({"job": result.id}, status=202)
