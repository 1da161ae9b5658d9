"""Graphs that no worker holds: every worker has a part of the nodes, and gets values of neighbours between steps.

`layout` divides the graph, `part_tasks` and `block_tasks` are what workers do with a partition, `solver` says when.
"""
