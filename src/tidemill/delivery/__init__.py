"""Delivery of events, alerts and notices to handlers, people and other systems."""
