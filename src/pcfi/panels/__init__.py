"""Model of readings over time: missing readings are estimated from the node itself and from its neighbours."""
