"""Pure values and decisions: no I/O, no clock, no randomness, no logging. Imports nothing of ours but ``errors``."""
