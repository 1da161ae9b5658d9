"""Nodes over time with missing readings -> filled readings, from the node itself and from its neighbours."""
