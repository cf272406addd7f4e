"""Triggers: the rules that define when a schedule fires."""
