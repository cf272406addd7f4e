"""The exchange between a worker and its store: claims, starts and results."""
