"""Damaged files: a table, a graph or a clear error, never a crash."""

import gzip
import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, parquet
from scipy import sparse
from scipy.io import mmwrite

import pcfi
from command_line import edge_table, features, node_table, ring
from hypothesis_profiles import examples
from intact_files import INTACT_FILES
from pcfi.errors import FileError
from pcfi.files import edge_files
from pcfi.files.node_files import NodeFileContents, read_nodes
from pcfi.inputs.columns import NodeColumns
from pcfi.inputs.edge_frames import read_edges
from pcfi.inputs.ids import Ids, is_frame, open_frame
from pcfi.scale import build_graph


def intact_edge_files():
    index = ring(12)
    adjacency = sparse.coo_array((np.linspace(0.5, 2, 12), tuple(index)), shape=(12, 12))
    weights = pa.array(np.linspace(0.5, 2, 12))
    made = {}
    for name, table in (("ids", edge_table(index)), ("rows", edge_table(index, ids=False))):
        for suffix, write_as in (("parquet", parquet.write_table), ("csv", csv.write_csv)):
            buffer = io.BytesIO()
            write_as(table.append_column("weight", weights), buffer)
            made[f"{name}.{suffix}"] = buffer.getvalue()
    made["ids.csv.gz"] = gzip.compress(made["ids.csv"])
    for name, save, content in (
        ("sparse.npz", sparse.save_npz, adjacency.tocsr()),
        ("sparse.mtx", mmwrite, adjacency),
        ("pair.npy", np.save, index),
    ):
        buffer = io.BytesIO()
        save(buffer, content)
        made[name] = buffer.getvalue()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, edge_index=index)
    made["pair.npz"] = buffer.getvalue()
    return made


INTACT_EDGE_FILES = intact_edge_files()


def damaged(data, intact):
    content = bytearray(intact)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content)))
        match data.draw(st.sampled_from(["cut", "flip", "insert", "drop"])):
            case "cut":
                content = content[:place]
            case "flip" if place < len(content):
                content[place] ^= data.draw(st.integers(1, 255))
            case "insert":
                content[place:place] = data.draw(st.binary(min_size=1, max_size=20))
            case _:
                del content[place : place + 5]
    return bytes(content)


@examples(150)
@given(data=st.data(), kind=st.sampled_from(sorted(INTACT_FILES)))
def test_damaged_files_give_a_table_or_a_clear_error(tmp_path_factory, data, kind):
    path = tmp_path_factory.getbasetemp() / f"damaged.{kind}"
    path.write_bytes(damaged(data, INTACT_FILES[kind]))
    try:
        nodes = read_nodes(str(path), NodeColumns())
    except pcfi.PcfiError as error:
        message = str(error)
    else:
        message = " ".join(nodes.channels)
        assert nodes.table.num_rows > 0
    assert message
    assert "\n" not in message


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_names_and_text_that_are_not_utf8_are_one_line(tmp_path, kind):
    # pyarrow decodes names when they are asked for: the raw error came through
    table, path = pa.table({"id": ["a", "b"], "n\u00e4me": [1.0, None]}), tmp_path / f"n.{kind}"
    if kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        parquet.write_table(table, path)
    path.write_bytes(path.read_bytes().replace("n\u00e4me".encode(), b"n\xff\xffme"))
    with pytest.raises(pcfi.PcfiError, match=f"cannot be read as {kind}: "):
        read_nodes(str(path), NodeColumns())
    if kind == "parquet":
        np.save(tmp_path / "e.npy", np.array([[0], [1]]))
        with pytest.raises(pcfi.PcfiError, match="cannot be read as Parquet: "):
            pcfi.scale.impute(path, tmp_path / "e.npy", tmp_path / "y.npy")


def test_damaged_offsets_and_text_of_an_arrow_file_are_one_line(tmp_path):
    # buffers are used as they are in the file: wrong offsets would be read far beyond them
    for offsets, text in (([0, 1, 2], b"a\xff"), ([0, 2**30, 2], b"ab"), ([0, -5, 2], b"ab")):
        buffers = [None, pa.py_buffer(np.array(offsets, dtype=np.int32)), pa.py_buffer(text)]
        names = pa.Array.from_buffers(pa.string(), 2, buffers)
        table = pa.table({"id": ["a", "b"], "name": names, "x": [1.0, None]})
        with pa.ipc.new_file(tmp_path / "n.arrow", table.schema) as writer:
            writer.write_table(table)
        with pytest.raises(pcfi.PcfiError, match="cannot be read as arrow: "):
            read_nodes(str(tmp_path / "n.arrow"), NodeColumns())


def graph_of(path, nodes):
    """The graph of an edge file, as `pcfi impute` makes it."""
    edges = edge_files.read_edges(str(path), nodes)
    assert edge_files.described(edges, str(path))
    graph = edges.graph
    if is_frame(graph):
        ids = Ids.of_rows() if nodes.id is None else Ids.of(open_frame(nodes.table, "nodes"), NodeColumns(id=nodes.id))
        graph = read_edges(graph, ids, edges.edge_columns())
    return pcfi.prepare_graph(graph, 12)


def mapped_graph_of(path, nodes):
    """The same within a budget."""
    ids = None if nodes.id is None or path.suffix == ".npy" else nodes.table[nodes.id]
    return build_graph(path, path.with_name("damaged-graph"), n_nodes=12, ids=ids, overwrite=True)


@pytest.mark.parametrize("kind", sorted(INTACT_EDGE_FILES))
def test_intact_edge_files_are_read_alike_with_and_without_a_budget(tmp_path, kind):
    (tmp_path / kind).write_bytes(INTACT_EDGE_FILES[kind])
    nodes = NodeFileContents(table=node_table(features(n_nodes=12)), id="id" if kind.startswith("ids") else None)
    graph = graph_of(tmp_path / kind, nodes)
    assert graph.n_edges == 12
    if kind.split(".")[-1] not in ("npz", "mtx"):
        mapped = mapped_graph_of(tmp_path / kind, nodes)
        assert np.array_equal(mapped.indices, graph.indices)
        assert np.array_equal(mapped.weights_as(np.float64), graph.weights_as(np.float64))


@examples(250)
@given(data=st.data(), kind=st.sampled_from(sorted(INTACT_EDGE_FILES)))
def test_damaged_edge_files_give_a_graph_or_a_clear_error(tmp_path_factory, data, kind):
    path = tmp_path_factory.getbasetemp() / f"damaged-{kind}"
    path.write_bytes(damaged(data, INTACT_EDGE_FILES[kind]))
    nodes = NodeFileContents(table=node_table(features(n_nodes=12)), id="id" if kind.startswith("ids") else None)
    readers = [graph_of] if kind.split(".")[-1] in ("npz", "mtx") else [graph_of, mapped_graph_of]
    for read in readers:
        try:
            graph = read(path, nodes)
        except pcfi.PcfiError as error:
            message = str(error)
        else:
            message = repr(graph)
            assert graph.n_nodes == 12
            assert np.isfinite(graph.degree).all()
        assert message
        assert "\n" not in message


@pytest.mark.parametrize(
    ("end", "words"), [(b"1 2 5E", "does not end with a newline"), (b"1 2 5\0E-1\n", "is not text")]
)
def test_matrix_market_files_that_crash_their_reader_are_refused(tmp_path, end, words):
    (tmp_path / "e.mtx").write_bytes(b"%%MatrixMarket matrix coordinate real general\n%\n12 12 12\n" + end)
    with pytest.raises(FileError, match=words):
        edge_files.read_edges(str(tmp_path / "e.mtx"), NodeFileContents(table=node_table(features()), id=None))
