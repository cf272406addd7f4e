"""PostgreSQL: driver, queries and migrations."""
