"""Files: every format gives the same numbers, columns are chosen by rule, writing is atomic, bad files are refused."""

import gzip
import os

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse
from scipy.io import mmwrite

import pcfi
from command_line import edge_table, features, node_table, ring
from intact_files import INTACT_FILES
from pcfi.errors import FileError, ParameterError, TooLargeError
from pcfi.files import edge_files, node_files, sizes
from pcfi.files.formats import EDGE_FORMATS, NODE_FORMATS, OUTPUT_FORMATS, Format, format_of, sniff
from pcfi.files.node_files import read_nodes
from pcfi.files.writing import atomic_file, write_table
from pcfi.inputs.columns import NodeColumns

TABLES = ("nodes.parquet", "nodes.csv", "nodes.tsv", "nodes.csv.gz", "nodes.tsv.zst", "nodes.feather", "nodes.arrow")


def write(table, path):
    write_table(table, str(path), format_of(str(path), OUTPUT_FORMATS, "output"), force=True)
    return str(path)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_format_keeps_every_cell(tmp_path, name):
    table = node_table(features())
    nodes = read_nodes(write(table, tmp_path / name), NodeColumns(exclude=["label"]))
    assert nodes.id == "id"
    assert nodes.channels == ["age", "income", "height"]
    assert nodes.passed == ["label", "since"]
    for column in ("age", "income", "height"):
        assert nodes.table[column].cast(pa.float64()).to_pylist() == table[column].to_pylist()
    assert nodes.table["id"].to_pylist() == table["id"].to_pylist()
    assert nodes.table["since"].to_pylist() == table["since"].to_pylist()


def test_a_folder_of_parquet_files_is_a_table(tmp_path):
    table = node_table(features())
    (tmp_path / "nodes.parquet").mkdir()
    (tmp_path / "nodes.parquet" / "_SUCCESS").touch()
    with pytest.raises(FileError, match=r"a folder without a file .parquet"):
        read_nodes(str(tmp_path / "nodes.parquet"), NodeColumns())
    for number, start in enumerate((0, 25)):
        write(table.slice(start, 25), tmp_path / "nodes.parquet" / f"part-{number}.parquet")
    nodes = read_nodes(str(tmp_path / "nodes.parquet"), NodeColumns(exclude=["label"]))
    assert nodes.table.combine_chunks().equals(table.combine_chunks())


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_arrays_are_channels_by_number(tmp_path, suffix):
    values = features().astype(np.float32)
    path = tmp_path / f"x.{suffix}"
    if suffix == "npy":
        np.save(path, values)
    else:
        np.savez(path, x=values, other=np.zeros(3))
    nodes = read_nodes(str(path), NodeColumns())
    assert nodes.id is None
    assert nodes.channels == ["channel_0", "channel_1", "channel_2"]
    read = np.stack([column.to_numpy() for column in nodes.table.columns], axis=1)
    assert read.dtype == np.float32
    assert np.array_equal(read, values, equal_nan=True)


def test_an_h5ad_file_holds_features_and_a_graph(tmp_path):
    anndata = pytest.importorskip("anndata")
    values = features()
    data = anndata.AnnData(values.copy())
    data.obs_names = [f"cell{row}" for row in range(len(values))]
    data.obsp["connectivities"] = sparse.coo_array((np.ones(40), tuple(ring())), shape=(40, 40)).tocsr()
    path = str(tmp_path / "cells.h5ad")
    data.write_h5ad(path)
    nodes = read_nodes(path, NodeColumns())
    assert (nodes.id, nodes.channels) == ("id", ["0", "1", "2"])
    assert np.array_equal(nodes.table["1"].to_numpy(), values[:, 1], equal_nan=True)
    assert edge_files.read_edges(path, nodes).graph.nnz == 40


def test_every_edge_format_gives_the_same_graph(tmp_path):
    nodes = read_nodes(write(node_table(features()), tmp_path / "nodes.parquet"), NodeColumns(exclude=["label"]))
    expected = pcfi.impute(features()[:, :1], ring()).values.ravel()
    index = ring()
    adjacency = sparse.coo_array((np.ones(40), tuple(index)), shape=(40, 40))
    sparse.save_npz(tmp_path / "e.npz", adjacency.tocsr())
    mmwrite(tmp_path / "e.mtx", adjacency)
    np.save(tmp_path / "e.npy", index)
    np.savez(tmp_path / "pair.npz", edge_index=index)
    by_id = [write(edge_table(index), tmp_path / f"e.{suffix}") for suffix in ("parquet", "csv", "tsv.gz", "feather")]
    alone = read_nodes(str(tmp_path / "nodes.parquet"), NodeColumns(channels=["age"]))
    for path in (*by_id, tmp_path / "e.npz", tmp_path / "e.mtx", tmp_path / "e.npy", tmp_path / "pair.npz"):
        edges = edge_files.read_edges(str(path), nodes)
        result = pcfi.frames.impute(alone.table, edges.graph, id="id", channels=["age"])
        assert np.allclose(result.values["age"].to_numpy(), expected, atol=1e-12), path


@pytest.mark.parametrize(
    ("columns", "wanted", "chosen"),
    [
        (["x", "NODE", "id"], NodeColumns(), "id"),
        (["x", "Node_ID"], NodeColumns(), "Node_ID"),
        (["x", "name"], NodeColumns(), "name"),
        (["x", "twice", "name"], NodeColumns(), "name"),
        (["x", "twice"], NodeColumns(), None),
        (["x", "name", "id"], NodeColumns(id="name"), "name"),
        (["x", "customer_id"], NodeColumns(), "customer_id"),
        (["x", "name", "city_id", "userID"], NodeColumns(), "userID"),
        (["x", "customer Id", "customer_id"], NodeColumns(), "customer Id"),
        (["x", "city_id", "covid", "PAID"], NodeColumns(), None),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_id_column_is_chosen_by_rule(tmp_path, columns, wanted, chosen, suffix):
    content = {"x": [1.0, 2.0], "twice": ["a", "a"], "city_id": [7, 7]}
    numbers = {"customer_id", "userID", "customer Id", "covid", "PAID"}
    table = pa.table({name: content.get(name, [1, 0] if name in numbers else ["a", "b"]) for name in columns})
    nodes = read_nodes(write(table, tmp_path / f"n.{suffix}"), wanted)
    assert nodes.id == chosen
    assert nodes.channels == [name for name in columns if name in {"x", "city_id", *numbers} - {chosen}]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["weight", "target", "source"], ("source", "target", "weight")),
        (["From", "To"], ("From", "To", None)),
        (["src", "dst", "kind", "w"], ("src", "dst", "w")),
        (["begin", "end"], ("begin", "end", None)),
        (["begin", "end", "number"], ("begin", "end", None)),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_edge_columns_are_chosen_by_their_usual_names(tmp_path, names, chosen, suffix):
    numbers = {"weight", "w", "number"}
    table = pa.table({name: [1.0, 2.0] if name in numbers else ["a", "b"] for name in names})
    nodes = read_nodes(write(pa.table({"id": ["a", "b"], "x": [1.0, None]}), tmp_path / "n.csv"), NodeColumns())
    ends = edge_files.read_edges(write(table, tmp_path / f"e.{suffix}"), nodes).columns
    assert (ends.source, ends.target, ends.weight) == chosen


def test_ids_of_text_files_keep_leading_zeros_and_match_numbers_of_other_formats(tmp_path):
    zeros = read_nodes(write(pa.table({"id": ["007", "010"], "x": [1.0, None]}), tmp_path / "zeros.csv"), NodeColumns())
    assert zeros.table["id"].to_pylist() == ["007", "010"]
    numbers = read_nodes(write(pa.table({"id": [7, 10], "x": [1.0, None]}), tmp_path / "numbers.csv"), NodeColumns())
    edges = edge_files.read_edges(write(pa.table({"source": [7], "target": [10]}), tmp_path / "e.parquet"), numbers)
    assert edges.graph["source"].to_pylist() == ["7"]
    typed = read_nodes(write(pa.table({"id": [7, 10], "x": [1.0, None]}), tmp_path / "n.parquet"), NodeColumns())
    edges = edge_files.read_edges(write(pa.table({"source": ["7"], "target": ["10"]}), tmp_path / "e.csv"), typed)
    assert edges.graph["target"].to_pylist() == [10]


@pytest.mark.parametrize("name", ["n.csv", "n.parquet"])
def test_markers_are_missing(tmp_path, name):
    table = pa.table(
        {"id": ["a", "b", "c"], "x": [1.5, -999.0, None], "n": [1, -999, 3], "city": ["?", "Rome", "-999"]}
    )
    wanted = NodeColumns(categorical=["city"], missing_values=["-999", "?"])
    nodes = read_nodes(write(table, tmp_path / name), wanted)
    assert nodes.table["x"].to_pylist() == [1.5, None, None]
    assert nodes.table["n"].to_pylist() == [1, None, 3]
    assert nodes.table["city"].to_pylist() == [None, "Rome", None]


def test_a_column_that_is_null_everywhere_is_a_channel(tmp_path):
    path = tmp_path / "n.csv"
    path.write_text("id,x,y\na,1,\nb,,\n")
    assert read_nodes(str(path), NodeColumns()).channels == ["x", "y"]


BAD = {
    "empty.csv": (b"", "is empty"),
    "header.csv": (b"id,x\n", "no rows"),
    "headless.csv": (b"1,2\n3,4\n", "first line must name the columns"),
    "twice.csv": (b"id,x,x\na,1,2\n", "several columns named 'x'"),
    "ragged.csv": (b"id,x\na,1\nb,2,3\n", "cannot be read as csv"),
    "mixed.csv": (b"id,x\na,1\nb,oops\nc,3\n", "mixes numbers and text; first 'oops' in row 2"),
    "words.csv": (b"id,x\na,b\nb,c\n", "no numeric columns"),
    "noise.parquet": (b"PAR1 but not really", "cannot be read as parquet"),
    "noise.feather": (b"ARROW1 but not really", "cannot be read as arrow"),
    "noise.npy": (b"\x93NUMPY nonsense", "cannot be read as npy"),
    "noise.npz": (b"PK\x03\x04 nonsense", "cannot be read as npz"),
    "noise.csv.gz": (b"\x1f\x8b nonsense", "cannot be read as csv"),
    "noise.csv.zst": (b"not zstd at all", "cannot be read as csv"),
    "latin.csv": ("id,x,city\na,1,Köln\nb,,Rome\n".encode("latin-1"), "latin.csv is not valid UTF-8: convert it, as"),
    "latin-id.csv": ("id,x\nKöln,1\nRome,\n".encode("latin-1"), "not valid UTF-8"),
    "latin-name.csv": ("id,Größe\na,1\nb,\n".encode("latin-1"), "not valid UTF-8"),
    "utf16.csv": ("id,x\na,1\n".encode("utf-16"), "not valid UTF-8"),
    "wrong.txt": (b"id,x\na,1\n", "use one of .parquet"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_in_one_line(tmp_path, name):
    content, words = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError) as refused:
        read_nodes(str(tmp_path / name), NodeColumns())
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("separator", "decimal", "words"),
    [
        (";", ",", " (separated by ';', decimal commas): "),
        (";", ".", " (separated by ';'): "),
        ("\t", ",", " (separated by tabs, decimal commas): "),
        (",", ".", "csv: "),
    ],
)
def test_separators_and_decimal_commas_are_recognised(tmp_path, separator, decimal, words):
    def save(name, text):
        (tmp_path / name).write_text(text.replace(",", separator).replace(".", decimal))
        return str(tmp_path / name)

    path = save("n.csv", "id,x,y\na,1.5,\nb,,-2\n")
    nodes = read_nodes(path, NodeColumns())
    assert (nodes.id, nodes.table["x"].to_pylist(), nodes.table["y"].to_pylist()) == ("id", [1.5, None], [None, -2])
    assert words in node_files.described(nodes, path)
    path = save("e.csv", "source,target,weight\na,b,0.25\n")
    edges = edge_files.read_edges(path, nodes)
    assert edges.graph.to_pydict() == {"source": ["a"], "target": ["b"], "weight": [0.25]}
    assert words in edge_files.described(edges, path)


def test_pickles_are_not_loaded(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FileError, match="cannot be read as npy"):
        read_nodes(str(tmp_path / "x.npy"), NodeColumns())


def test_unknown_columns_are_named(tmp_path):
    path = write(node_table(features()), tmp_path / "n.parquet")
    for wanted, option in (
        (NodeColumns(id="no"), "id"),
        (NodeColumns(channels=["no"]), "channels"),
        (NodeColumns(exclude=["no"]), "exclude"),
    ):
        with pytest.raises(ParameterError, match=f"{option} names 'no'.*'age'"):
            read_nodes(path, wanted)


@pytest.mark.parametrize("name", ["bomb.csv.gz", "bomb.npz", "bomb.parquet", "bomb.feather"])
def test_a_small_file_that_unpacks_to_more_than_memory_is_refused(tmp_path, monkeypatch, name):
    path = tmp_path / name
    zeros = np.zeros((100_000, 30))
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(b"id,x\n" + b"a,0\n" * 3_000_000, 1))
    elif name.endswith(".npz"):
        np.savez_compressed(path, features=zeros)
    else:
        write(pa.table({f"c{place}": column for place, column in enumerate(zeros.T)}), path)
    monkeypatch.setattr(sizes, "available", lambda: 4_000_000)
    assert path.stat().st_size < 2_000_000
    with pytest.raises(TooLargeError, match=r"decompresses to .* or more, but only 4(\.0)? MB"):
        read_nodes(str(path), NodeColumns())


def test_what_is_written_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "out.csv"
    with pytest.raises(AttributeError), atomic_file(str(target)) as file:
        file.write(b"half").no_such_thing = None
    assert list(tmp_path.iterdir()) == []
    with atomic_file(str(target)) as file:
        file.write(b"whole")
        assert not target.exists()
    assert target.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [target]
    if hasattr(os, "fchmod"):
        assert target.stat().st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("nameless", [True, False])
def test_an_existing_file_is_overwritten_only_by_force(tmp_path, monkeypatch, nameless):
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    target = tmp_path / "out.csv"
    target.write_bytes(b"old")
    left = tmp_path / f".out.csv.{os.getpid()}.tmp"  # by a process of the same number that was killed
    left.touch()
    with pytest.raises(FileError, match=r"exists already.*--force"), atomic_file(str(target)):
        pass
    with atomic_file(str(target), force=True) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert set(tmp_path.iterdir()) == {target, left}


def test_formats_are_known_by_suffix_and_by_content():
    assert format_of("a.b/x.TSV.zst", NODE_FORMATS, "nodes") == Format("tsv", "zstd")
    assert format_of("e.mtx", EDGE_FORMATS, "edges") == Format("mtx")
    with pytest.raises(FileError, match=r"suffix \.parquet\.gz"):
        format_of("x.parquet.gz", NODE_FORMATS, "nodes")
    assert sniff(INTACT_FILES["parquet"][:100]) == Format("parquet")
    assert sniff(INTACT_FILES["arrow"][:100]) == Format("arrow")
    assert sniff(INTACT_FILES["csv.gz"][:100]) == Format("csv", "gzip")
    assert sniff(b"id\tx\n") == Format("tsv")
