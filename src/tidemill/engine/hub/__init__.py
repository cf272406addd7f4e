"""Hubs: servers of the verbs that hands need."""
