"""Files <-> tables: formats, reading node and edge files, atomic writing. Needs `pcfi[cli]`."""
