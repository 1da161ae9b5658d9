"""Data sets, missing masks and splits: the input of a run."""
