"""Hands: workers without a connection to the database."""
