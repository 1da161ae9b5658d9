"""Files <-> tables: what a suffix means, reading node and edge files, atomic writing. Needs `pcfi[cli]`."""
