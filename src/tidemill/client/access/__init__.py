"""Identity of the caller, API keys and the audit log."""
