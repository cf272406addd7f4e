"""Pure values and decisions, without I/O, clock, randomness or logging."""
