"""Facts about an imputation -> a self-contained HTML report. Needs `pcfi[cli]`."""
