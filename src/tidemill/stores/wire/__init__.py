"""Wires between hands and hubs."""
