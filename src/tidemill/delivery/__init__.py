"""Delivery of events, alerts and notifications to handlers, people and other systems."""
