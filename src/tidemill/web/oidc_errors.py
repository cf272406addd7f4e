"""Errors of single sign-on, apart from the modules that need its extra."""

from __future__ import annotations


class TokenRefused(Exception):
    """A token or a code is not valid; the message says why."""


class ProviderUnavailable(Exception):
    """The provider does not answer, or its answer cannot be used."""
