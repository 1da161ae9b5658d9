"""Bytes of a small node file in each format."""

import gzip
import io

import numpy as np
from pyarrow import csv, feather, parquet

from command_line import features, node_table


def intact_files():
    table = node_table(features(n_nodes=12))
    made = {}
    for name in ("parquet", "csv", "arrow"):
        buffer = io.BytesIO()
        if name == "parquet":
            parquet.write_table(table, buffer)
        elif name == "csv":
            csv.write_csv(table, buffer)
        else:
            feather.write_feather(table, buffer)
        made[name] = buffer.getvalue()
    made["csv.gz"] = gzip.compress(made["csv"])
    for name, save in (("npy", np.save), ("npz", np.savez_compressed)):
        buffer = io.BytesIO()
        save(buffer, features(n_nodes=12))
        made[name] = buffer.getvalue()
    return made


INTACT_FILES = intact_files()
