"""Schedules and definitions, at run time and declared in code."""
