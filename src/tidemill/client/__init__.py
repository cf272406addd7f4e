"""Client API: enqueueing, job handles and queries. Independent of the engine."""
