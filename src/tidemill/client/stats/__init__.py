"""Statistics, reports and metrics of a store."""
