"""Data sets, missing masks, splits: what a run starts from."""
