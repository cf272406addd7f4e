"""Confinement of child processes: sandboxes and containers."""
