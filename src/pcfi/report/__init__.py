"""Facts about an imputation -> one self-contained page. Needs `pcfi[cli]`."""
