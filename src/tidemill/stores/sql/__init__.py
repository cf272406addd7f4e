"""SQL stores: one Python implementation (``store``) over named queries that each dialect writes in its own ``.sql`` files."""
