"""SQL stores: one Python implementation over named queries, written per dialect."""
