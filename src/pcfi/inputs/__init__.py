"""What the user holds (arrays, tensors, tables, graphs) -> a checked `Problem`. The only place that checks input."""
