"""Executors: where the code of jobs runs."""
