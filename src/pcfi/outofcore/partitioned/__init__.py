"""Graphs that no worker holds: every worker has a part of the nodes, and gets values of neighbours between steps.

`layout` divides the graph, `blocks`, `passes` and `part_tasks` are what workers do
with a partition, `solver` and `backend` say when.
"""
