"""Archiving of ended jobs, and reading of archived ones."""
