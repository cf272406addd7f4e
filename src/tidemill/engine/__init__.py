"""Runs: claims, executes and finishes jobs. It writes what ``decide`` says through store verbs, and nothing else."""
