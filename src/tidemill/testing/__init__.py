"""For users' tests and for our own: the store conformance suite."""
