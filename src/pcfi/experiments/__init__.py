"""The paper's laboratory: data sets, masks, compared systems, tasks, tables and figures. Needs `pcfi[experiments]`."""
