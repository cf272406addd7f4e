"""SQLite: one file, any number of processes on one machine. The same tables as PostgreSQL's, their names prefixed."""
