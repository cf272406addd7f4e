"""Flows and batches: graphs of jobs that users build, start and follow."""
