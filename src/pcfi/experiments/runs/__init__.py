"""Execution of runs in worker processes, and the store of their records."""
