"""Shards of an app: whole stores, between which its tenants are divided."""
