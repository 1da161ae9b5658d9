"""Reproduction of the paper's experiments; needs `pcfi[experiments]`.

An `Experiment` (a table or figure of the paper) compares `Configuration`s of systems under `Condition`s. It consists
of `TableCell`s, and each cell of `Run`s, one per split. A worker process executes a run: a system turns the `RunInput`
into a `SystemOutput`. The result is a `Record` in the `RunStore`. The records of a cell give its `Score`, and the
scores of an experiment its `TextTable`s and figures.
"""
