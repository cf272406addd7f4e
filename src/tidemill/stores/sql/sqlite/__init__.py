"""SQLite: one file, shared by the processes of one machine.

The tables are the same as in PostgreSQL, with prefixed names.
"""
