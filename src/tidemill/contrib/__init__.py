"""Integrations with web frameworks, one module each; every module imports its own framework."""
