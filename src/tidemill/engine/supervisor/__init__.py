"""The supervisor process and the runner processes that it starts."""
