"""Limits: reading, setting, and checks at enqueue."""
