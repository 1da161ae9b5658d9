"""The stages in their order: a `Problem` and `Settings` with numbers -> filled values."""
