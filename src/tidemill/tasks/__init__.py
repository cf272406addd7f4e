"""Declares: tasks, their options, their codec and the registry. Knows no store and starts nothing."""
