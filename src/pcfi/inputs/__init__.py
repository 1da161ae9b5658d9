"""The user's arrays, tensors, tables and graphs -> a checked `Problem`. The only place that checks input."""
